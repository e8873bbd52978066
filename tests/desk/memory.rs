//! No report collects its rows or its text in memory: writing one takes at most a small multiple of
//! the memory of `top`.
//!
//! Each report is made in a separate process, whose peak Linux reports. So the memory of SQLite
//! counts, too.

use std::io::{Write, sink, stdout};
use std::process::Command;

use heapprof_analysis::{
    AnalysisSession, ProfileQuestion, Query, QuestionSource, TreeOptions, TypeSelection,
    folded::each_folded_stack, leaks::leaks, peek::peek, statement::UserStatement,
    suppression::SuppressionSet, top::top, traces::traces, tree::tree,
};
use heapprof_profile::{FrameText, LabelSetIndex, LocationIndex, Profile, ProfileBuilder};
use heapprof_report::{FoldedWriter, ReportFormat, ReportStyle, flame_folded, result_table};

/// Largest memory of any report, as a multiple of that of `top`. A report that collects its rows
/// takes 5 to 15 times as much.
const MAX_MEMORY_RATIO: u64 = 3;

/// Variable that names the report that the process makes.
const REPORT: &str = "HEAPPROF_TEST_REPORT";

const REPORTS: [&str; 12] = [
    "peek text",
    "peek json",
    "peek csv",
    "tree text",
    "tree json",
    "tree markdown",
    "folded tree",
    "folded",
    "traces text",
    "traces json",
    "leaks csv",
    "sql text",
];

/// Returns a profile of 20,000 stacks of depth 24 over 2,000 functions, from a small generator with
/// a fixed seed.
fn profile() -> Profile {
    let mut state = 7u64;
    let mut random = |n: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let mut builder = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    let locations: Vec<LocationIndex> = (0..2_000)
        .map(|n| {
            builder.frame(&[FrameText {
                name: &format!("module::Type<u{}>::function_{n}", n % 64),
                filename: &format!("/src/file{}.cc", n % 50),
                line: n,
                start_line: 0,
            }])
        })
        .collect();
    for _ in 0..20_000 {
        let mut at = random(20);
        let mut stack: Vec<LocationIndex> = (0..24)
            .map(|depth| {
                // Sometimes a call leads to a random function, so that there are many different
                // calls.
                at = match depth % 6 {
                    5 => random(2_000),
                    _ => (at * 3 + random(4)) % 2_000,
                };
                locations[at as usize]
            })
            .collect();
        stack.reverse();
        let objects = 1 + random(5_000) as i64;
        let samples = &mut builder.profile.samples;
        samples.push(stack, &[objects, objects * 64], LabelSetIndex(0));
    }
    builder.finish()
}

fn report(name: &str) {
    let query = Query::default();
    let (what, format) = name.rsplit_once(' ').unwrap_or((name, "text"));
    let style = ReportStyle {
        format: format.parse().unwrap_or(ReportFormat::Text),
        ..ReportStyle::default()
    };
    let types = if what == "leaks" {
        TypeSelection::InUse
    } else {
        TypeSelection::Requested
    };
    let question = ProfileQuestion::new(vec![QuestionSource::new("p", profile())], &query, types)
        .expect("the profile is valid")
        .with_tree(TreeOptions {
            most: None,
            reverse: false,
            least: 0.0,
        })
        .with_neighbours_of(|_| true);
    let session = AnalysisSession::new(question).expect("SQLite opens");
    let (session, out) = (&session, &mut sink());
    match name {
        "folded tree" => {
            let tree = tree(session, &query).expect("answers");
            flame_folded(&tree, &style, out)
        }
        "folded" => {
            let mut lines = FoldedWriter::new(out);
            let written = each_folded_stack(session, &query, |places, stack, value| {
                lines.write(places, stack, value)
            });
            written.expect("answers").map(drop).map_err(Into::into)
        }
        _ => match what {
            "top" => top(session, 1, &query, false)
                .map_err(Into::into)
                .and_then(|report| heapprof_report::top(&report, &style, &|_, _| None))
                .map(drop),
            "peek" => heapprof_report::peek(&peek(session, &query).expect("answers"), &style, out),
            "tree" => {
                heapprof_report::tree(&tree(session, &query).expect("answers"), false, &style, out)
            }
            "traces" => {
                let report = traces(session, &query).expect("answers");
                heapprof_report::traces(
                    &report,
                    heapprof_report::TraceOrder::Descending,
                    &style,
                    out,
                )
            }
            "leaks" => {
                let report = leaks(session, &query, &SuppressionSet::default()).expect("answers");
                heapprof_report::leaks(&report, &[], &style, out)
            }
            _ => {
                let sql = "SELECT stack, position, entity FROM frame";
                let mut statement = UserStatement::new(session, sql).expect("a statement");
                result_table(&mut statement, &style, out)
            }
        },
    }
    .expect("a sink takes everything");
}

/// Makes the report that the environment names. This runs in the other processes.
#[test]
fn report_of_this_process() {
    if let Ok(name) = std::env::var(REPORT) {
        report(&name);
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
        let peak = status.lines().find(|line| line.starts_with("VmHWM"));
        let peak = peak.expect("Linux tells the peak");
        writeln!(stdout(), "\n{peak}").expect("somebody reads");
    }
}

/// Returns the peak memory in KiB of a process that makes the report.
fn peak(name: &str) -> u64 {
    let this = std::env::current_exe().expect("a test has a file");
    let child = Command::new(this)
        .args(["--exact", "memory::report_of_this_process", "--nocapture"])
        .env(REPORT, name)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&child.stdout);
    let line = said.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{name}: {said} {}", String::from_utf8_lossy(&child.stderr)))
}

#[test]
fn no_report_holds_its_rows() {
    let most = MAX_MEMORY_RATIO * peak("top");
    for name in REPORTS {
        let peak = peak(name);
        assert!(peak <= most, "{name}: {peak} KiB, {most} at most");
    }
}

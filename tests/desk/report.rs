//! The page that `report` writes: its contents, what it must not contain, and that its numbers are
//! those of `top`.
//!
//! The tests in `page/tests` of heapprof-web open such pages in a browser.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use heapprof_profile::{HeapHistory, HeapPeak, ProfileBuilder, encode};
use heapprof_tests::harness::{ok, run, sample_profiles};
use heapprof_tests::needs::have;
use serde_json::{Value, json};

const GO: &str = "valid/go.indexer.indexed.pb.gz";
const BEFORE: &str = "valid/go.leaky.before.pb.gz";
const AFTER: &str = "valid/go.leaky.after.pb.gz";

/// The data of a page: its head, and its columns of numbers by name.
struct Data {
    head: Value,
    columns: BTreeMap<String, Vec<i64>>,
}

impl Data {
    fn from_page(page: &str) -> Self {
        let (_, block) = page.split_once("id=\"data\"").expect("a data block");
        let (_, text) = block.split_once('>').unwrap();
        let (text, rest) = text.split_once("</script>").unwrap();
        assert!(!rest.contains("<script"), "the data come last");
        let packed = STANDARD.decode(text.trim()).unwrap();
        let mut bytes = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..])
            .read_to_end(&mut bytes)
            .unwrap();
        let len = u32::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        let head: Value = serde_json::from_slice(&bytes[4..4 + len]).unwrap();
        let bytes = &bytes[4 + len..];
        let columns = head["columns"].as_array().unwrap().iter().map(|column| {
            let offset = column[1].as_u64().unwrap() as usize;
            let count = column[2].as_u64().unwrap() as usize;
            let numbers = numbers(&bytes[offset..], count, column[3].as_str().unwrap());
            (column[0].as_str().unwrap().to_string(), numbers)
        });
        let columns = columns.collect();
        Self { head, columns }
    }

    fn type_at(&self, name: &str) -> usize {
        let types = self.head["types"].as_array().unwrap();
        types.iter().position(|t| t[0] == name).unwrap()
    }

    /// Returns the own value of each function in a snapshot, by name and file.
    fn flat(&self, snapshot: usize, sample_type: &str) -> BTreeMap<String, i64> {
        let at = self.type_at(sample_type);
        let (frames, functions) = (&self.columns["node.frame"], &self.columns["frame.func"]);
        let nodes = &self.columns[&format!("s{snapshot}.node")];
        let values = &self.columns[&format!("s{snapshot}.v{at}")];
        let mut sums = BTreeMap::new();
        for (&node, &value) in nodes.iter().zip(values) {
            let function = functions[frames[node as usize] as usize] as usize;
            let name = self.head["func"]["name"][function].as_str().unwrap();
            let file = self.head["func"]["file"][function].as_u64().unwrap();
            let file = self.head["file"][file as usize].as_str().unwrap();
            *sums.entry(name_and_file(name, file)).or_default() += value;
        }
        sums.retain(|_, value| *value != 0);
        sums
    }
}

/// Decodes the numbers of a column: LEB128, zigzag or not, values or differences.
fn numbers(bytes: &[u8], count: usize, kind: &str) -> Vec<i64> {
    let (mut all, mut at, mut last) = (Vec::new(), 0, 0i64);
    for _ in 0..count {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = bytes[at];
            at += 1;
            value |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                break;
            }
        }
        let zigzag = (value >> 1) as i64 ^ -((value & 1) as i64);
        last = match kind {
            "u" => value as i64,
            "z" => zigzag,
            _ => last + zigzag,
        };
        all.push(last);
    }
    all
}

/// Returns a function as one text, which is only its name if it has no file.
fn name_and_file(name: &str, file: &str) -> String {
    format!("{name} {file}").trim_end().to_string()
}

/// Returns the own values of functions from `top`, by name and file.
fn top(args: &[&str]) -> BTreeMap<String, i64> {
    let args = [&["top", "-n", "0", "--format", "json"], args].concat();
    let json: Value = serde_json::from_str(&ok(&args)).unwrap();
    let rows = json["rows"].as_array().unwrap().iter();
    let rows = rows.map(|row| {
        (
            name_and_file(
                row["function"].as_str().unwrap(),
                row["file"].as_str().unwrap_or_default(),
            ),
            row["flat"].as_i64().unwrap(),
        )
    });
    rows.filter(|&(_, flat)| flat != 0).collect()
}

#[test]
fn a_page_has_the_numbers_of_top() {
    for profile in [
        GO,
        "perl/orders.values.pb.gz",
        "python/orders.pb.gz",
        "valid/made.inlines.pb.gz",
    ] {
        let data = Data::from_page(&ok(&["report", profile]));
        for t in data.head["types"].as_array().unwrap() {
            let name = t[0].as_str().unwrap();
            let wanted = top(&["--all-code", "-t", name, profile]);
            assert_eq!(data.flat(0, name), wanted, "{profile} {name}");
        }
    }
    let data = Data::from_page(&ok(&["report", "--base", BEFORE, AFTER]));
    assert_eq!(data.head["base"], 0);
    assert_eq!(data.flat(0, "inuse_space"), top(&["--all-code", BEFORE]));
    assert_eq!(data.flat(1, "inuse_space"), top(&["--all-code", AFTER]));
    let data = Data::from_page(&ok(&["report", "--focus", "parseOrder", AFTER]));
    let wanted = top(&["--all-code", "--focus", "parseOrder", AFTER]);
    assert_eq!(data.flat(0, "inuse_space"), wanted);
}

/// Several profiles are snapshots in order of time, and functions have verdicts.
#[test]
fn several_profiles_are_a_series() {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..6 {
        let mut builder = heapprof_profile::ProfileBuilder::new(&[("inuse_space", "bytes")]);
        builder.add_folded("main;leaks", &[1000 * (i + 1)]);
        builder.add_folded("main;stays", &[5000]);
        builder.profile.time_nanos = (1 + i) * 60_000_000_000;
        // The order of the names differs from that of the times.
        let path = folder.path().join(format!("{}.pb.gz", 9 - i));
        let file = std::fs::File::create(path).unwrap();
        heapprof_profile::encode(&builder.finish(), file).unwrap();
    }
    let data = Data::from_page(&ok(&["report", folder.path().to_str().unwrap()]));
    let snapshots = data.head["snapshots"].as_array().unwrap();
    let since: Vec<f64> = snapshots
        .iter()
        .map(|s| s["ms"].as_f64().unwrap())
        .collect();
    assert_eq!(since, [0.0, 60e3, 120e3, 180e3, 240e3, 300e3]);
    let growth = data.head["growth"]["inuse_space"].as_array().unwrap();
    let name = |row: &Value| {
        let function = row["f"].as_u64().unwrap() as usize;
        data.head["func"]["name"][function]
            .as_str()
            .unwrap()
            .to_string()
    };
    assert_eq!(name(&growth[0]), "leaks");
    assert_eq!(growth[0]["verdict"], "steady growth");
    assert_eq!(growth[0]["slope"].as_f64().unwrap().round(), 60_000.0);
    let stays = growth.iter().find(|row| name(row) == "stays").unwrap();
    assert_eq!(stays["verdict"], "no trend");
}

#[test]
fn a_page_loads_nothing_and_is_the_same_each_time() {
    let page = ok(&["report", GO]);
    assert!(
        page.contains("default-src 'none'; script-src 'sha256-"),
        "a policy"
    );
    let loaded = regex::Regex::new("(src|href)=\"(http|//)").unwrap();
    assert!(!loaded.is_match(&page), "nothing is loaded from elsewhere");
    assert_eq!(page, ok(&["report", GO]));
    assert!(page.len() < 350_000, "{}", page.len());
    let small = ok(&["report", "--max-nodes", "500", GO]);
    let data = Data::from_page(&small);
    let nodes = data.head["nodes"].as_u64().unwrap();
    // Folded nodes are counted, and their sum is in additional nodes.
    let left_out = &data.head["left_out"];
    let shown = nodes - left_out["nodes"].as_u64().unwrap();
    assert!((100..=500).contains(&shown), "{nodes}");
    assert!(left_out["nodes"].as_u64().unwrap() > 0, "{left_out}");
    let at = data.type_at("inuse_space");
    let other = data.flat(0, "inuse_space")["(other)"];
    assert_eq!(left_out["value"][at].as_i64(), Some(other));
    let sum: i64 = data.flat(0, "inuse_space").values().sum();
    let wanted: i64 = top(&[GO]).values().sum();
    assert_eq!(sum, wanted);
}

#[test]
fn names_and_paths_stay_out_if_asked() {
    let full = Data::from_page(&ok(&["report", "--paths", "full", AFTER]))
        .head
        .to_string();
    assert!(
        full.contains("main.parseOrder") && full.contains(".go\""),
        "{full}"
    );
    let none = Data::from_page(&ok(&["report", "--paths", "none", AFTER]))
        .head
        .to_string();
    assert!(none.contains("main.parseOrder") && !none.contains(".go\""));
    assert!(!none.contains("valid/"), "{none}");
    let hidden = Data::from_page(&ok(&["report", "--anonymize", AFTER]));
    let text = hidden.head.to_string();
    for name in ["parseOrder", "runtime", "leaky", "valid", ".go"] {
        assert!(!text.contains(name), "{name}: {text}");
    }
    let plain = Data::from_page(&ok(&["report", AFTER]));
    let values = |data: &Data| -> Vec<i64> {
        let mut values: Vec<i64> = data.flat(0, "inuse_space").into_values().collect();
        values.sort_unstable();
        values
    };
    assert_eq!(values(&hidden), values(&plain));
}

#[test]
fn source_lines_are_in_it_if_asked() {
    let page = |options: &[&str]| {
        let words = [&["report"], options, &["perl/orders.many.pb.gz"]].concat();
        Data::from_page(&ok(&words)).head.to_string()
    };
    let text = "my $order = { number";
    assert!(!page(&["--source-path", "../docs/examples"]).contains(text));
    assert!(page(&["--source", "--source-path", "../docs/examples"]).contains(text));
}

/// `sql` can run each statement of a page.
#[test]
fn statements_run() {
    let data = Data::from_page(&ok(&["report", "--base", BEFORE, AFTER]));
    let statements = data.head["sql"].as_object().unwrap();
    assert!(statements.len() >= 7, "{statements:?}");
    for (view, text) in statements {
        let text = text.as_str().unwrap();
        let text = text
            .replace("{type}", "inuse_space")
            .replace("{function}", "main.main");
        let out = ok(&["sql", "-p", BEFORE, "-p", AFTER, &text]);
        assert!(out.lines().count() > 1, "{view}: {out}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    for (words, wanted) in [
        (
            &["report", here][..],
            "there is no profile (.pb.gz) in this folder",
        ),
        (
            &["report", "-g", "lines", GO],
            "--granularity: the page has functions",
        ),
        (
            &["report", "none.pb.gz"],
            "none.pb.gz: there is no such file",
        ),
        (
            &["report", "--anonymize", "--source", GO],
            "cannot be used with",
        ),
    ] {
        let done = run(&sample_profiles(), words);
        assert_eq!(done.code, 2, "{words:?}: {}", done.err);
        assert!(done.err.contains(wanted), "{words:?}: {}", done.err);
        assert_eq!(done.out, "", "{words:?}");
    }
    // A file appears as a whole or not at all, and the last line describes its contents.
    let out = folder.path().join("r.html");
    let done = run(
        &sample_profiles(),
        &["report", "-o", out.to_str().unwrap(), GO],
    );
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.err
            .contains("--anonymize hashes them; open it in a browser"),
        "{}",
        done.err
    );
    assert!(Path::new(&out).exists());
}

/// With a sampled and an exact profile, in either order, each side says how it was recorded.
#[test]
fn a_sampled_and_an_exact_side_are_not_both_exact() {
    const SAMPLED: &str = "valid/made.sampled.pb.gz";
    let one_every = "one every 512KiB on average";
    for (sides, periods, which) in [
        ([SAMPLED, AFTER], [524_288, 1], ["before", "after"]),
        ([AFTER, SAMPLED], [1, 524_288], ["after", "before"]),
    ] {
        let [before, after] = sides;
        let data = Data::from_page(&ok(&["report", "--base", before, after]));
        for (snapshot, period) in periods.iter().enumerate() {
            assert_eq!(data.head["snapshots"][snapshot]["period"], *period);
        }
        let [this, other] = which;
        let said = format!(
            "estimated from samples {this} ({one_every}) and exact {other}, so a difference is an \
             estimate"
        );
        for format in ["text", "markdown"] {
            let text = ok(&["diff", "--format", format, before, after]);
            assert!(text.contains(&format!("Values are {said}.")), "{text}");
        }
        let svg = ok(&["flame", "--base", before, after]);
        assert!(svg.contains(&said), "{svg}");
        let json = ok(&["diff", "--format", "json", before, after]);
        let json: Value = serde_json::from_str(&json).unwrap();
        let period = |at: usize| (periods[at] > 1).then_some(periods[at]);
        let wanted = serde_json::json!({"before": period(0), "after": period(1)});
        assert_eq!(json["sampled"], wanted);
    }
    let same = ok(&["diff", SAMPLED, SAMPLED]);
    let said = format!("Values are estimated from samples, {one_every}.");
    assert!(same.contains(&said), "{same}");
}

/// The page's texts about each side are made by a script of the page.
#[test]
fn a_page_says_how_each_side_was_recorded() {
    if !have(&["node"]) {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/desk/web/page/script");
    let folder = tempfile::tempdir().unwrap();
    for name in ["sampling", "format", "profile", "measures"] {
        let script = std::fs::read_to_string(page.join(format!("{name}.js"))).unwrap();
        let script = script.replace(".js'", ".mjs'");
        std::fs::write(folder.path().join(format!("{name}.mjs")), script).unwrap();
    }
    let main = "
        import { exactnessText, recordedText } from './sampling.mjs';
        for (const [before, after] of [[524288, 1], [1, 65536], [1, 1], [0, 1]]) {
          const measure = { name: 'inuse_space', kind: 'space', unit: 'bytes', index: 0 };
          const question = { before: 0, after: 1, measure };
          const snapshots = [before, after].map(period =>
            ({ period, total: [100 << 20], error: period > 1 ? [0.1] : undefined }));
          const profile = { isHeap: true, head: {}, snapshots };
          const app = { profile, model: { isDiff: true, question } };
          console.log(exactnessText(app) + ' | ' + recordedText(app));
        }";
    let main_file = folder.path().join("main.mjs");
    std::fs::write(&main_file, main).unwrap();
    let ran = std::process::Command::new("node").arg(main_file).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let exact = "Every allocation was recorded; the values are exact.";
    let sampled = |size: &str| {
        format!(
            "One sample for each {size} on average, scaled up: values are estimates, small ones \
             rough."
        )
    };
    let wanted = [
        format!(
            "≈ estimate: before 1 per 512 KiB, after exact | Before: {} After: {exact} The \
             difference is an estimate. A growth of less than about 2 MiB in a function, or 10 \
             MiB in all, would not show.",
            sampled("512 KiB")
        ),
        format!(
            "≈ estimate: before exact, after 1 per 64 KiB | Before: {exact} After: {} The \
             difference is an estimate. A growth of less than about 64 KiB in a function, or 11 \
             MiB in all, would not show.",
            sampled("64 KiB")
        ),
        format!("exact | {exact}"),
        format!(
            "before sampling unknown, after exact | Before: The file does not say how it was \
             sampled. After: {exact}"
        ),
    ];
    let said = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted);
}

/// RSS at the end and peak RSS are the same in each command, without the collector's tables.
#[test]
fn commands_agree_on_rss() {
    let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes"), ("peak_space", "bytes")]);
    builder.add_folded("main;work", &[12 << 20, 50 << 20]);
    let comments = [
        "collector: heapprof 0.2.0",
        "rss: 20971520 bytes",
        "peak rss: 62914560 bytes",
        "own tables: 4194304 bytes",
    ];
    builder.profile.comment = comments.map(|comment| builder.text(comment)).to_vec();
    builder.profile.period = 1;
    builder.profile.time_nanos = 1_795_132_800_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rss.pb.gz");
    encode(&builder.finish(), std::fs::File::create(&path).unwrap()).unwrap();
    let path = path.to_str().unwrap();
    let page = Data::from_page(&ok(&["report", path]));
    let snapshot = &page.head["snapshots"][0];
    assert_eq!(snapshot["rss"], 16 << 20);
    assert_eq!(snapshot["peak_rss"], 56 << 20);
    let has = |text: &str, name: &str, value: &str| {
        let found = text.lines().find(|line| line.starts_with(name));
        let found = found.unwrap_or_else(|| panic!("no {name}: {text}"));
        assert!(
            found[name.len()..].trim_start().starts_with(value),
            "{found}"
        );
    };
    let info = ok(&["info", path]);
    has(&info, "RSS", "16MiB, plus 4MiB of heapprof's own tables");
    has(
        &info,
        "Peak RSS",
        "56MiB, plus 4MiB of heapprof's own tables",
    );
    let stats = ok(&["stats", path]);
    has(&stats, "RSS", "16MiB");
    has(&stats, "peak RSS", "56MiB");
    let timeline = ok(&["timeline", "--format", "json", path, path]);
    let timeline: Value = serde_json::from_str(&timeline).unwrap();
    assert_eq!(timeline["rows"][0]["rss"], 16 << 20);
}

/// The peak of a series, of its last profile and of the page is the largest heap that any profile
/// records, even if no profile was taken at that moment.
#[test]
fn commands_agree_on_the_peak() {
    const SECOND: i64 = 1_000_000_000;
    const BEGIN: i64 = 1_795_132_800 * SECOND;
    const MIB: i64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let series = |name: &str, history: Option<usize>| -> Vec<String> {
        let peaks = [4, 50, 50];
        let each = [3, 12, 5].iter().zip(peaks).enumerate();
        let write = |(at, (in_use, peak)): (usize, (&i64, i64))| {
            let mut builder =
                ProfileBuilder::new(&[("inuse_space", "bytes"), ("peak_space", "bytes")]);
            builder.add_folded("main;work", &[in_use * MIB, peak * MIB]);
            for comment in ["rss: 20971520 bytes", "peak rss: 62914560 bytes"] {
                let comment = builder.text(comment);
                builder.profile.comment.push(comment);
            }
            builder.profile.period = 1;
            builder.profile.time_nanos = BEGIN + (at as i64 + 1) * SECOND;
            builder.profile.duration_nanos = (at as i64 + 1) * SECOND;
            let mut profile = builder.finish();
            if history == Some(at) {
                let history = HeapHistory {
                    peak: Some(HeapPeak {
                        micros: 1_500_000,
                        bytes: peak * MIB,
                    }),
                    ..HeapHistory::default()
                };
                history.put(&mut profile);
            }
            let path = folder.path().join(format!("{name}{at}.pb.gz"));
            encode(&profile, std::fs::File::create(&path).unwrap()).unwrap();
            path.to_str().unwrap().to_string()
        };
        each.map(write).collect()
    };
    let timeline = |names: &[String], format: &str| {
        let names = names.iter().map(String::as_str);
        let words = ["timeline", "--format", format].into_iter().chain(names);
        ok(&words.collect::<Vec<_>>())
    };
    // The series begins with its first profile, one second after the beginning of the recording.
    let known = series("known", Some(2));
    let found: Value = serde_json::from_str(&timeline(&known, "json")).unwrap();
    let expected = json!({"bytes": 50 * MIB, "since_nanos": SECOND / 2});
    assert_eq!(found["peak"], expected);
    let rows = found["rows"].as_array().unwrap();
    let reported: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!([
                row["since_nanos"],
                row["inuse_space"],
                row["peak"],
                row["profile"]
            ])
        })
        .collect();
    let names: Vec<Value> = known.iter().map(|name| json!(name)).collect();
    let resident: Vec<&Value> = rows.iter().map(|row| &row["rss"]).collect();
    assert_eq!(resident, [20 * MIB, 60 * MIB, 20 * MIB, 20 * MIB]);
    let expected = [
        json!([0, 3 * MIB, null, names[0]]),
        json!([SECOND / 2, 50 * MIB, true, names[2]]),
        json!([SECOND, 12 * MIB, null, names[1]]),
        json!([2 * SECOND, 5 * MIB, null, names[2]]),
    ];
    assert_eq!(reported, expected);
    let text = timeline(&known, "text");
    assert!(
        text.starts_with("3 profiles: heap over 2s, from 3MiB to 5MiB, peak 50MiB at 500ms;"),
        "{text}"
    );
    let page = |names: &[String]| {
        let names = names.iter().map(String::as_str);
        let words: Vec<&str> = std::iter::once("report").chain(names).collect();
        Data::from_page(&ok(&words)).head["peak"].clone()
    };
    assert_eq!(page(&known), json!({"bytes": 50 * MIB, "t": 500.0}));
    assert_eq!(page(&known[2..]), Value::Null);
    let stats = ok(&["stats", &known[2]]);
    let peak = stats.lines().find(|line| line.starts_with("peak_space"));
    assert!(peak.unwrap().ends_with(" 50MiB, at 1.50s"), "{stats}");
    // The moment of the peak was not recorded.
    let unknown = series("unknown", None);
    let found: Value = serde_json::from_str(&timeline(&unknown, "json")).unwrap();
    assert_eq!(
        found["peak"],
        json!({"bytes": 50 * MIB, "since_nanos": null})
    );
    assert_eq!(found["rows"].as_array().unwrap().len(), 3);
    let text = timeline(&unknown, "text");
    assert!(
        text.contains(", peak 50MiB (at an unknown time);"),
        "{text}"
    );
    assert!(!text.contains('▲'), "{text}");
    assert_eq!(page(&unknown), json!({"bytes": 50 * MIB}));
}

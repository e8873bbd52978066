//! `heapprof compare-allocators`: the same program with one malloc and with others, in turn.

mod allocator;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use heapprof_analysis::RunFigures;
use heapprof_process::{Counters, Ran, maps, run as run_measured};
use heapprof_report::{Candidate, Comparison, HeapInUse};
use heapprof_symbolize::program::{Obstacle, inspect};

use self::allocator::{Allocator, chosen};
use super::heap_run::{HowToRun, heap_of};
use super::record::find_program;
use super::{Shared, proc};
use crate::args::CompareAllocatorsArgs;
use crate::progress::Bar;
use crate::{messages, output};

pub(super) fn run(shared: &Shared, args: &CompareAllocatorsArgs) -> Result<()> {
    let (allocators, missing) = chosen(&args.allocators)?;
    for (name, looked) in &missing {
        messages::note(&format!(
            "{name}: is not installed ({looked}); it is left out"
        ));
    }
    if allocators.len() < 2 {
        bail!("there is nothing to compare: name two allocators that are installed");
    }
    let how = HowToRun {
        command: &args.command,
        shows_output: args.show_output,
        ignores_failure: args.ignore_failure,
        without: None,
    };
    must_take_a_preload(&args.command[0])?;
    let candidate = |allocator: &Allocator| Candidate {
        name: allocator.name.clone(),
        what: allocator.what(),
        ..Candidate::default()
    };
    let mut candidates: Vec<Candidate> = allocators.iter().map(candidate).collect();
    let mut bar = Bar::running();
    let all = u64::from(args.runs) * allocators.len() as u64 + u64::from(args.warmup);
    let mut done = 0;
    for _ in 0..args.warmup {
        one(&how, &allocators[0])?;
        done += 1;
        bar.at(done, Some(all));
    }
    // Whatever changes slowly, such as the processor's clock, changes for all alike.
    for round in 0..args.runs as usize {
        for i in 0..allocators.len() {
            let i = (i + round) % allocators.len();
            let (figures, is_loaded) = one(&how, &allocators[i])?;
            candidates[i].runs.push(figures);
            candidates[i].is_loaded = candidates[i].is_loaded.or(is_loaded);
            done += 1;
            bar.at(done, Some(all));
        }
    }
    drop(bar);
    let heap = match args.no_heap {
        true => None,
        false => {
            let run = heap_of(shared, &how)?;
            Some(HeapInUse {
                peak: run.peak,
                end: run.end,
            })
        }
    };
    let comparison = Comparison {
        command: how.shown(),
        candidates,
        missing,
        heap,
    };
    let style = proc::style(shared, &args.report);
    let text = heapprof_report::comparison(&comparison, &style)?;
    output::text(args.report.output.file(), &text)
}

/// The kernel's counts of the same memory may differ by so much.
const NEAR: u64 = 1 << 20;

/// Fails for a program into which nothing can be preloaded.
fn must_take_a_preload(program: &OsStr) -> Result<()> {
    let name = program.display();
    let Some(path) = find_program(program) else {
        bail!("{name}: there is no such program");
    };
    let looked = inspect(&path);
    for obstacle in &looked.obstacles {
        match obstacle {
            Obstacle::Static => bail!(
                "{name}: is statically linked, so no allocator can be preloaded into it; link it \
                 with each instead"
            ),
            Obstacle::OwnAllocator(function) => messages::note(&format!(
                "{name}: has an allocator of its own linked in ({function}), which may go on \
                 whatever is preloaded"
            )),
            _ => {}
        }
    }
    Ok(())
}

/// Runs the program once. Says also whether the library was in it.
fn one(how: &HowToRun<'_>, allocator: &Allocator) -> Result<(RunFigures, Option<bool>)> {
    let mut command = Command::new(&how.command[0]);
    command.args(&how.command[1..]);
    how.streams(&mut command);
    allocator.set(&mut command);
    let mut is_loaded = None;
    let ran = run_measured(&mut command, |pid| {
        let library = allocator.library.as_deref();
        is_loaded = library.and_then(|library| has(pid, library));
    })
    .with_context(|| how.shown())?;
    if !ran.status.success() && !how.ignores_failure {
        bail!(
            "{}: {} with {}; --ignore-failure goes on, --show-output shows what it says",
            how.shown(),
            ran.status,
            allocator.name
        );
    }
    let own_peak = Counters::of(std::process::id()).ok();
    let own_peak = own_peak.and_then(|counters| counters.get("VmHWM"));
    Ok((figures(&ran, own_peak.unwrap_or(0) + NEAR), is_loaded))
}

/// Whether a process has a library mapped.
fn has(pid: u32, library: &Path) -> Option<bool> {
    let library = std::fs::canonicalize(library).ok()?;
    let text = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    let library = library.as_os_str().as_encoded_bytes();
    Some(maps::parse(&text).iter().any(|map| map.path == library))
}

fn figures(ran: &Ran, own_peak: u64) -> RunFigures {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    // The kernel begins the program's peak with what heapprof had when it started it.
    let of_all = match (ran.at_end, ran.max_rss > own_peak) {
        (Some(_), false) => 0,
        _ => ran.max_rss,
    };
    // Its two counts of the same may differ by some pages for each thread.
    let of_program = ran.at_end.map_or(0, |at_end| at_end.peak.max(at_end.rss));
    let peak = of_all.max(of_program);
    RunFigures {
        wall_us: micros(ran.wall),
        user_us: micros(ran.user),
        system_us: micros(ran.system),
        peak_rss: signed(peak),
        hwm: ran.at_end.map(|at_end| signed(at_end.peak)),
        end_rss: ran.at_end.map(|at_end| signed(at_end.rss)),
        minor_faults: signed(ran.minor_faults),
        major_faults: signed(ran.major_faults),
        voluntary: signed(ran.voluntary),
        involuntary: signed(ran.involuntary),
    }
}

//! `heapprof compare-allocators`: runs the same program with several allocators, in turn.

mod allocator;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use heapprof_analysis::RunFigures;
use heapprof_process::{RunUsage, StatusCounters, comm, descendants, maps, run as run_measured};
use heapprof_report::{AllocatorCandidate, AllocatorComparison, HeapInUse};
use heapprof_symbolize::program::{PreloadObstacle, inspect};

use self::allocator::{AllocatorSetup, is_known, select_allocators};
use super::heap_run::{RunSetup, join_words, record_heap};
use super::proc;
use super::record::find_program;
use crate::args::CompareAllocatorsArgs;
use crate::context::CommandContext;
use crate::progress::WorkBar;
use crate::{messages, output};

pub(super) fn run(context: &CommandContext, args: &CompareAllocatorsArgs) -> Result<()> {
    let (allocators, missing) = select_allocators(&args.allocators)?;
    for (name, looked) in &missing {
        messages::note(&format!(
            "{name}: is not installed ({looked}); it is left out"
        ));
    }
    if allocators.len() < 2 {
        bail!("there is nothing to compare: name two allocators that are installed");
    }
    let how = RunSetup {
        command: &args.command,
        shows_output: args.runs_of.show_output,
        ignores_failure: args.runs_of.ignore_failure,
        name: join_words(&args.command),
        uncounted: None,
    };
    check_preloadable(&args.command[0])?;
    let candidate = |allocator: &AllocatorSetup| AllocatorCandidate {
        name: allocator.name.clone(),
        what: allocator.describe_settings(),
        ..AllocatorCandidate::default()
    };
    let mut candidates: Vec<AllocatorCandidate> = allocators.iter().map(candidate).collect();
    let mut bar = WorkBar::running();
    let all = u64::from(args.runs + args.warmup) * allocators.len() as u64;
    let mut done = 0;
    for _ in 0..args.warmup {
        for (allocator, candidate) in allocators.iter().zip(&mut candidates) {
            candidate.without.extend(warm_up(&how, allocator)?);
            done += 1;
            bar.at(done, Some(all));
        }
    }
    // The allocators take turns, so slow changes, such as of the processor's clock, affect all
    // alike.
    for round in 0..args.runs as usize {
        for i in 0..allocators.len() {
            let i = (i + round) % allocators.len();
            let (figures, found) = run_once(&how, &allocators[i], |_| {})?;
            let candidate = &mut candidates[i];
            candidate.runs.push(figures);
            if let Some(found) = found {
                candidate.is_loaded = candidate.is_loaded.or(found.is_loaded);
                candidate.other = candidate.other.take().or(found.other);
            }
            done += 1;
            bar.at(done, Some(all));
        }
    }
    drop(bar);
    let heap = match args.no_heap {
        true => None,
        false => {
            let run = record_heap(context, &how)?;
            Some(HeapInUse {
                peak: run.peak,
                is_main: run.is_main,
                end: run.end,
            })
        }
    };
    let comparison = AllocatorComparison {
        command: how.name.clone(),
        candidates,
        missing,
        heap,
    };
    let style = proc::style(context, &args.report);
    let text = heapprof_report::comparison(&comparison, &style)?;
    output::text(args.report.output.file(), &text)
}

/// Largest difference between two kernel counts of the same memory, in bytes.
const MAX_COUNT_DIFFERENCE: u64 = 1 << 20;

/// Fails for a program into which nothing can be preloaded.
fn check_preloadable(program: &OsStr) -> Result<()> {
    let name = program.display();
    let Some(path) = find_program(program) else {
        bail!("{name}: there is no such program");
    };
    let looked = inspect(&path);
    for obstacle in &looked.obstacles {
        match obstacle {
            PreloadObstacle::Static => bail!(
                "{name}: is statically linked, so no allocator can be preloaded into it; link it \
                 with each instead"
            ),
            PreloadObstacle::OwnAllocator(function) => messages::note(&format!(
                "{name}: has an allocator of its own linked in ({function}), which may go on \
                 whatever is preloaded"
            )),
            _ => {}
        }
    }
    Ok(())
}

/// Runs the program once, without measuring it. Returns the names of its descendants that ran
/// without the allocator's library, because they had another environment.
fn warm_up(how: &RunSetup<'_>, allocator: &AllocatorSetup) -> Result<BTreeSet<String>> {
    const SCAN_INTERVAL: Duration = Duration::from_millis(2);
    let pid = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut without = BTreeSet::new();
            loop {
                match pid.load(Ordering::Acquire) {
                    u32::MAX => return without,
                    0 => {}
                    pid => without.extend(descendants_without_library(
                        pid,
                        allocator.library.as_deref(),
                    )),
                }
                std::thread::sleep(SCAN_INTERVAL);
            }
        });
        let ran = run_once(how, allocator, |began| pid.store(began, Ordering::Release));
        pid.store(u32::MAX, Ordering::Release);
        let without = looking.join().unwrap_or_default();
        ran.map(|_| without)
    })
}

/// Returns the names of a program's descendants that have a C library but not `library`.
fn descendants_without_library(program: u32, library: Option<&Path>) -> Vec<String> {
    let children = descendants(program)
        .into_iter()
        .filter(|&pid| pid != program);
    let lacks = |pid: &u32| {
        let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let maps = maps::parse(&text);
        let has_libc = maps
            .iter()
            .any(|map| file_name(&map.path).starts_with("libc.so"));
        let is_loaded = find_loaded_allocator(*pid, library).and_then(|found| found.is_loaded);
        has_libc && is_loaded == Some(false)
    };
    children.filter(lacks).map(comm).collect()
}

/// Runs the program once and measures it. Also returns which allocator's library the process had at
/// its end, if that could be read.
fn run_once(
    how: &RunSetup<'_>,
    allocator: &AllocatorSetup,
    began: impl FnOnce(u32),
) -> Result<(RunFigures, Option<LoadedAllocator>)> {
    let mut command = Command::new(&how.command[0]);
    command.args(&how.command[1..]);
    how.streams(&mut command);
    allocator.apply_to(&mut command);
    let mut found = None;
    let ran = run_measured(&mut command, began, |pid| {
        found = find_loaded_allocator(pid, allocator.library.as_deref());
    })
    .with_context(|| how.name.clone())?;
    if !ran.status.success() && !how.ignores_failure {
        bail!(
            "{}: {} with {}; --ignore-failure goes on, --show-output shows what it says",
            how.name,
            ran.status,
            allocator.name
        );
    }
    // The memory that heapprof has written to is also in its copy, which becomes the program.
    let own = StatusCounters::from_pid(std::process::id()).ok();
    let own = own
        .and_then(|counters| counters.get("RssAnon"))
        .unwrap_or(0);
    Ok((figures(&ran, own + MAX_COUNT_DIFFERENCE), found))
}

/// The allocator libraries that a process has loaded.
struct LoadedAllocator {
    /// Whether the preloaded library is there; `None` if no library is preloaded.
    is_loaded: Option<bool>,
    /// File name of another allocator's library, which the program itself loaded.
    other: Option<String>,
}

fn find_loaded_allocator(pid: u32, library: Option<&Path>) -> Option<LoadedAllocator> {
    let text = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = maps::parse(&text);
    let library = library.and_then(|library| std::fs::canonicalize(library).ok());
    let is_it = |path: &[u8]| {
        let library = library.as_ref();
        library.is_some_and(|library| library.as_os_str().as_encoded_bytes() == path)
    };
    let others = maps.iter().filter(|map| !is_it(&map.path));
    Some(LoadedAllocator {
        is_loaded: library
            .as_ref()
            .map(|_| maps.iter().any(|map| is_it(&map.path))),
        other: others
            .map(|map| file_name(&map.path))
            .find(|name| is_known(name)),
    })
}

/// Returns the last part of a path.
fn file_name(path: &[u8]) -> String {
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(last).into_owned()
}

/// Returns the figures of a run. `own` is the memory that heapprof itself had when the run began.
fn figures(ran: &RunUsage, own: u64) -> RunFigures {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    // The kernel starts the peak at the memory that the copy of heapprof had.
    let of_all = match (ran.at_end, ran.max_rss > own) {
        (Some(_), false) => 0,
        _ => ran.max_rss,
    };
    // The kernel's two counts of the same memory may differ by some pages for each thread.
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

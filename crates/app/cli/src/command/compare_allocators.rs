//! `heapprof bench allocators`: runs the same program with several allocators, in turn.

use std::ffi::OsStr;

use anyhow::{Result, anyhow, bail};
use heapprof_bench::{
    AllocatorError, AllocatorSetup, RunSetup, run_with, select_allocators, warm_up,
};
use heapprof_recorder::find_program;
use heapprof_report::{AllocatorCandidate, AllocatorComparison, HeapInUse};
use heapprof_symbolize::program::{PreloadObstacle, inspect};

use super::heap_run::{join_words, record_heap};
use super::proc;
use crate::args::CompareAllocatorsArgs;
use crate::context::CommandContext;
use crate::progress::WorkBar;
use crate::{messages, output};

pub(super) fn run(context: &CommandContext, args: &CompareAllocatorsArgs) -> Result<()> {
    let (allocators, missing) = select_allocators(&args.allocators).map_err(with_option)?;
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
            let (figures, found) = run_with(&how, &allocators[i], |_| {})?;
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
            let run = record_heap(context, &how, None)?;
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

/// Adds the name of the option to an error in the list of allocators.
fn with_option(error: AllocatorError) -> anyhow::Error {
    match error {
        AllocatorError::NoneInstalled => {
            anyhow!("{error}; tunables can be compared: --allocators glibc,glibc:arena_max=1")
        }
        AllocatorError::Twice(_) | AllocatorError::Unknown { .. } => {
            anyhow!("--allocators: {error}")
        }
        AllocatorError::UnknownTunable { .. } | AllocatorError::NoNumber { .. } => {
            anyhow!("--allocators {error}")
        }
    }
}

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
                "{name}: has its own allocator linked in ({function}), which may be used whatever \
                 is preloaded"
            )),
            _ => {}
        }
    }
    Ok(())
}

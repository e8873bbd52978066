//! Runs a program with an allocator, and measures the run.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heapprof_analysis::compare::RunFigures;
use heapprof_process::{RunUsage, StatusCounters, comm, descendants, maps, run as run_measured};

use crate::allocator::{AllocatorSetup, is_known};
use crate::error::RunError;

/// The settings for running a program.
pub struct RunSetup<'a> {
    /// The words of the command.
    pub command: &'a [OsString],
    /// Whether the output of the program is shown.
    pub shows_output: bool,
    /// Whether a program that fails is measured nevertheless.
    pub ignores_failure: bool,
    /// The program's name in messages.
    pub name: String,
}

impl RunSetup<'_> {
    /// Sets the streams of a command. The program's output is discarded if `shows_output` is false.
    pub fn set_streams(&self, command: &mut Command) {
        command.stdin(Stdio::null());
        if !self.shows_output {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
}

/// Largest difference between two kernel counts of the same memory, in bytes.
const MAX_COUNT_DIFFERENCE: u64 = 1 << 20;

/// Runs the program once without measuring it. Returns the names of its descendants that ran
/// without the allocator's library, for example because they had another environment.
pub fn warm_up(
    how: &RunSetup<'_>,
    allocator: &AllocatorSetup,
) -> Result<BTreeSet<String>, RunError> {
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
        let ran = run_with(how, allocator, |began| pid.store(began, Ordering::Release));
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

/// Runs the program once and measures it. Also returns which allocator libraries the process had
/// loaded at its end, if they could be read.
pub fn run_with(
    how: &RunSetup<'_>,
    allocator: &AllocatorSetup,
    began: impl FnOnce(u32),
) -> Result<(RunFigures, Option<LoadedAllocator>), RunError> {
    let mut command = Command::new(&how.command[0]);
    command.args(&how.command[1..]);
    how.set_streams(&mut command);
    allocator.apply_to(&mut command);
    let mut found = None;
    let ran = run_measured(&mut command, began, |pid| {
        found = find_loaded_allocator(pid, allocator.library.as_deref());
    })
    .map_err(|error| RunError::Io {
        program: how.name.clone(),
        error,
    })?;
    if !ran.status.success() && !how.ignores_failure {
        return Err(RunError::Failed {
            program: how.name.clone(),
            status: ran.status,
            how: format!("with {}", allocator.name),
        });
    }
    // The memory that heapprof has written to is also in its copy, which becomes the program.
    let own = StatusCounters::from_pid(std::process::id()).ok();
    let own = own
        .and_then(|counters| counters.get("RssAnon"))
        .unwrap_or(0);
    Ok((figures(&ran, own + MAX_COUNT_DIFFERENCE), found))
}

/// The allocator libraries that a process has loaded.
pub struct LoadedAllocator {
    /// Whether the preloaded library is loaded; `None` if none is preloaded.
    pub is_loaded: Option<bool>,
    /// File name of another allocator's library, which the program itself loaded.
    pub other: Option<String>,
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

/// Returns the figures of a run. The program starts as a copy of heapprof, and the kernel's peak
/// includes the memory of this copy. So a peak of at most `own` bytes may be heapprof's.
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

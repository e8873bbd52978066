//! Jumps at the entries of the program's functions, which the library has prepared.
//!
//! All threads are stopped when a jump is written, or taken away. A thread may be stopped between
//! the instructions that a jump replaces, or a signal may have interrupted it there. Such a thread
//! goes on at the copy of its next instruction. It is never stepped to another place: a step can
//! leave a signal behind that ends the program.
//!
//! Threads and saved registers are changed before the first jump is written. So the program goes on
//! at any moment at which heapprof is killed.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use heapprof_abi::entry_patch::{ENTRY_JUMP_LEN, EntryPatch, EntryPatchRecord, MAX_ENTRY_PATCHES};
use heapprof_memory::Memory;
use heapprof_process::thread_state;

use crate::child_process;
use crate::error::AttachError;
use crate::process::TargetProcess;
use crate::region::{AttachRegion, field};
use crate::signal_frames::StackSearch;
use crate::suspended_thread::has_signals;
use crate::thread::{StoppedThread, StoppingThread};

/// Time in which all threads have to be stopped at once.
const STOP_ALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Number of times that the list of threads is read until it has no new thread.
const MAX_STOP_ROUNDS: u32 = 1000;
/// First number of an attempt's result if the threads could not be stopped at once.
const NOT_STOPPED: u64 = u64::MAX;

/// Jumps that were written or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangedEntries {
    /// Number of functions.
    pub(crate) count: u32,
    /// How long the threads were stopped, also by attempts in which one of them could not be.
    pub(crate) stopped_for: Duration,
}

/// Writes the jumps of the library's table.
pub(crate) fn write(
    process: &TargetProcess,
    region: AttachRegion,
) -> Result<ChangedEntries, AttachError> {
    change(process, region, |process, patches, threads| {
        move_threads(process, patches, threads)?;
        check_objects(process, region)?;
        write_jumps(process, patches)
    })
}

/// Puts the code back that the jumps have replaced.
pub(crate) fn restore(
    process: &TargetProcess,
    region: AttachRegion,
) -> Result<ChangedEntries, AttachError> {
    change(process, region, |process, patches, _| {
        restore_code(process, patches)
    })
}

/// Whether there are jumps in the program's code.
pub(crate) fn are_there(process: &TargetProcess, region: AttachRegion) -> bool {
    let patches = read_table(process, region);
    patches
        .iter()
        .any(|patch| code_at(process, patch) == Some(patch.jump))
}

/// The stopped threads of a process by their numbers.
type StoppedThreads = BTreeMap<u32, StoppedThread>;

/// Stops all threads, and does `work` with the table of jumps. `work` returns the number of changed
/// functions.
fn change(
    process: &TargetProcess,
    region: AttachRegion,
    work: impl Fn(&TargetProcess, &[EntryPatch], &mut StoppedThreads) -> Result<u64, AttachError>,
) -> Result<ChangedEntries, AttachError> {
    if read_table(process, region).is_empty() {
        return Ok(ChangedEntries {
            count: 0,
            stopped_for: Duration::ZERO,
        });
    }
    let since = Instant::now();
    let mut stopped_for = Duration::ZERO;
    loop {
        // All threads that an attempt has stopped continue when its process ends.
        let [count, nanoseconds] = child_process::run(|| {
            let begun = Instant::now();
            let Some(mut threads) = stop_all(process)? else {
                return Ok([NOT_STOPPED, begun.elapsed().as_nanos() as u64]);
            };
            let patches = read_table(process, region);
            let count = work(process, &patches, &mut threads)?;
            drop(threads);
            Ok([count, begun.elapsed().as_nanos() as u64])
        })?;
        stopped_for += Duration::from_nanos(nanoseconds);
        if count != NOT_STOPPED {
            return Ok(ChangedEntries {
                count: count as u32,
                stopped_for,
            });
        }
        if since.elapsed() > STOP_ALL_TIMEOUT {
            return Err(AttachError::NotAllStopped(STOP_ALL_TIMEOUT.as_secs()));
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Reads the library's table of jumps.
fn read_table(process: &TargetProcess, region: AttachRegion) -> Vec<EntryPatch> {
    const RECORD_LEN: usize = size_of::<EntryPatchRecord>();
    let memory = process.memory();
    let at = region.u64(memory, field!(entry_patches)).unwrap_or(0);
    let mut table = vec![0; MAX_ENTRY_PATCHES * RECORD_LEN];
    if at == 0 || !memory.read(at, &mut table) {
        return Vec::new();
    }
    let records = table.chunks_exact(RECORD_LEN);
    records.filter_map(EntryPatch::parse).collect()
}

/// Returns the code at the place of a jump.
fn code_at(process: &TargetProcess, patch: &EntryPatch) -> Option<[u8; ENTRY_JUMP_LEN]> {
    let mut code = [0; ENTRY_JUMP_LEN];
    process.memory().read(patch.at, &mut code).then_some(code)
}

/// Stops all threads, also those that start meanwhile. Returns `None` if a thread can't be stopped
/// now, because it works inside the kernel: its child may be about to execute another program, and
/// uses the same memory until then.
fn stop_all(process: &TargetProcess) -> Result<Option<StoppedThreads>, AttachError> {
    let mut stopped = StoppedThreads::new();
    let is_busy = |tid| thread_state(process.pid, tid) == Some('D');
    if process.threads().into_iter().any(is_busy) {
        return Ok(None);
    }
    for _ in 0..MAX_STOP_ROUNDS {
        let has_ended = |tid| matches!(thread_state(process.pid, tid), None | Some('Z' | 'X'));
        let is_gone = |tid, error: &io::Error| match error.raw_os_error() {
            Some(libc::ESRCH) => true,
            // A thread that is ending can't be stopped.
            Some(libc::EPERM) => has_ended(tid),
            _ => false,
        };
        // All are asked first: the others run while one is waited for.
        let (mut asked, mut is_complete) = (Vec::new(), true);
        for tid in process.threads() {
            if stopped.contains_key(&tid) || has_ended(tid) {
                continue;
            }
            is_complete = false;
            match StoppingThread::new(tid) {
                Ok(thread) => asked.push((tid, thread)),
                Err(error) if is_gone(tid, &error) => {}
                Err(error) => return Err(AttachError::KernelError("ptrace", error)),
            }
        }
        for (tid, thread) in asked {
            match thread.wait(false, || is_busy(tid)) {
                Ok(Some(mut thread)) => {
                    thread.prepare_restart(|before| process.is_call(before), || has_signals(tid));
                    stopped.insert(tid, thread);
                }
                Ok(None) => return Ok(None),
                Err(error) if is_gone(tid, &error) => {}
                Err(error) => return Err(AttachError::KernelError("ptrace", error)),
            }
        }
        match (is_complete, stopped.is_empty()) {
            (true, true) => return Err(AttachError::NoProcess),
            (true, false) => return Ok(Some(stopped)),
            (false, _) => {}
        }
    }
    // The process begins threads faster than they can be stopped.
    Ok(None)
}

/// Moves the threads that are between the instructions of a jump, and those that a signal has
/// interrupted there, to the copies of these instructions.
fn move_threads(
    process: &TargetProcess,
    patches: &[EntryPatch],
    threads: &mut StoppedThreads,
) -> Result<(), AttachError> {
    let mut patches = patches.to_vec();
    patches.sort_unstable_by_key(|patch| patch.at);
    let moved = |pc: u64| {
        let next = patches.partition_point(|patch| patch.at <= pc);
        patches[..next].last()?.moved_address(pc)
    };
    let search = StackSearch::new(process)?;
    let mut searched = HashSet::new();
    for thread in threads.values_mut() {
        let (pc, stack) = thread.place();
        if let Some(to) = moved(pc) {
            let moved = thread.move_to(to);
            moved.map_err(|error| AttachError::KernelError("ptrace", error))?;
        }
        for frame in search.signal_frames(stack, &mut searched)? {
            if let Some(to) = moved(frame.pc) {
                let written = process.memory().write(frame.pc_at, &to.to_ne_bytes());
                written.map_err(|error| AttachError::KernelError("its stack", error))?;
            }
        }
    }
    Ok(())
}

/// Tells the library if other objects are loaded than it has searched. Threads may run in them when
/// the library finds them, so its next search leaves them alone.
fn check_objects(process: &TargetProcess, region: AttachRegion) -> Result<(), AttachError> {
    let memory = process.memory();
    let searched = (
        region.u32(memory, field!(object_count))?,
        region.u64(memory, field!(object_sum))?,
    );
    let missed_at = region.u64(memory, field!(missed_at))?;
    if searched == process.loaded_objects() || missed_at == 0 {
        return Ok(());
    }
    let written = memory.write(missed_at, &[1]);
    written.map_err(|error| AttachError::KernelError("its memory can't be written", error))
}

/// Writes all jumps whose place has the code that they replace. Writes none if one can't be
/// written, or if another tool has changed the code. Returns the number of jumps that are there.
fn write_jumps(process: &TargetProcess, patches: &[EntryPatch]) -> Result<u64, AttachError> {
    let mut count = 0;
    for patch in patches {
        let written = match code_at(process, patch) {
            // The object was unloaded meanwhile.
            None => continue,
            Some(code) if code == patch.jump => Ok(()),
            Some(code) if code == patch.original => process
                .memory()
                .write(patch.at, &patch.jump)
                .map_err(|error| AttachError::KernelError("its code can't be written", error)),
            Some(_) => Err(AttachError::CodeChanged),
        };
        if let Err(error) = written {
            let _ = restore_code(process, patches);
            return Err(error);
        }
        count += 1;
    }
    Ok(count)
}

/// Puts the code back wherever there is a jump. Returns the number of jumps that were there, or the
/// first error.
fn restore_code(process: &TargetProcess, patches: &[EntryPatch]) -> Result<u64, AttachError> {
    let (mut count, mut failed) = (0, None);
    for patch in patches {
        if code_at(process, patch) != Some(patch.jump) {
            continue;
        }
        match process.memory().write(patch.at, &patch.original) {
            Ok(()) => count += 1,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        None => Ok(count),
        Some(error) => Err(AttachError::KernelError("its code can't be written", error)),
    }
}

//! Functions that start and stop a recording and make profiles.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use heapprof_engine::setting::SettingError;
use heapprof_engine::{DumpError, DumpReason, ENGINE, RecordingMode, RecordingOptions};
use heapprof_platform::sys;

use crate::environment;
use crate::process;

/// Begins to record the allocations that the program makes from now on. The data of an earlier
/// recording is discarded.
///
/// Returns false without starting if there is no memory for the recording, if a thread is stuck
/// inside an allocation, if the period is above 1 TiB, or if the mode is off. If the program's
/// global allocator is not a [`HeapProf`](crate::HeapProf), nothing is recorded.
pub fn start(mut options: RecordingOptions) -> bool {
    // A plain output name is this process's own; children insert their process id.
    let parent = sys::parent_id();
    options.output.parent.get_or_insert(parent);
    begin(options)
}

/// Begins to record with the [`SETTINGS`](crate::SETTINGS) in the environment, if `HEAPPROF_OUTPUT`
/// is set. Returns whether a recording began. The process's id is added to an output name without
/// `%`, because other programs may have the same variable.
///
/// Nothing begins under `heapprof record`, or if `libheapprof.so` is preloaded. In these cases the
/// library records, and this crate would write to the same files.
///
/// # Errors
/// A variable has an invalid value. Nothing is recorded then.
pub fn start_from_environment() -> Result<bool, SettingError> {
    let options = environment::read(|name| std::env::var_os(name))?;
    Ok(options.is_some_and(begin))
}

fn begin(options: RecordingOptions) -> bool {
    ENGINE
        .lifecycle()
        .with_reentrancy_guard(process::watch_forks);
    options.mode != RecordingMode::Off && ENGINE.lifecycle().start(options)
}

/// Ends the recording. Dumps still show the data that was recorded before. Blocks that are freed
/// later still count as in use. All threads of this crate have ended when this function returns.
pub fn stop() {
    ENGINE.lifecycle().stop();
    ENGINE.lifecycle().end_clock();
}

/// Whether allocations are being recorded.
#[must_use]
pub fn is_running() -> bool {
    ENGINE.lifecycle().is_running()
}

/// Writes a profile to the path that the recording's [`DumpOutput`](crate::DumpOutput) sets, and
/// returns the path.
///
/// # Errors
/// There is no recording, the recording has no output, another thread's dump takes more than ten
/// seconds, the file can't be written, or there is no memory. If only the memory for the returned
/// path is missing, the file is written nevertheless.
pub fn dump() -> Result<PathBuf, DumpError> {
    to_own_path(ENGINE.dumps().request(None))
}

/// Writes a profile to `path`, and returns the path. The file appears only when it is complete.
///
/// # Errors
/// Fails as [`dump`] does, but the recording needs no output.
pub fn dump_to(path: impl AsRef<Path>) -> Result<PathBuf, DumpError> {
    let path = path.as_ref().as_os_str().as_bytes();
    to_own_path(ENGINE.dumps().request(Some(path)))
}

/// Returns a profile of the current heap in gzipped pprof format. A server can send these bytes for
/// `/debug/pprof/heap`. The result is empty if nothing was ever recorded, if there is no memory for
/// the profile, or if another thread's dump takes more than ten seconds.
#[must_use]
pub fn profile() -> Vec<u8> {
    if !ENGINE.lifecycle().was_started() {
        return Vec::new();
    }
    let bytes = ENGINE.dumps().profile(DumpReason::Request);
    hand_over(bytes, |bytes| try_copy(bytes)).unwrap_or_default()
}

/// Requests a last dump for the time when the process calls `exit` or returns from `main`. There is
/// no such dump if the process aborts, calls `_exit`, or is killed by a signal. The dump is made as
/// by [`dump`], except that a plain output name gets no number.
pub fn dump_at_exit() {
    ENGINE
        .lifecycle()
        .with_reentrancy_guard(process::dump_at_exit);
}

fn to_own_path(made: Result<CString, DumpError>) -> Result<PathBuf, DumpError> {
    let path = made.map_err(own_error)?;
    let own = hand_over(path, |path| try_copy(path.to_bytes()));
    Ok(OsString::from_vec(own.ok_or(DumpError::NoMemory)?).into())
}

/// Returns the error with a copy of its path in the program's own memory.
fn own_error(error: DumpError) -> DumpError {
    let DumpError::Write(path, errno) = error else {
        return error;
    };
    let own = hand_over(path, |path| try_copy(path.as_bytes()));
    let own = own.and_then(|path| String::from_utf8(path).ok());
    own.map_or(DumpError::NoMemory, |path| DumpError::Write(path, errno))
}

/// Copies bytes. Returns `None` if there is no memory.
fn try_copy(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).ok()?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

/// Copies a result of the collector into the program's own memory. The copy counts as allocated by
/// the program, so its free is recorded, too.
fn hand_over<T, R>(made: T, copy: impl FnOnce(&T) -> R) -> R {
    let own = copy(&made);
    ENGINE.lifecycle().with_reentrancy_guard(|| drop(made));
    own
}

//! What a program does with its recording: starts it, asks it for profiles, stops it.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use heapprof_collect::setting::Misunderstood;
use heapprof_collect::{self as collect, Error, Options, Reason};

use crate::environment;
use crate::process;

/// Begins to record what the allocator is asked for from now on. What an earlier recording found is forgotten.
///
/// In a program whose global allocator is no [`HeapProf`](crate::HeapProf) nothing is found. False when there is no memory for it,
/// a thread is held up in the middle of an allocation, or the period is above 1 TiB: nothing is recorded then.
pub fn start(mut options: Options) -> bool {
    // A plain output name is this process's own; children insert their process id.
    let parent = collect::sys::parent_id();
    options.output.parent.get_or_insert(parent);
    collect::apart(process::watch_forks);
    collect::start(options)
}

/// Begins to record if the variable `HEAPPROF_OUTPUT` is set, as [`VARIABLES`](crate::VARIABLES) say; whether it did.
///
/// Under `heapprof record`, or with `libheapprof.so` preloaded, it does not: that one records, and would be
/// sent to the same files.
///
/// # Errors
/// A variable that is not understood. Nothing is recorded then.
pub fn start_from_environment() -> Result<bool, Misunderstood> {
    let options = environment::read(|name| std::env::var_os(name))?;
    Ok(options.is_some_and(start))
}

/// Ends the recording. Dumps still show what it found until then, and what is freed later counts as in use.
pub fn stop() {
    collect::stop();
}

/// Whether allocations are being recorded.
#[must_use]
pub fn is_running() -> bool {
    collect::is_running()
}

/// Writes a profile to where the recording's [`Output`](crate::Output) says; its path.
///
/// # Errors
/// There is no recording, it has no output, another thread is dumping, or the file can't be written.
pub fn dump() -> Result<PathBuf, Error> {
    written(|| collect::dump(Reason::Request))
}

/// Writes a profile to `path`, which appears whole or not at all; the path again.
///
/// # Errors
/// As of [`dump`].
pub fn dump_to(path: impl AsRef<Path>) -> Result<PathBuf, Error> {
    let path = path.as_ref().as_os_str().as_bytes();
    written(|| collect::dump_named(Reason::Request, Some(path)))
}

/// The profile as it is now: gzipped pprof, the bytes that a `/debug/pprof/heap` answers with. Empty
/// when nothing was ever recorded.
#[must_use]
pub fn profile() -> Vec<u8> {
    if !collect::was_started() {
        return Vec::new();
    }
    let bytes = collect::apart(|| collect::profile(Reason::Request));
    handed_over(bytes, |bytes| bytes.to_vec())
}

/// Asks for a last dump when the process exits: by `exit`, which is also how `main` ends. Not when it aborts,
/// calls `_exit`, or dies by a signal. It is as if [`dump`] were called then, but a plain output name
/// gets no number.
pub fn dump_at_exit() {
    collect::apart(process::dump_at_exit);
}

fn written(dump: impl FnOnce() -> Result<CString, Error>) -> Result<PathBuf, Error> {
    let path = collect::apart(dump)?;
    Ok(handed_over(path, |path| {
        OsString::from_vec(path.to_bytes().to_vec()).into()
    }))
}

/// What the collector made, as the program's own: it counts as allocated by the program, and its free is known.
fn handed_over<T, R>(made: T, copy: impl FnOnce(&T) -> R) -> R {
    let own = copy(&made);
    collect::apart(|| drop(made));
    own
}

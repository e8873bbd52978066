//! What a program does with its recording: starts it, asks it for profiles, stops it.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use heapprof_collect::setting::Misunderstood;
use heapprof_collect::{self as collect, Error, Mode, Options, Reason};

use crate::environment;
use crate::process;

/// Begins to record what the allocator is asked for from now on. What an earlier recording found is
/// forgotten.
///
/// In a program whose global allocator is no [`HeapProf`](crate::HeapProf) nothing is found. False
/// when there is no memory for it, a thread is held up in the middle of an allocation, the period
/// is above 1 TiB, or the mode is off: nothing begins then.
pub fn start(mut options: Options) -> bool {
    // A plain output name is this process's own; children insert their process id.
    let parent = collect::sys::parent_id();
    options.output.parent.get_or_insert(parent);
    begin(options)
}

/// Begins to record if the variable `HEAPPROF_OUTPUT` is set, as [`VARIABLES`](crate::VARIABLES)
/// say; whether it did. A name without `%` gets the process's id, for other programs may have the
/// same variable.
///
/// Under `heapprof record`, or with `libheapprof.so` preloaded, it does not: that one records, and
/// would be sent to the same files.
///
/// # Errors
/// A variable that is not understood. Nothing is recorded then.
pub fn start_from_environment() -> Result<bool, Misunderstood> {
    let options = environment::read(|name| std::env::var_os(name))?;
    Ok(options.is_some_and(begin))
}

fn begin(options: Options) -> bool {
    collect::apart(process::watch_forks);
    options.mode != Mode::Off && collect::start(options)
}

/// Ends the recording. Dumps still show what it found until then, and what is freed later counts as
/// in use. No thread of this crate is left when it returns.
pub fn stop() {
    collect::stop();
    collect::end_clock();
}

/// Whether allocations are being recorded.
#[must_use]
pub fn is_running() -> bool {
    collect::is_running()
}

/// Writes a profile to where the recording's [`Output`](crate::Output) says; its path.
///
/// # Errors
/// There is no recording, it has no output, another thread's dump takes longer than ten seconds
/// more, the file can't be written, or there is no memory (for the path alone, perhaps: the file is
/// there then).
pub fn dump() -> Result<PathBuf, Error> {
    written(collect::request(None))
}

/// Writes a profile to `path`, which appears whole or not at all; the path again.
///
/// # Errors
/// As of [`dump`].
pub fn dump_to(path: impl AsRef<Path>) -> Result<PathBuf, Error> {
    let path = path.as_ref().as_os_str().as_bytes();
    written(collect::request(Some(path)))
}

/// The profile as it is now: gzipped pprof, the bytes that a `/debug/pprof/heap` answers with.
/// Empty when nothing was ever recorded, or there is no memory for it.
#[must_use]
pub fn profile() -> Vec<u8> {
    if !collect::was_started() {
        return Vec::new();
    }
    let bytes = collect::profile(Reason::Request);
    handed_over(bytes, |bytes| copied(bytes)).unwrap_or_default()
}

/// Asks for a last dump when the process exits: by `exit`, which is also how `main` ends. Not when
/// it aborts, calls `_exit`, or dies by a signal. It is as if [`dump`] were called then, but a
/// plain output name gets no number.
pub fn dump_at_exit() {
    collect::apart(process::dump_at_exit);
}

fn written(made: Result<CString, Error>) -> Result<PathBuf, Error> {
    let path = made.map_err(own_error)?;
    let own = handed_over(path, |path| copied(path.to_bytes()));
    Ok(OsString::from_vec(own.ok_or(Error::NoMemory)?).into())
}

/// An error with a path of the program's own.
fn own_error(error: Error) -> Error {
    let Error::Write(path, errno) = error else {
        return error;
    };
    let own = handed_over(path, |path| copied(path.as_bytes()));
    let own = own.and_then(|path| String::from_utf8(path).ok());
    own.map_or(Error::NoMemory, |path| Error::Write(path, errno))
}

/// `None` without memory.
fn copied(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).ok()?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

/// What the collector made, as the program's own: it counts as allocated by the program, and its
/// free is known.
fn handed_over<T, R>(made: T, copy: impl FnOnce(&T) -> R) -> R {
    let own = copy(&made);
    collect::apart(|| drop(made));
    own
}

//! What the library says: in a line on stderr, if it was asked to or can't do what it was asked
//! for, and to C by errno.

use std::ffi::{CStr, CString, c_char, c_int};

use heapprof_collect as collect;
use heapprof_collect::setting::Misunderstood;

/// Says which variable stands in the way.
pub fn misunderstood(wrong: &Misunderstood) {
    say(&[
        b"heapprof: ",
        wrong.name.as_bytes(),
        b": expected ",
        wrong.expected.as_bytes(),
        b"; not recording",
    ]);
}

/// Writes a line to stderr.
pub fn say(parts: &[&[u8]]) {
    let mut line = parts.concat();
    line.push(b'\n');
    collect::sys::write_to(2, &line);
}

/// Says what became of a dump.
pub fn report(result: &Result<CString, collect::Error>) {
    match result {
        Ok(path) => say(&[b"heapprof: wrote ", path.to_bytes()]),
        Err(error) => say(&[b"heapprof: ", error.to_string().as_bytes()]),
    }
}

/// The result by the library's own errno convention: 0, or what went wrong.
pub fn status(result: Result<CString, collect::Error>) -> c_int {
    match result {
        Ok(_) => 0,
        Err(collect::Error::Write(_, errno)) => errno,
        Err(collect::Error::Busy) => libc::EBUSY,
        Err(collect::Error::NotStarted) => libc::EINVAL,
        Err(collect::Error::NoOutput) => libc::ENOENT,
        Err(collect::Error::NoMemory) => libc::ENOMEM,
    }
}

/// The text behind a C string, if it is one.
pub unsafe fn text<'a>(string: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's contract: null, or a string.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
}

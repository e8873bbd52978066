//! What the library says: in a line on stderr, if it was asked to or can't do what it was asked
//! for, and to C by errno.

use std::ffi::{CStr, CString, c_char, c_int};

use heapprof_collect::setting::Misunderstood;
use heapprof_collect::{Error, sys};

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
    sys::write_to(2, &line);
}

/// Says what became of a dump.
pub fn report(result: &Result<CString, Error>) {
    match result {
        Ok(path) => say(&[b"heapprof: wrote ", path.to_bytes()]),
        Err(error) => say(&[b"heapprof: ", error.to_string().as_bytes()]),
    }
}

/// The result by the library's own errno convention: 0, or what went wrong.
pub fn status(result: Result<CString, Error>) -> c_int {
    match result {
        Ok(_) => 0,
        Err(Error::Write(_, errno)) => errno,
        Err(Error::Busy) => libc::EBUSY,
        Err(Error::NotStarted) => libc::EINVAL,
        Err(Error::NoOutput) => libc::ENOENT,
        Err(Error::NoMemory) => libc::ENOMEM,
    }
}

/// The text behind a C string, if it is one.
pub unsafe fn text<'a>(string: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's contract: null, or a string.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
}

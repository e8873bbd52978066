//! The library's messages: lines on stderr, for requested reports and for requests that can't be
//! fulfilled, and errnos for C callers.

use std::ffi::{CStr, CString, c_char, c_int};

use heapprof_engine::DumpError;
use heapprof_engine::setting::SettingError;
use heapprof_platform::sys;

/// Reports on stderr that the value of an environment variable is invalid.
pub fn report_misunderstood(wrong: &SettingError) {
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

/// Reports the result of a dump on stderr.
pub fn report(result: &Result<CString, DumpError>) {
    match result {
        Ok(path) => say(&[b"heapprof: wrote ", path.to_bytes()]),
        Err(error) => say(&[b"heapprof: ", error.to_string().as_bytes()]),
    }
}

/// Converts a dump's result to an errno: 0 on success.
pub fn status(result: Result<CString, DumpError>) -> c_int {
    match result {
        Ok(_) => 0,
        Err(DumpError::Write(_, errno)) => errno,
        Err(DumpError::Busy) => libc::EBUSY,
        Err(DumpError::NotStarted) => libc::EINVAL,
        Err(DumpError::NoOutput) => libc::ENOENT,
        Err(DumpError::NoMemory) => libc::ENOMEM,
    }
}

/// Returns the text of a C string; `None` if it is null.
pub unsafe fn text<'a>(string: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's contract: null, or a string.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_has_an_errno() {
        for (result, expected) in [
            (Ok(CString::default()), 0),
            (Err(DumpError::Busy), libc::EBUSY),
            (Err(DumpError::NotStarted), libc::EINVAL),
            (Err(DumpError::NoOutput), libc::ENOENT),
            (Err(DumpError::NoMemory), libc::ENOMEM),
            (
                Err(DumpError::Write(String::new(), libc::ENOSPC)),
                libc::ENOSPC,
            ),
        ] {
            assert_eq!(status(result), expected);
        }
    }

    #[test]
    fn no_text_is_no_empty_text() {
        // SAFETY: these are strings, and null.
        let found = unsafe {
            [
                text(std::ptr::null()),
                text(c"".as_ptr()),
                text(c"a".as_ptr()),
            ]
        };
        assert_eq!(found, [None, Some(&b""[..]), Some(&b"a"[..])]);
    }
}

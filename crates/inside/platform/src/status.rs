//! Facts about this process from /proc: resident memory, filters of system calls, threads.

use crate::sys;
use crate::weak::single_threaded;

/// Returns the rest of the line that begins with `name`. `text` is the content of a status file of
/// /proc.
fn find_line<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut lines = text.split(|&b| b == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_ascii())
}

/// Returns the current number of resident bytes, and the largest number so far.
pub fn resident() -> (u64, u64) {
    let text = sys::read_file(c"/proc/thread-self/status");
    let field = |name: &[u8]| {
        let digits = find_line(&text, name)
            .unwrap_or_default()
            .iter()
            .filter(|b| b.is_ascii_digit());
        digits.fold(0u64, |n, b| n * 10 + u64::from(b - b'0')) * 1024
    };
    (field(b"VmRSS:"), field(b"VmHWM:"))
}

/// Whether this thread has a filter of system calls, for example from the program that started this
/// program.
pub fn is_filtered() -> bool {
    if let Some(mode) = sys::seccomp_mode() {
        return mode != 0;
    }
    let text = sys::read_file(c"/proc/thread-self/status");
    find_line(&text, b"Seccomp:").is_some_and(|mode| mode != b"0")
}

/// Whether this process has only one thread. False if that is not certain.
pub fn has_one_thread() -> bool {
    if single_threaded() {
        return true;
    }
    let text = sys::read_file(c"/proc/thread-self/status");
    find_line(&text, b"Threads:").is_some_and(|count| count == b"1")
}

/// Whether the main thread has ended and the calling thread is the last thread.
pub fn is_deserted() -> bool {
    let text = sys::read_file(c"/proc/self/status");
    let ended = find_line(&text, b"State:").is_some_and(|state| state.starts_with(b"Z"));
    // The ended main thread is counted until the process ends.
    ended && find_line(&text, b"Threads:").is_some_and(|n| [&b"1"[..], b"2"].contains(&n))
}

/// Returns the exit code of the main thread after its end. The code is 0 if libc ended the thread.
pub fn main_thread_exit_code() -> u8 {
    let text = sys::read_file(c"/proc/self/stat");
    // The last field is a wait status. The program's name, before it, may contain any bytes.
    let last = text.trim_ascii().rsplit(|&b| b == b' ').next();
    let status = last.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u32>().ok());
    (status.unwrap_or(0) >> 8) as u8
}

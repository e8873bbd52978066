//! Runs work in a child process, so that the work is finished even if heapprof is killed meanwhile.
//!
//! For some microseconds a thread of the program has registers that heapprof has set. If the
//! tracing process died then, the kernel would resume the thread with these registers.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

use crate::error::AttachError;

/// Maximum length of an error's text in bytes.
const MAX_ERROR_LEN: usize = 4096;

/// Runs `work` in a child process. Returns the two numbers that `work` returns.
pub(crate) fn run(
    work: impl FnOnce() -> Result<[u64; 2], AttachError>,
) -> Result<[u64; 2], AttachError> {
    let kernel = |what| AttachError::KernelError(what, std::io::Error::last_os_error());
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two numbers.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(kernel("pipe"));
    }
    // SAFETY: both are open, and no other code has them.
    let [mut reads, mut writes] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    // SAFETY: the child goes on with this thread alone. glibc hands it an allocator that works, and
    // it takes no lock that another thread may have taken.
    match unsafe { libc::fork() } {
        -1 => Err(kernel("fork")),
        0 => {
            drop(reads);
            // A key that ends heapprof must not end this process, which ends by itself.
            // SAFETY: a set of signals is numbers, and this thread is the only one.
            unsafe {
                let mut all: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
                libc::setsid();
            }
            let mut said = Vec::new();
            match work() {
                Ok([one, other]) => {
                    said.push(1);
                    said.extend(one.to_ne_bytes());
                    said.extend(other.to_ne_bytes());
                }
                Err(error) => {
                    said.push(0);
                    said.extend(error.to_string().bytes().take(MAX_ERROR_LEN));
                }
            }
            // The parent may have ended, and then no process reads it.
            let _ = writes.write_all(&said);
            // SAFETY: this ends the process without the work that the parent does at its end.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(writes);
            let mut said = Vec::new();
            let read = reads.read_to_end(&mut said);
            // SAFETY: this waits for our own child.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            read.map_err(|error| AttachError::KernelError("pipe", error))?;
            match said.split_first() {
                Some((1, words)) if words.len() == 16 => {
                    let word = |i: usize| words[8 * i..].first_chunk().copied().unwrap_or_default();
                    Ok([0, 1].map(|i| u64::from_ne_bytes(word(i))))
                }
                Some((0, text)) => Err(AttachError::PreparationFailed(
                    String::from_utf8_lossy(text).into_owned(),
                )),
                _ => Err(AttachError::PreparationFailed(
                    "the process that was to prepare it has ended".into(),
                )),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_errors_come_back() {
        assert_eq!(run(|| Ok([7, u64::MAX])).unwrap(), [7, u64::MAX]);
        let said = run(|| Err(AttachError::StaticallyLinked))
            .unwrap_err()
            .to_string();
        assert_eq!(said, AttachError::StaticallyLinked.to_string());
        let nothing = run(|| std::process::abort()).unwrap_err().to_string();
        assert!(nothing.contains("has ended"), "{nothing}");
    }
}

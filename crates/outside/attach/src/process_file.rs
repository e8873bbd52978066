//! Duplicates a file that another process has open.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

/// Duplicates a file that a process has open under the descriptor `number`. Returns `None` if there
/// is no such file, or if the kernel refuses. The file is not opened by its path: the path may lead
/// to any file, and opening some files has side effects.
pub(crate) fn file(pid: u32, number: u32) -> Option<File> {
    let call = |name, one: i64, other: i64| {
        // SAFETY: these two calls take only numbers.
        let got = unsafe { libc::syscall(name, one, other, 0) };
        // SAFETY: the kernel has made the number for us.
        (got >= 0).then(|| unsafe { File::from_raw_fd(got as i32) })
    };
    let process = call(libc::SYS_pidfd_open, pid.into(), 0)?;
    call(
        libc::SYS_pidfd_getfd,
        process.as_raw_fd().into(),
        number.into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_is_taken_as_it_is() {
        use std::io::Read;
        let one = File::open("/proc/self/comm").unwrap();
        let number = one.as_raw_fd() as u32;
        let mut text = String::new();
        file(std::process::id(), number)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(!text.is_empty());
        assert!(file(std::process::id(), 1 << 30).is_none());
    }
}

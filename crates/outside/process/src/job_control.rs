//! Reads process groups and sessions, which shells use for jobs. rustix can't be used: it assumes
//! that no group has the number 0. The kernel reports 0 for a group that began outside of this PID
//! namespace (`unshare -pf`, a command in a container).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Pid, RawPid};

/// Returns the process group of a process, or of this process for `None`. The group is 0 if it
/// began outside of this namespace.
///
/// # Errors
/// The process may be gone.
pub fn group_of(process: Option<Pid>) -> io::Result<RawPid> {
    // SAFETY: it takes a number and returns one.
    #[expect(unsafe_code, reason = "a function of C")]
    checked(unsafe { libc::getpgid(Pid::as_raw(process)) })
}

/// Returns the session of a process, or of this process for `None`. The session is 0 if it began
/// outside of this namespace.
///
/// # Errors
/// The process may be gone.
pub fn session_of(process: Option<Pid>) -> io::Result<RawPid> {
    // SAFETY: it takes a number and returns one.
    #[expect(unsafe_code, reason = "a function of C")]
    checked(unsafe { libc::getsid(Pid::as_raw(process)) })
}

/// Returns the foreground process group of a terminal. It is 0 if the group began outside of this
/// namespace.
///
/// # Errors
/// The terminal may not be this process's.
pub fn foreground_group(terminal: impl AsFd) -> io::Result<RawPid> {
    // SAFETY: it takes the number of an open file and returns a number.
    #[expect(unsafe_code, reason = "a function of C")]
    checked(unsafe { libc::tcgetpgrp(terminal.as_fd().as_raw_fd()) })
}

/// Returns the session of a terminal. It is 0 if the session began outside of this namespace.
///
/// # Errors
/// The terminal is not this process's.
pub fn terminal_session(terminal: impl AsFd) -> io::Result<RawPid> {
    // SAFETY: it takes the number of an open file and returns a number.
    #[expect(unsafe_code, reason = "a function of C")]
    checked(unsafe { libc::tcgetsid(terminal.as_fd().as_raw_fd()) })
}

fn checked(result: RawPid) -> io::Result<RawPid> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_its_own_group_and_session() {
        let own = Some(rustix::process::getpid());
        assert_eq!(group_of(None).unwrap(), group_of(own).unwrap());
        assert_eq!(session_of(None).unwrap(), session_of(own).unwrap());
    }

    #[test]
    fn what_is_gone_or_no_terminal_is_an_error() {
        let gone = Pid::from_raw(RawPid::MAX);
        assert!(group_of(gone).is_err() && session_of(gone).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(foreground_group(&file).is_err() && terminal_session(&file).is_err());
    }
}

//! Runs a command of a shell in a process of its own, a copy of this one.
//!
//! The copy has all that was read before, and shares its memory. Whatever the command does, the
//! shell goes on: Ctrl-C, a crash and a lack of memory end the command only.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use heapprof_dropin::CommandProcess;

/// Signal handling of Ctrl-C while a command runs: the shell ignores it, and the command has the
/// setting with which the shell was started.
struct ShellSignals {
    before: libc::sighandler_t,
}

impl ShellSignals {
    fn ignore() -> Self {
        // SAFETY: `SIG_IGN` runs no code of ours.
        let before = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        Self { before }
    }

    fn restore(&self) {
        // SAFETY: the value was returned by `signal`, so it is the former setting.
        unsafe { libc::signal(libc::SIGINT, self.before) };
    }
}

/// Runs a command in a copy of this process, waits for its end, and returns how it ended. The
/// command's result is its exit code. If this process has other threads, the command runs here,
/// because a copy would not have them.
///
/// # Errors
/// The system has no room for another process.
pub(crate) fn run_apart(command: impl FnOnce(CommandProcess) -> u8) -> io::Result<ExitStatus> {
    if !has_one_thread() {
        return Ok(ExitStatus::from_raw(
            i32::from(command(CommandProcess::Shell)) << 8,
        ));
    }
    let signals = ShellSignals::ignore();
    // SAFETY: this process has one thread, so no lock is held by a thread that the copy lacks.
    let child = unsafe { libc::fork() };
    if child == 0 {
        signals.restore();
        // The copy has no caller: it ends here, and its shell waits for it.
        #[allow(clippy::disallowed_methods)]
        std::process::exit(i32::from(command(CommandProcess::Copy)));
    }
    let ended = match child {
        -1 => Err(io::Error::last_os_error()),
        child => wait_for(child),
    };
    signals.restore();
    ended
}

fn wait_for(child: libc::pid_t) -> io::Result<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a place for the result, and the child is ours.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if waited == child {
            return Ok(ExitStatus::from_raw(status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Whether this process has a single thread. If that is unknown, it may have more.
fn has_one_thread() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

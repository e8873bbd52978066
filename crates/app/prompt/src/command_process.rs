//! Runs a command of a shell in a process of its own, a copy of this one.
//!
//! The copy has all that was read before, and shares its memory. Whatever the command does, the
//! shell goes on: Ctrl-C, a crash and a lack of memory end the command only. If the shell is ended,
//! its command ends, too.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

use heapprof_dropin::CommandProcess;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::interrupts::InterruptGuard;
use crate::terminal_settings::TerminalSettings;

/// Exit code of a copy whose command panics, as of other programs in Rust.
const PANICKED: u8 = 101;
/// Exit code of a copy whose shell has ended. Nobody reads it.
const ABANDONED: u8 = 143;

/// Runs a command in a copy of this process, waits for its end, and returns how it ended. The
/// command's result is its exit code. If this process has other threads, the command runs here,
/// because a copy would not have them.
///
/// # Errors
/// The system has no room for another process.
pub(crate) fn run_in_copy(command: impl FnOnce(CommandProcess) -> u8) -> io::Result<ExitStatus> {
    if !has_one_thread() {
        let code = InterruptGuard::suspended(|| command(CommandProcess::Shell));
        return Ok(ExitStatus::from_raw(i32::from(code) << 8));
    }
    let _guard = InterruptGuard::new();
    let terminal = TerminalSettings::of_stdin();
    let shell = getpid();
    // SAFETY: this process has one thread, so no lock is held by a thread that the copy lacks.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Without this service of the kernel, the command only outlives its shell.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
        let code = match getppid() == Some(shell) {
            // A panic must not go on in the calls of the shell, which are on this stack.
            true => catch_unwind(AssertUnwindSafe(|| {
                InterruptGuard::suspended(|| command(CommandProcess::Copy))
            }))
            .unwrap_or(PANICKED),
            // The shell ended before its end could be announced.
            false => ABANDONED,
        };
        // The copy has no caller: it ends here, and its shell waits for it.
        #[allow(clippy::disallowed_methods)]
        std::process::exit(i32::from(code));
    }
    let ended = match child {
        -1 => Err(io::Error::last_os_error()),
        child => wait_for(child),
    };
    if ended.as_ref().is_ok_and(|ended| ended.signal().is_some()) {
        terminal.restore();
    }
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

//! The recorded program as a child process: signals that are meant for it reach it, and its end is told in a shell's way.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// How the program ended.
pub(super) struct Ended {
    /// Its exit code, 128 + N when signal N ended it.
    pub(super) code: u8,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
    /// Its process id.
    pub(super) process: u32,
}

/// Runs the program to its end.
pub(super) fn run(command: &mut Command) -> io::Result<Ended> {
    // Ctrl-C is for the program; we wait for what it does about it. What was ignored stays so, for the child too.
    let ignored = ignored();
    let taken = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];
    let taken = taken.into_iter().filter(|s| ignored & 1 << (s - 1) == 0);
    let mut signals = Signals::new(taken)?;
    let handle = signals.handle();
    let mut child = command.spawn()?;
    let process = child.id();
    let pid = Pid::from_child(&child);
    let forwarder = std::thread::spawn(move || {
        for signal in signals.forever() {
            // The terminal sends these two to the program as well.
            let from_terminal = [SIGINT, SIGQUIT].contains(&signal) && is_foreground();
            if !from_terminal && let Some(signal) = Signal::from_named_raw(signal) {
                let _ = kill_process(pid, signal);
            }
        }
    });
    let status = child.wait();
    handle.close();
    let _ = forwarder.join();
    let status = status?;
    let signal = status.signal();
    let code = status.code().or(signal.map(|s| 128 + s)).unwrap_or(1);
    Ok(Ended {
        code: code as u8,
        signal,
        process,
    })
}

/// Whether the terminal's keys reach this process group.
fn is_foreground() -> bool {
    let group = rustix::process::getpgrp();
    let stdin = io::stdin();
    rustix::termios::tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == group)
}

/// Signals that are ignored, as a mask.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
        .unwrap_or(0)
}

//! The recorded program as a child process: signals that are meant for it reach it once, and its end is told in a
//! shell's way.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, getpid, getsid, kill_process, waitid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::low_level::emulate_default_handler;

use crate::inherited;

/// How the program ended.
pub(super) struct Ended {
    /// Its exit code, 128 + N when signal N ended it.
    pub(super) code: u8,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
    /// Its process id.
    pub(super) process: u32,
}

/// Runs the program to its end. `more` is a signal that it wants besides those that are always passed on.
pub(super) fn run(command: &mut Command, more: Option<i32>) -> io::Result<Ended> {
    // Ctrl-C is for the program; we wait for what it does about it. What was ignored stays so, for the child too.
    let ignored = ignored();
    let taken = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
    let taken = taken.into_iter().chain(more);
    let taken = taken.filter(|s| ignored & 1 << (s - 1) == 0);
    inherited::pass_on(command);
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(taken)?;
    let mut child = command.spawn()?;
    let process = child.id();
    let pid = Pid::from_child(&child);
    let has_ended = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&has_ended);
    // Goes on to the end of this process: what comes after the program's end is meant for us.
    std::thread::spawn(move || {
        for info in signals.forever() {
            if over.load(Ordering::Acquire) {
                let _ = emulate_default_handler(info.si_signo);
                continue;
            }
            // A terminal sends what its keys mean to all of its process group, so the program has got it already.
            let by_kernel = info.si_code == libc::SI_KERNEL;
            // Of a hangup the kernel tells the session's leader alone.
            let is_for_all = by_kernel && !(info.si_signo == SIGHUP && leads_session());
            if !(is_for_all && is_in_our_group(pid))
                && let Some(signal) = Signal::from_named_raw(info.si_signo)
            {
                let _ = kill_process(pid, signal);
            }
        }
    });
    // Its number stays its own until it is waited for: nobody else is sent a signal.
    let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), only_look) {}
    has_ended.store(true, Ordering::Release);
    let status = child.wait()?;
    let signal = status.signal();
    let code = status.code().or(signal.map(|s| 128 + s)).unwrap_or(1);
    Ok(Ended {
        code: code as u8,
        signal,
        process,
    })
}

fn leads_session() -> bool {
    getsid(None).is_ok_and(|session| session == getpid())
}

fn is_in_our_group(process: Pid) -> bool {
    getpgid(Some(process)).is_ok_and(|group| group == getpgrp())
}

/// Signals that are ignored, as a mask.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
        .unwrap_or(0)
}

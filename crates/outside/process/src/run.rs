//! Runs a program from its beginning to its end. Reports the resources that the program has used,
//! by the kernel's counts, and the program's memory just before the end.
//!
//! The program is stopped for a moment when it is about to end (`PTRACE_O_TRACEEXIT`), because its
//! memory can't be read afterwards. Where ptrace is not allowed, only the memory at the end is
//! missing.
#![allow(unsafe_code)] // std returns no resources of a child, and knows no ptrace.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::counters::StatusCounters;

/// The resources that a program has used up.
#[derive(Clone, Debug)]
pub struct RunUsage {
    /// How the program ended.
    pub status: ExitStatus,
    /// Time from the program's beginning to its end.
    pub wall: Duration,
    /// Processor time that the program and the children for which it waited spent in their own
    /// code.
    pub user: Duration,
    /// Processor time that the kernel spent for the program and the children for which it waited.
    pub system: Duration,
    /// The most bytes that the program, or a child for which it waited, had in memory. The value is
    /// at least the memory that heapprof had when it started the program.
    pub max_rss: u64,
    /// Number of page faults that needed no disk.
    pub minor_faults: u64,
    /// Number of page faults that needed a disk.
    pub major_faults: u64,
    /// Number of times that a thread gave up its processor because it had to wait.
    pub voluntary: u64,
    /// Number of times that the kernel took the processor away from a thread.
    pub involuntary: u64,
    /// The program's memory when it was about to end, if that could be read.
    pub at_end: Option<MemoryAtEnd>,
}

/// A program's memory when it was about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAtEnd {
    /// Bytes in memory just before the end (VmRSS).
    pub rss: u64,
    /// The most bytes that were in memory at one time (VmHWM).
    pub peak: u64,
}

/// Runs a program to its end. Calls `began` with the process's number at its start, and `look` with
/// the number when the program is about to end.
///
/// # Errors
/// The program may fail to start.
pub fn run(
    command: &mut Command,
    began: impl FnOnce(u32),
    mut look: impl FnMut(u32),
) -> io::Result<RunUsage> {
    // Without `pre_exec`, std shares our memory with the child until it executes the program, and
    // the kernel then begins the program's peak with ours. A copy does not have pages that we have
    // not written.
    // SAFETY: the closure runs between fork and exec, where only few functions may be called. It
    // calls none.
    unsafe { command.pre_exec(|| Ok(())) };
    let start = Instant::now();
    let child = command.spawn()?;
    let pid = child.id();
    began(pid);
    let number = pid.cast_signed();
    // The program may have ended already, or belong to another user by now. Then its end is not
    // watched.
    let _ = ptrace(libc::PTRACE_SEIZE, number, libc::PTRACE_O_TRACEEXIT);
    let mut at_end = None;
    loop {
        let (status, used) = wait(number)?;
        if !libc::WIFSTOPPED(status) {
            let wall = start.elapsed();
            return Ok(to_run_usage(
                ExitStatus::from_raw(status),
                wall,
                &used,
                at_end,
            ));
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let is_stop = event == libc::PTRACE_EVENT_STOP && signal != libc::SIGTRAP;
        if event == libc::PTRACE_EVENT_EXIT {
            at_end = self::read_memory_at_end(pid);
            look(pid);
        }
        // If the whole program was stopped, it stays stopped. Otherwise it goes on, with the signal
        // that it was to get.
        let _ = match (is_stop, event) {
            (true, _) => ptrace(libc::PTRACE_LISTEN, number, 0),
            (false, 0) => ptrace(libc::PTRACE_CONT, number, signal),
            (false, _) => ptrace(libc::PTRACE_CONT, number, 0),
        };
    }
}

fn read_memory_at_end(pid: u32) -> Option<MemoryAtEnd> {
    let counters = StatusCounters::from_pid(pid).ok()?;
    Some(MemoryAtEnd {
        rss: counters.get("VmRSS")?,
        peak: counters.get("VmHWM")?,
    })
}

/// The type of a request to ptrace.
#[cfg(target_env = "gnu")]
type TraceRequest = libc::c_uint;
#[cfg(not(target_env = "gnu"))]
type TraceRequest = libc::c_int;

fn ptrace(request: TraceRequest, pid: libc::pid_t, data: libc::c_int) -> io::Result<()> {
    // SAFETY: none of the requests above reads or writes memory of ours.
    let done = unsafe { libc::ptrace(request, pid, 0usize, data as usize) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn wait(pid: libc::pid_t) -> io::Result<(libc::c_int, libc::rusage)> {
    loop {
        let mut status = 0;
        // SAFETY: the structure has only numbers, for which zero is a valid value.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes both, which are of the types that it expects.
        let found = unsafe { libc::wait4(pid, &raw mut status, libc::__WALL, &raw mut used) };
        match found {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok((status, used)),
        }
    }
}

fn to_run_usage(
    status: ExitStatus,
    wall: Duration,
    used: &libc::rusage,
    at_end: Option<MemoryAtEnd>,
) -> RunUsage {
    let unsigned = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    let time = |time: libc::timeval| {
        let micros = u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Duration::from_micros(micros)
    };
    RunUsage {
        status,
        wall,
        user: time(used.ru_utime),
        system: time(used.ru_stime),
        max_rss: unsigned(used.ru_maxrss).saturating_mul(1024),
        minor_faults: unsigned(used.ru_minflt),
        major_faults: unsigned(used.ru_majflt),
        voluntary: unsigned(used.ru_nvcsw),
        involuntary: unsigned(used.ru_nivcsw),
        at_end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> RunUsage {
        run(Command::new("sh").args(["-c", script]), |_| {}, |_| {}).unwrap()
    }

    #[test]
    fn a_program_is_seen_before_it_is_gone() {
        let mut looked = Vec::new();
        let wait = "until grep -q '^TracerPid:.*[1-9]' /proc/$$/status; do :; done; exit 3";
        let ran = run(
            Command::new("sh").args(["-c", wait]),
            |_| {},
            |pid| {
                looked.push(crate::title(pid, 999));
            },
        )
        .unwrap();
        assert_eq!(ran.status.code(), Some(3));
        let at_end = ran.at_end.unwrap();
        assert!(at_end.rss > 0 && at_end.peak >= at_end.rss);
        assert_eq!(looked, [Some(format!("sh -c {wait}"))]);
        assert!(ran.minor_faults > 0 && ran.wall > Duration::ZERO);
    }

    #[test]
    fn signals_arrive_and_children_count() {
        let ran = shell("trap 'exit 5' USR1; kill -USR1 $$; sleep 5");
        assert_eq!(ran.status.code(), Some(5));
        let ran = shell("kill -KILL $$");
        assert_eq!(ran.status.signal(), Some(9));
        let ran = shell("(sleep 0.1; kill -CONT $$) & kill -STOP $$; exit 7");
        assert_eq!(ran.status.code(), Some(7));
        assert!(run(&mut Command::new("/nowhere/at/all"), |_| {}, |_| {}).is_err());
    }
}

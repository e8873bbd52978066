//! A program from its beginning to its end: what it has used up, as the kernel counts it, and what
//! it had in memory just before it was gone.
//!
//! The program is stopped for a moment when it is about to end (`PTRACE_O_TRACEEXIT`), because
//! nobody can read its memory afterwards. Where ptrace is not allowed, that is missing, and all
//! else is there.
#![allow(unsafe_code)] // std returns no resources of a child, and knows no ptrace.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::counters::StatusCounters;

/// What a program has used up.
#[derive(Clone, Debug)]
pub struct RunUsage {
    /// How it ended.
    pub status: ExitStatus,
    /// From its beginning to its end.
    pub wall: Duration,
    /// How long it and the children that it waited for worked: their own code, and the kernel for
    /// them.
    pub user: Duration,
    /// See [`user`](Self::user).
    pub system: Duration,
    /// The most that it, or one of those children, had in memory. At least what heapprof itself
    /// had when it started the program.
    pub max_rss: u64,
    /// Pages that came without a disk.
    pub minor_faults: u64,
    /// Pages that came from a disk.
    pub major_faults: u64,
    /// How often a thread gave its processor away, because it had to wait.
    pub voluntary: u64,
    /// How often one was taken away.
    pub involuntary: u64,
    /// What the program itself had when it was about to end, if that could be read.
    pub at_end: Option<MemoryAtEnd>,
}

/// What a program had in memory when it was about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAtEnd {
    /// What was in memory then (VmRSS).
    pub rss: u64,
    /// The most that ever was (VmHWM).
    pub peak: u64,
}

/// Runs a program to its end. `began` is told its number, and `look` when it is about to end.
///
/// # Errors
/// It may not be possible to start it.
pub fn run(
    command: &mut Command,
    began: impl FnOnce(u32),
    mut look: impl FnMut(u32),
) -> io::Result<RunUsage> {
    // std shares our memory with a child that does nothing before it executes the program, and the
    // kernel then begins the program's peak with ours. What we have not written is not in a copy.
    // SAFETY: the closure runs between fork and exec, where little may be called. It calls nothing.
    unsafe { command.pre_exec(|| Ok(())) };
    let start = Instant::now();
    let child = command.spawn()?;
    let pid = child.id();
    began(pid);
    let number = pid.cast_signed();
    // It may have ended already, or be another user's by now. Then its end is not looked at.
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
        // A stop of the whole program stays one. Otherwise it goes on, with the signal that it was
        // to get.
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
        // SAFETY: numbers alone, for which zero is a value.
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
        let ran = run(
            Command::new("sh").args(["-c", "sleep 0.2; exit 3"]),
            |_| {},
            |pid| {
                looked.push(crate::title(pid, 99));
            },
        )
        .unwrap();
        assert_eq!(ran.status.code(), Some(3));
        let at_end = ran.at_end.unwrap();
        assert!(at_end.rss > 0 && at_end.peak >= at_end.rss);
        assert_eq!(looked, [Some("sh -c sleep 0.2; exit 3".to_string())]);
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

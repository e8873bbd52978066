//! Reads basic facts about a process: its name, its parent, its state, and whether it has become
//! another program.

use std::io;

use procfs_core::FromRead;
use procfs_core::process::Stat;

use crate::read;

/// The kernel's flag of a process that a signal ends, from `include/linux/sched.h`.
const PF_SIGNALED: u32 = 0x400;

/// The facts about a process in its `/proc/PID/stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The kernel's name of the process: 15 bytes at most.
    pub name: String,
    /// The state of the process, as the kernel's letter.
    pub state: char,
    /// Number of the parent process.
    pub parent: u32,
    /// Number of threads.
    pub threads: i64,
    /// The time at which the process began, in ticks since the machine started.
    pub began: u64,
    /// Address at which the stack begins; 0 if this user may not read it. The address changes when
    /// the process becomes another program.
    pub stack: u64,
    /// Number of page faults that needed no disk.
    pub minor_faults: u64,
    /// Number of page faults that needed a disk.
    pub major_faults: u64,
    /// Processor time that the process has used, in ticks.
    pub worked: u64,
    /// Whether a signal ends the process. It takes long to end if it has much memory.
    pub is_killed: bool,
}

impl ProcessIdentity {
    /// Reads the facts about a process.
    ///
    /// # Errors
    /// The process may be gone.
    pub fn from_pid(pid: u32) -> io::Result<Self> {
        let text = crate::read_bytes(pid, "stat")?;
        Self::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let stat = Stat::from_read(text).ok()?;
        Some(Self {
            name: stat.comm,
            state: stat.state,
            parent: u32::try_from(stat.ppid).unwrap_or(0),
            threads: stat.num_threads,
            began: stat.starttime,
            stack: stat.startstack,
            minor_faults: stat.minflt,
            major_faults: stat.majflt,
            worked: stat.utime.saturating_add(stat.stime),
            is_killed: stat.flags & PF_SIGNALED != 0,
        })
    }

    /// Whether the process has ended, but is still listed because its parent has not waited for it.
    /// A process still runs if its first thread has ended and other threads go on.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }

    /// Whether the process's first thread has ended while other threads go on.
    #[must_use]
    pub fn has_lost_its_first_thread(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && !self.has_ended()
    }
}

/// Reads fields of a process's `/proc/PID/status`. A field that the kernel does not report is
/// empty.
#[must_use]
pub fn status<const N: usize>(pid: u32, fields: [&str; N]) -> [String; N] {
    let status = read(pid, "status").unwrap_or_default();
    fields.map(|field| {
        let value = status.lines().find_map(|line| line.strip_prefix(field));
        value.unwrap_or_default().trim().to_string()
    })
}

/// Returns the state of a process, as the kernel's letter; `None` if there is no such process.
#[must_use]
pub fn run_state(pid: u32) -> Option<char> {
    ProcessIdentity::from_pid(pid).ok().map(|found| found.state)
}

/// Returns the state of a thread, as the kernel's letter; `None` if there is no such thread.
/// Reading it is faster than reading the state of the process, for which the kernel visits all
/// threads.
#[must_use]
pub fn thread_state(pid: u32, tid: u32) -> Option<char> {
    let stat = read(pid, &format!("task/{tid}/stat")).ok()?;
    // The name in parentheses may have any letters.
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Returns when a process began, in ticks since the machine started. Returns `None` if there is no
/// such process, or if it has ended.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    let found = ProcessIdentity::from_pid(pid).ok()?;
    (!found.has_ended()).then_some(found.began)
}

/// Whether a process exists and has not ended yet.
#[must_use]
pub fn is_there(pid: u32) -> bool {
    ProcessIdentity::from_pid(pid).is_ok_and(|found| !found.has_ended())
}

/// Returns the kernel's name of a process.
#[must_use]
pub fn comm(pid: u32) -> String {
    match read(pid, "comm").unwrap_or_default().trim_end() {
        "" => "unknown".to_string(),
        name => name.to_string(),
    }
}

/// Reads the first `most` bytes of a process's present command line; `None` if it is empty, or if
/// the process is gone.
#[must_use]
pub fn title(pid: u32, most: usize) -> Option<String> {
    let mut bytes = crate::read_bytes(pid, "cmdline").ok()?;
    while matches!(bytes.last(), Some(0 | b' ')) {
        bytes.pop();
    }
    bytes.truncate(most);
    let words = bytes.split(|&byte| byte == 0);
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    Some(words.join(" ")).filter(|title| !title.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let rest = "S 7 1 1 0 -1 4194304 11 0 12 0 3 4 0 0 20 0 2 0 99 5 6 18446744073709551615 1 2 \
            140 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        for name in ["sh", "a b", "x) R 1 (", ""] {
            let read = ProcessIdentity::parse(format!("5 ({name}) {rest}\n").as_bytes()).unwrap();
            assert_eq!((read.name.as_str(), read.state), (name, 'S'));
            assert_eq!((read.parent, read.threads, read.began), (7, 2, 99));
            assert_eq!((read.minor_faults, read.major_faults), (11, 12));
            assert_eq!((read.worked, read.stack), (7, 140));
        }
        for wrong in ["", "5", "5 (a", "5 (a) S", "\u{0}"] {
            assert_eq!(ProcessIdentity::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn this_process_is_there() {
        let pid = std::process::id();
        assert!(is_there(pid) && start_ticks(pid).is_some() && !is_there(0));
        assert_ne!(comm(pid), "unknown");
        assert!(title(pid, 99).is_some() && title(0, 99).is_none());
        let [threads, nothing] = status(pid, ["Threads:", "NoSuchField:"]);
        assert!(threads.parse::<u32>().is_ok() && nothing.is_empty());
    }
}

//! What a process is: its name, its parent, what it does, and whether it has become another
//! program.

use std::io;

use procfs_core::FromRead;
use procfs_core::process::Stat;

use crate::read;

/// What the kernel says of a process in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// What the kernel calls it: 15 bytes at most.
    pub name: String,
    /// What it does, as the kernel's letter for it.
    pub state: char,
    /// Its parent.
    pub parent: u32,
    /// How many threads it has.
    pub threads: i64,
    /// When it began, in ticks since the machine did.
    pub began: u64,
    /// Where its stack begins, which each program that it becomes has somewhere else. 0 if this
    /// user may not know it.
    pub stack: u64,
    /// How many pages came without a disk.
    pub minor_faults: u64,
    /// How many pages came from a disk.
    pub major_faults: u64,
    /// How long it has worked, in ticks.
    pub worked: u64,
}

impl ProcessIdentity {
    /// Reads it of a process.
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
        })
    }

    /// Whether it has ended, although its parent has not asked how. A process whose first thread
    /// has ended goes on with the others.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }

    /// Whether its first thread has ended, and others go on.
    #[must_use]
    pub fn has_lost_its_first_thread(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && !self.has_ended()
    }
}

/// What the kernel says of a process under these fields of its `status`; empty where it says
/// nothing.
#[must_use]
pub fn status<const N: usize>(pid: u32, fields: [&str; N]) -> [String; N] {
    let status = read(pid, "status").unwrap_or_default();
    fields.map(|field| {
        let value = status.lines().find_map(|line| line.strip_prefix(field));
        value.unwrap_or_default().trim().to_string()
    })
}

/// What a process does, as the kernel's letter for it; `None` if there is no such process.
#[must_use]
pub fn run_state(pid: u32) -> Option<char> {
    ProcessIdentity::from_pid(pid).ok().map(|found| found.state)
}

/// What a thread of a process does, as the kernel's letter for it; `None` if there is none. Asking
/// for a process instead would make the kernel look at all of its threads.
#[must_use]
pub fn thread_state(pid: u32, tid: u32) -> Option<char> {
    let stat = read(pid, &format!("task/{tid}/stat")).ok()?;
    // The name in parentheses may have any letters.
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// When a process began, in ticks since the machine did; `None` if there is none, or if it has
/// ended.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    let found = ProcessIdentity::from_pid(pid).ok()?;
    (!found.has_ended()).then_some(found.began)
}

/// Whether there is such a process, and it has not ended yet.
#[must_use]
pub fn is_there(pid: u32) -> bool {
    ProcessIdentity::from_pid(pid).is_ok_and(|found| !found.has_ended())
}

/// What the kernel calls a process.
#[must_use]
pub fn comm(pid: u32) -> String {
    match read(pid, "comm").unwrap_or_default().trim_end() {
        "" => "unknown".to_string(),
        name => name.to_string(),
    }
}

/// The command line of a process, as it is now, up to so many bytes; `None` if it has none, or is
/// gone.
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

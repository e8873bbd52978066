//! A process that handed over its ledger to the keeper.

use std::os::fd::OwnedFd;

use heapprof_files::FileOwner;
use heapprof_live::{LedgerProcessState, SharedLedger};
use heapprof_process::{CgroupFolder, ProcessIdentity, is_there, status};
use rustix::process::Pid;

use super::callers::number_of;
use crate::audit::is_readable;
use crate::root_folder::RootFolder;

/// A process that handed over its ledger file to the keeper.
pub(super) struct LedgerProcess {
    pub(super) ledger_file: SharedLedger,
    pub(super) pid: Pid,
    pub(super) owner: FileOwner,
    /// The command line that the process was started with. It can't be read any more once the
    /// process has ended.
    pub(super) command_line: Vec<u8>,
    /// A descriptor that becomes readable once the process has ended; `None` if the kernel has no
    /// such descriptors.
    pub(super) end_fd: Option<OwnedFd>,
    pub(super) group: Option<CgroupFolder>,
    /// The root folder of the process, if it is not heapprof's.
    pub(super) root: Option<RootFolder>,
    /// Whether the program was executed in a root folder from which it can't write its profile
    /// itself, however it ends.
    pub(super) is_confined: bool,
    /// Whether the process announced an exec, but still was the same program some time later.
    pub(super) stays: bool,
}

impl LedgerProcess {
    /// Returns the process id as a number.
    pub(super) fn number(&self) -> u32 {
        number_of(self.pid)
    }

    /// Checks whether a process that announced an exec is still the same program.
    pub(super) fn check_stays(&mut self) {
        if self.stays || !matches!(self.ledger_file.state(), Ok(LedgerProcessState::BeforeExec)) {
            return;
        }
        let Ok(found) = rustix::fs::fstat(self.ledger_file.file()) else {
            return;
        };
        let maps = std::fs::read(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        let inode = found.st_ino.to_string();
        self.stays = maps.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(4);
            fields.next() == Some(&*inode) && fields.next() == Some("/memfd:heapprof")
        });
    }

    /// Whether the process was killed and has not ended yet.
    pub(super) fn is_dying(&self) -> bool {
        const KILL_SIGNAL_BIT: u64 = 1 << (libc::SIGKILL - 1);
        let pending = status(self.number(), ["SigPnd:", "ShdPnd:"]);
        let number = |text: &String| u64::from_str_radix(text, 16).unwrap_or(0);
        let is_pending = |text: &String| number(text) & KILL_SIGNAL_BIT != 0;
        // The kernel clears the pending signal before it takes the memory back.
        let is_killed = || ProcessIdentity::from_pid(self.number()).is_ok_and(|of| of.is_killed);
        !self.has_ended() && (pending.iter().any(is_pending) || is_killed())
    }

    /// Whether the process has ended.
    pub(super) fn has_ended(&self) -> bool {
        match &self.end_fd {
            Some(ends) => is_readable(ends),
            None => !is_there(self.number()),
        }
    }
}

//! Remembers the rights of each process, from the opening of its ledger to its close.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heapprof_files::FileOwner;
use heapprof_process::ProcessIdentity;

use super::ProcessRights;

/// Maximum number of processes whose rights are remembered.
const MAX_PROCESSES: usize = 1 << 16;

/// The rights of processes, by process id. All clones share their entries.
#[derive(Clone, Debug, Default)]
pub struct RightsLedger(Arc<Mutex<RightsEntries>>);

#[derive(Debug, Default)]
struct RightsEntries {
    of_process: HashMap<u32, RightsEntry>,
    /// Whether an entry could not be remembered, because there was no room.
    is_full: bool,
}

/// The known rights of a process.
#[derive(Clone, Copy, Debug)]
struct RightsEntry {
    /// The least rights that the process was observed to have.
    seen: ProcessRights,
    /// Whether the rights of the process can't change any more.
    is_final: bool,
    /// Whether the process's ledger is closed.
    is_closed: bool,
    /// Whether the kernel still showed the process when the ledger was closed.
    is_known: bool,
    /// When the process began. The time distinguishes the process from a later process with the
    /// same number.
    began: Option<u64>,
}

impl RightsEntry {
    /// Makes the entry of a process that was not observed yet.
    fn new() -> Self {
        Self {
            seen: ProcessRights::us(),
            is_final: false,
            is_closed: false,
            is_known: true,
            began: None,
        }
    }

    fn lower(&mut self, rights: ProcessRights) {
        self.seen = self.seen.with(rights);
    }

    /// Lowers the rights to the rights that the kernel shows now. Returns whether the kernel still
    /// has the process.
    fn observe(&mut self, pid: u32) -> bool {
        let Some(found) = ProcessRights::observe(pid) else {
            return false;
        };
        let began = began(pid);
        if began.is_none() || began != self.began {
            return false;
        }
        self.lower(found.rights);
        self.is_final |= found.is_final;
        true
    }

    /// Returns the least rights that the process may have had, if the kernel no longer has the
    /// process.
    fn least_of_gone(&self) -> ProcessRights {
        match self.is_final || !can_change() {
            true => self.seen,
            false => ProcessRights::Public,
        }
    }
}

/// Returns when a process began. The process may have ended, but must not be reaped.
fn began(pid: u32) -> Option<u64> {
    ProcessIdentity::from_pid(pid).ok().map(|found| found.began)
}

/// Whether processes that this process started may have become other users unobserved. Only root's
/// processes may. Any other process keeps its user, and may read that user's files anyway.
fn can_change() -> bool {
    super::is_root()
}

impl RightsLedger {
    fn lock_entries(&self) -> MutexGuard<'_, RightsEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a process opens its ledger. `owner` is the user that the process's socket shows.
    pub fn open(&self, pid: u32, owner: FileOwner) {
        let mut entries = self.lock_entries();
        // Another process may have had this number before.
        if entries
            .of_process
            .get(&pid)
            .is_some_and(|entry| entry.is_closed)
        {
            entries.of_process.remove(&pid);
        }
        entries.change(pid, |entry| {
            entry.began = entry.began.or_else(|| began(pid));
            entry.lower(ProcessRights::User(owner));
            entry.observe(pid);
        });
    }

    /// Notes a report that a process lowers its rights to `rights`. `is_final` says whether the
    /// process can't get other rights afterwards.
    pub fn lower(&self, pid: u32, rights: ProcessRights, is_final: bool) {
        self.lock_entries().change(pid, |entry| {
            if !entry.is_closed {
                entry.began = entry.began.or_else(|| began(pid));
                entry.lower(rights);
                entry.observe(pid);
                entry.is_final |= is_final;
            }
        });
    }

    /// Observes a process for the last time, before it is reaped if possible, and closes its
    /// ledger.
    pub fn close(&self, pid: u32) {
        self.lock_entries().change(pid, |entry| {
            if entry.is_closed {
                return;
            }
            entry.is_closed = true;
            entry.is_known = entry.observe(pid);
        });
    }

    /// Closes the ledgers of all processes that have ended and were not reaped yet.
    pub fn close_ended(&self) {
        let has_ended =
            |pid: u32| ProcessIdentity::from_pid(pid).is_ok_and(|found| found.has_ended());
        let open: Vec<u32> = {
            let entries = self.lock_entries();
            let open = entries
                .of_process
                .iter()
                .filter(|(_, entry)| !entry.is_closed);
            open.map(|(pid, _)| *pid).collect()
        };
        for pid in open.into_iter().filter(|&pid| has_ended(pid)) {
            self.close(pid);
        }
    }

    /// Returns the least rights that a process may have had until now.
    pub fn least(&self, pid: u32) -> ProcessRights {
        let mut entries = self.lock_entries();
        let Some(entry) = entries.of_process.get_mut(&pid) else {
            return RightsEntry::new().least_of_gone();
        };
        let is_known = match entry.is_closed {
            true => entry.is_known,
            false => entry.observe(pid),
        };
        match is_known {
            true => entry.seen,
            false => entry.least_of_gone(),
        }
    }

    /// Returns the least rights that a process was observed to have. They are enough for a file
    /// that the process wrote itself, because the kernel shows the file's writer.
    pub fn least_observed(&self, pid: u32) -> ProcessRights {
        let entries = self.lock_entries();
        match entries.of_process.get(&pid) {
            Some(entry) => entry.seen,
            None if entries.is_full && can_change() => ProcessRights::Public,
            None => ProcessRights::us(),
        }
    }
}

impl RightsEntries {
    fn change(&mut self, pid: u32, change: impl FnOnce(&mut RightsEntry)) {
        if !self.of_process.contains_key(&pid) && self.of_process.len() >= MAX_PROCESSES {
            // Of closed entries, only those with lowered rights are needed.
            self.of_process
                .retain(|_, entry| !entry.is_closed || !entry.seen.are_ours());
            if self.of_process.len() >= MAX_PROCESSES {
                self.is_full = true;
                return;
            }
        }
        change(self.of_process.entry(pid).or_insert_with(RightsEntry::new));
    }
}

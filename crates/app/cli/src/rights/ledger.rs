//! What is known of the rights of each process, from the beginning of its books to their end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heapprof_process::ProcessIdentity;

use super::ProcessRights;
use crate::place::FileOwner;

/// The maximum number of processes of which something is remembered.
const MAX_PROCESSES: usize = 1 << 16;

/// The rights of processes by their numbers. Its copies are the same ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct RightsLedger(Arc<Mutex<RightsEntries>>);

#[derive(Debug, Default)]
struct RightsEntries {
    of_process: HashMap<u32, RightsEntry>,
    /// Whether something was not remembered, because there was no room.
    is_full: bool,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug)]
struct RightsEntry {
    /// The least rights that it was seen to have.
    seen: ProcessRights,
    /// Whether it can have no other rights any more.
    is_final: bool,
    /// Whether its books are closed, and whether the kernel still knew the process then.
    is_closed: bool,
    is_known: bool,
    /// When it began, so that nobody is taken for it who has its number.
    began: Option<u64>,
}

impl RightsEntry {
    /// A process of which nothing was seen.
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

    /// Asks the kernel. Returns whether it knows.
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

    /// The least rights that the process may have had, if the kernel knows nothing of it any more.
    fn least_of_gone(&self) -> ProcessRights {
        match self.is_final || !can_change() {
            true => self.seen,
            false => ProcessRights::Public,
        }
    }
}

/// When a process began, also one that has ended and was not reaped yet.
fn began(pid: u32) -> Option<u64> {
    ProcessIdentity::from_pid(pid).ok().map(|found| found.began)
}

/// Whether processes that this one has started may have become other users unseen. Whoever is not
/// root stays the same user, whose files are no secret to their own processes.
fn can_change() -> bool {
    super::is_root()
}

impl RightsLedger {
    fn lock_entries(&self) -> MutexGuard<'_, RightsEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process opens its books, and this owner was at the other end of its socket.
    pub(crate) fn open(&self, pid: u32, owner: FileOwner) {
        let mut entries = self.lock_entries();
        // Its number may have been that of another process.
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

    /// Somebody says that the rights of a process are lowered to these, and whether that is for
    /// good.
    pub(crate) fn lower(&self, pid: u32, rights: ProcessRights, is_final: bool) {
        self.lock_entries().change(pid, |entry| {
            if !entry.is_closed {
                entry.began = entry.began.or_else(|| began(pid));
                entry.lower(rights);
                entry.observe(pid);
                entry.is_final |= is_final;
            }
        });
    }

    /// A process is seen for the last time, before it is reaped if that can be. Its books are
    /// closed.
    pub(crate) fn close(&self, pid: u32) {
        self.lock_entries().change(pid, |entry| {
            if entry.is_closed {
                return;
            }
            entry.is_closed = true;
            entry.is_known = entry.observe(pid);
        });
    }

    /// Closes the books of all processes that have ended and were not reaped yet.
    pub(crate) fn close_ended(&self) {
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

    /// The least rights that a process may have had until now.
    pub(crate) fn least(&self, pid: u32) -> ProcessRights {
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

    /// The least rights that a process was seen to have: for what it wrote itself, of which the
    /// kernel says who wrote it.
    pub(crate) fn least_observed(&self, pid: u32) -> ProcessRights {
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
            // Of those that are gone, only those that were lowered are of interest.
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

//! Unusual ends of recorded processes: which processes did not write their last profile, and why a
//! killed process may have left none.

use crate::executables::OpenExecutables;
use crate::hooked_allocators::HookedAllocatorReports;
use crate::kept_ledger::ProcessDeath;
use crate::peak_divisions::PeakDivisions;
use crate::profile_entries::{PrivateLedger, UnrecordedProcess};
use crate::residents::ResidentHistories;

/// The processes that ended in an unusual way.
#[derive(Default)]
pub struct ProcessEndings {
    /// The processes whose profiles were made from their ledgers.
    pub died: Vec<ProcessDeath>,
    /// The processes whose ledger files could not be read. There is a note about each of them.
    pub unread: Vec<u32>,
    /// The processes whose profiles could not be written. There is a note about each of them.
    pub unwritten: Vec<u32>,
    /// The processes whose ledgers were in private memory, and why.
    pub private: Vec<PrivateLedger>,
    /// The processes that were not recorded, although the library was loaded in them.
    pub unrecorded: Vec<UnrecordedProcess>,
    /// The resident memory of the program and of its descendants.
    pub(crate) residents: ResidentHistories,
    /// The allocators inside files that the processes hooked.
    pub(crate) hooked: HookedAllocatorReports,
    /// How the memory of these processes was divided at its peak.
    pub(crate) divisions: PeakDivisions,
    /// The executables that the processes ran.
    pub(crate) executables: OpenExecutables,
}

impl ProcessEndings {
    /// Returns why the ledger of a process was in private memory. Returns `None` if the ledger was
    /// not, or if the process belongs to another user.
    pub fn why_private(&self, process: u32) -> Option<&str> {
        let is_it = |private: &&PrivateLedger| private.process == process && private.owner.is_us();
        let private = self.private.iter().find(is_it);
        private.map(|private| private.why.as_str())
    }

    /// Whether a process ended without reporting, so that its profile was made from its ledger.
    pub fn has_died(&self, process: u32) -> bool {
        self.died.iter().any(|died| died.process == process)
    }
}

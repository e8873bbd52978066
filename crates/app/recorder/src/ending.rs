//! How the processes of a recording ended that did not write their last profile, and why a killed
//! process may have left none.

use crate::executables::OpenExecutables;
use crate::kept_ledger::ProcessDeath;
use crate::profile_entries::{PrivateLedger, UnrecordedProcess};
use crate::residents::ResidentHistories;

/// The processes that ended in an unusual way, and what is known of all of them.
#[derive(Default)]
pub struct ProcessEndings {
    /// The processes whose profile was made from the ledger that they kept.
    pub died: Vec<ProcessDeath>,
    /// The processes whose files could not be read; there was a note about each.
    pub unread: Vec<u32>,
    /// The processes whose profiles could not be written; there was a note about each.
    pub unwritten: Vec<u32>,
    /// The processes whose ledgers were in private memory, and why.
    pub private: Vec<PrivateLedger>,
    /// The processes that were not recorded, although they had the library.
    pub unrecorded: Vec<UnrecordedProcess>,
    /// The resident memory of the program and of its descendants.
    pub(crate) residents: ResidentHistories,
    /// The executables that the processes ran.
    pub(crate) executables: OpenExecutables,
}

impl ProcessEndings {
    /// Returns why the ledger of this user's process was in private memory, if it was.
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

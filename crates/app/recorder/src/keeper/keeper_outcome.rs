//! The results of the ledger keeper: the profiles that it wrote, and the profiles that it could not
//! write.

use std::collections::HashSet;

use crate::executables::OpenExecutables;
use crate::kept_ledger::ProcessDeath;
use crate::log::EventLogEnd;
use crate::note::RecordingNote;
use crate::profile_entries::{SmallChild, WrittenProfile};

/// The results of the ledger keeper.
#[derive(Default)]
pub(crate) struct KeeperOutcome {
    /// The profiles that the keeper wrote.
    pub(crate) written: Vec<WrittenProfile>,
    /// The processes whose ledger files could not be read.
    pub(crate) unread: Vec<u32>,
    /// The processes whose profiles neither their users nor `record` could write.
    pub(crate) unwritten: Vec<u32>,
    /// The small children that got no profile.
    pub(crate) small: Vec<SmallChild>,
    /// Processes whose user may not write their profile. The processes' own reports of this failure
    /// are left out.
    pub(crate) settled: HashSet<u32>,
    /// The processes that ended without reporting, and how each of them ended.
    pub(crate) died: Vec<ProcessDeath>,
    /// Number of children whose audits were written.
    pub(crate) audited: usize,
    /// The end of the log, if one was written.
    pub(crate) log: Option<EventLogEnd>,
    /// Notes about failures.
    pub(crate) notes: Vec<RecordingNote>,
    /// The executables that the processes ran.
    pub(crate) executables: OpenExecutables,
}

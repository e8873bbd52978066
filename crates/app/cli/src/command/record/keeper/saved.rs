//! The results of the ledger keeper: what it has written, and what it could not write.

use std::collections::HashSet;

use heapprof_recorder::log::EventLogEnd;

use super::super::executables::OpenExecutables;
use super::super::kept::ProcessDeath;
use super::super::written::{SmallChild, WrittenProfile};

/// The results of the ledger keeper.
#[derive(Default)]
pub(in crate::command::record) struct KeeperOutcome {
    /// The profiles that the keeper wrote.
    pub(in crate::command::record) written: Vec<WrittenProfile>,
    /// The processes whose files could not be read.
    pub(in crate::command::record) unread: Vec<u32>,
    /// The processes whose users may not write their profiles, which `record` could not write
    /// either.
    pub(in crate::command::record) unwritten: Vec<u32>,
    /// The small children that got no profile.
    pub(in crate::command::record) small: Vec<SmallChild>,
    /// The processes whose users may not write their profiles, about which nothing else is
    /// reported.
    pub(in crate::command::record) settled: HashSet<u32>,
    /// The processes that ended without reporting, and how each of them ended.
    pub(in crate::command::record) died: Vec<ProcessDeath>,
    /// Number of children whose audits were written.
    pub(in crate::command::record) audited: usize,
    /// The end of the log, if one was written.
    pub(in crate::command::record) log: Option<EventLogEnd>,
    /// Messages about what could not be done.
    pub(in crate::command::record) notes: Vec<String>,
    /// The executables that the processes ran.
    pub(in crate::command::record) executables: OpenExecutables,
}

//! What a keeper has written, and what it could not write.

use std::collections::HashSet;

use super::super::executables::OpenExecutables;
use super::super::kept::ProcessDeath;
use super::super::written::{SmallChild, WrittenProfile};

/// What the keeper has written.
#[derive(Default)]
pub(in crate::command::record) struct KeeperOutcome {
    /// The profiles.
    pub(in crate::command::record) written: Vec<WrittenProfile>,
    /// The processes whose files could not be read.
    pub(in crate::command::record) unread: Vec<u32>,
    /// The processes whose users may not write their profiles, which `record` could not write
    /// either.
    pub(in crate::command::record) unwritten: Vec<u32>,
    /// The children that were left out.
    pub(in crate::command::record) small: Vec<SmallChild>,
    /// The processes whose users may not write their profiles, of which nothing else is to be said.
    pub(in crate::command::record) settled: HashSet<u32>,
    /// How each of their processes ended.
    pub(in crate::command::record) died: Vec<ProcessDeath>,
    /// How many children were audited.
    pub(in crate::command::record) audited: usize,
    /// What could not be done, as messages.
    pub(in crate::command::record) notes: Vec<String>,
    /// What the processes ran.
    pub(in crate::command::record) executables: OpenExecutables,
}

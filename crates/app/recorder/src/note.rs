//! The failures of a recording, as values that a front end puts into words.

use std::fmt;
use std::path::PathBuf;

use crate::path_text::shown_path;

/// A note about something that a recording could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordingNote {
    /// Calls of other users' processes were refused: the processes are not known to belong to the
    /// recording, or too many called at once.
    RefusedCalls(u64),
    /// The file that a process handed over could not be received.
    FileNotTaken,
    /// There were too many processes to keep the ledgers of all of them.
    TooManyProcesses,
    /// The log has no events, for this reason.
    NoLogEvents(String),
    /// Too many programs became other programs without reporting.
    TooManyReplacedPrograms,
    /// It took too long to read the ledgers of ended processes.
    ReadTimeOver,
    /// The profile at this path is incomplete, because the ledger was full.
    PartialProfile(PathBuf),
    /// A profile is lost, because there was no place for it.
    NoPlace(NoPlaceError),
    /// The ledger of an ended process could not be read.
    UnreadLedger {
        /// Process id of the process.
        process: u32,
        /// The reason why the ledger could not be read.
        why: String,
    },
    /// The audit of forks left something out.
    AuditLimit {
        /// The kind of entry that was left out.
        what: AuditLimit,
        /// Number of children or loads that were left out.
        count: usize,
        /// Maximum number of children or loads in the audit.
        limit: usize,
    },
    /// The audit of a child could not be written, for this reason.
    AuditNotWritten(String),
}

/// The kind of entry whose number an audit of forks limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditLimit {
    /// Children that were forked.
    Children,
    /// Files that were loaded.
    Loads,
}

/// The error for a profile that neither the process's user nor `record` can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPlaceError {
    /// Process id of the process.
    pub process: u32,
    /// The user that the process ran as.
    pub user: u32,
    /// The folder in which the user may not write.
    pub folder: PathBuf,
    /// Why `record` makes no file of its own.
    pub why: String,
}

impl fmt::Display for NoPlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            process,
            user,
            folder,
            why,
        } = self;
        write!(
            f,
            "the profile of process {process} is lost: it ran as user {user}, who may not write in \
             {}, and record did not write a file of its own ({why})",
            shown_path(folder)
        )
    }
}

impl std::error::Error for NoPlaceError {}

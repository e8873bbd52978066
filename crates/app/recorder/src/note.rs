//! What the keeper of a recording could not do, as values that a front end puts into words.

use std::fmt;
use std::path::PathBuf;

use crate::path_text::shown_path;

/// A note about what a recording could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordingNote {
    /// Calls of other users' processes were refused: they are not known to belong to the recording,
    /// or were too many at once.
    RefusedCalls(u64),
    /// The file of a process could not be taken.
    FileNotTaken,
    /// There were too many processes to keep the ledgers of all of them.
    TooManyProcesses,
    /// The log has no events, for this reason.
    NoLogEvents(String),
    /// Too many programs became others without reporting.
    TooManyReplacedPrograms,
    /// It took too long to read the ledgers of ended processes.
    ReadTimeOver,
    /// This profile is not of all that was recorded, because there was no room for the rest.
    PartialProfile(PathBuf),
    /// A profile is lost, because there was no place for it.
    NoPlace(NoPlaceError),
    /// The ledger of an ended process could not be read.
    UnreadLedger {
        /// The process.
        process: u32,
        /// The reason.
        why: String,
    },
    /// The audit of forks left something out.
    AuditLimit {
        /// What was left out.
        what: AuditLimit,
        /// How many of them were left out.
        count: usize,
        /// How many of them are noted.
        limit: usize,
    },
    /// The audit of a child could not be written, for this reason.
    AuditNotWritten(String),
}

/// What an audit of forks notes up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditLimit {
    /// Children that were forked.
    Children,
    /// Files that were loaded.
    Loads,
}

/// The error if a process's user may not write its profile, and `record` has no place for a file of
/// its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPlaceError {
    /// The process.
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
             {}, and record makes no file of its own ({why})",
            shown_path(folder)
        )
    }
}

impl std::error::Error for NoPlaceError {}

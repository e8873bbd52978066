//! The options and the result of an attachment.

use std::fs::File;
use std::time::Duration;

/// Options of the recording in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Mean bytes between samples; `None` if every allocation is recorded.
    pub period: Option<u64>,
    /// The frames that are kept of interpreters' stacks: 1 their own, 2 the native ones, 3 both.
    pub frames: u32,
    /// Whether the share of each thread is kept.
    pub by_thread: bool,
    /// Whether each event goes into a log.
    pub logs: bool,
}

/// The result of an attachment.
#[derive(Debug)]
pub struct AttachOutcome {
    /// The file in which the program keeps its ledger from now on; `None` if it could make none.
    pub shared_ledger: Option<File>,
    /// Number of slots of the program that lead to the library.
    pub slots: u32,
    /// How long the thread was suspended that loaded the library.
    pub suspended_for: Duration,
    /// The number of the process that had attached before, and has ended without leaving.
    pub left_by: Option<u32>,
}

//! What is asked of an attachment, and what became of it.

use std::fs::File;
use std::time::Duration;

/// What is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Mean bytes between samples; `None` if every allocation is recorded.
    pub period: Option<u64>,
    /// Which frames are kept of interpreters: 1 theirs, 2 the native ones, 3 both.
    pub frames: u32,
    /// Whether each thread's share is kept.
    pub by_thread: bool,
    /// Whether each event goes into a log.
    pub logs: bool,
}

/// What became of an attachment.
#[derive(Debug)]
pub struct AttachOutcome {
    /// The file in which the program keeps its books from now on; `None` if it could make none.
    pub shared_ledger: Option<File>,
    /// How many slots of the program lead to the library.
    pub slots: u32,
    /// How long the thread was held that did it.
    pub suspended_for: Duration,
    /// The process that had attached before, and has ended without leaving.
    pub left_by: Option<u32>,
}

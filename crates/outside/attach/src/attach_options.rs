//! The options and the result of an attachment.

use std::fs::File;
use std::time::Duration;

/// Options of the recording in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Mean bytes between samples; `None` if every allocation is recorded.
    pub period: Option<u64>,
    /// The frames that are recorded of a stack in an interpreter: 1 for the interpreter's frames, 2
    /// for native frames, 3 for both.
    pub frames: u32,
    /// Whether memory is counted for each thread separately.
    pub by_thread: bool,
    /// Whether each event is written to a log.
    pub logs: bool,
    /// Whether a filter of system calls that can't be read is taken to allow what heapprof needs.
    pub trusts_filter: bool,
}

/// The result of an attachment.
#[derive(Debug)]
pub struct AttachOutcome {
    /// The file to which the program writes its ledger from now on; `None` if the program could not
    /// make one.
    pub shared_ledger: Option<File>,
    /// Number of the program's slots (pointers to functions of malloc) that now lead to the
    /// library.
    pub slots: u32,
    /// How long the thread that loaded the library was suspended.
    pub suspended_for: Duration,
    /// The process ID of the previous attacher, if it ended without detaching from the program.
    pub left_by: Option<u32>,
}

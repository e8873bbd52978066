//! The options and the result of an attachment.

use std::fs::File;
use std::time::Duration;

use heapprof_allocators::AllocatorChoice;

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
    /// The allocators inside the program and its libraries that are recorded.
    pub allocators: AllocatorChoice,
    /// Whether a filter of system calls that can't be read is taken to allow what heapprof needs.
    pub trusts_filter: bool,
}

/// The result of an attachment.
#[derive(Debug)]
pub struct AttachOutcome {
    /// The file to which the program writes its ledger from now on; `None` if the program could not
    /// make one.
    pub shared_ledger: Option<File>,
    /// Why calls of malloc are reached through slots (pointers to its functions), so that those
    /// through copied pointers are missed; `None` if the functions have jumps at their entries.
    pub slots_reason: Option<SlotsReason>,
    /// The allocators inside the program and its libraries that were found, as comments of a
    /// profile.
    pub allocators: Vec<String>,
    /// How long the thread that loaded the library was suspended.
    pub suspended_for: Duration,
    /// How long all threads were stopped.
    pub stopped_for: Duration,
    /// The process ID of the previous attacher, if it ended without detaching from the program.
    pub left_by: Option<u32>,
}

/// Why calls of malloc are reached through slots, and not by jumps at the functions' entries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotsReason {
    /// Another thread of the program searched its objects.
    #[error("a thread of it is loading a library")]
    Busy,
    /// A function of malloc's family can't have a jump.
    #[error("a function of its malloc can't have a jump")]
    NoJump,
    /// The jumps could not be written.
    #[error("{0}")]
    NotWritten(String),
}

/// The result of detaching.
#[derive(Debug)]
pub struct DetachOutcome {
    /// Number of functions and of slots that are as they were before.
    pub restored: u32,
    /// The allocators inside the program and its libraries that were found, as comments of a
    /// profile.
    pub allocators: Vec<String>,
}

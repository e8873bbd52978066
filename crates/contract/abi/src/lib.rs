//! The contract between the collector inside a program and the tools outside.
//!
//! * The [ledger](LedgerHeader): the layout of the engine's tables in memory, and in the file that
//!   outlives a process. Readers outside the program use it to find the tables.
//! * The numbers by which the ledger refers to its entries, such as [`StackNumber`].
//! * The [`log`] of events, whose address is in the ledger.
//! * The [`letter`] by which `heapprof attach` sends requests to the library inside a program, and
//!   the [jumps](entry_patch) that it writes there.
//! * The [`environment`] variables.
//!
//! This crate must not depend on the implementation of either side.
#![no_std]
#![forbid(unsafe_code)]

pub mod entry_patch;
pub mod environment;
mod frame_address;
mod frame_word;
mod ledger;
pub mod letter;
pub mod log;
mod number;

pub use frame_address::FrameAddress;
pub use frame_word::FrameWord;
pub use ledger::*;
pub use number::{FrameNumber, MappingGeneration, RecordingEpoch, StackNumber, ThreadNumber};

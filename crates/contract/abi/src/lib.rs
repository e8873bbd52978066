//! What the collector inside a program and the tools outside agree on.
//!
//! * The [ledger](LedgerHeader): how the engine's tables lie in memory, and in the file that
//!   outlives a process. Readers outside the program find the tables by it.
//! * The numbers by which the ledger names things, such as [`StackNumber`].
//! * The [`log`] of events, which the ledger leads to.
//! * The [`letter`] by which `heapprof attach` asks a program that has loaded the library.
//! * The [`environment`] variables.
//!
//! This crate must never know how either side works.
#![no_std]
#![forbid(unsafe_code)]

pub mod environment;
mod frame_address;
mod ledger;
pub mod letter;
pub mod log;
mod number;

pub use frame_address::FrameAddress;
pub use ledger::*;
pub use number::{FrameNumber, MappingGeneration, RecordingEpoch, StackNumber, ThreadNumber};

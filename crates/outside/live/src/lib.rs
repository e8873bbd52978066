//! Reads the ledger of a recording from outside, and makes a profile of it.
//!
//! The collector's ledger is in the recorded program's memory (`heapprof-abi` defines the layout).
//! A [`LiveProcess`] reads it through `/proc/PID/mem` while the program runs: no thread is stopped,
//! no signal is sent, and the program does no work for it. A [`CoreLedger`] reads the ledger of an
//! ended program from its core file. A [`SharedLedger`] reads it from a memory file that the
//! program has handed over before it was killed.
//!
//! The data belongs to another program and is not trusted. Every address, number and length is
//! checked, and every loop and the memory for reading are limited. A program that writes into its
//! ledger can only cause a wrong profile or an error.
//!
//! This crate must not depend on reports, SQLite or the command line.
#![forbid(unsafe_code)]

mod blocks;
mod bounded_reads;
mod core;
mod error;
#[cfg(test)]
mod fixture;
mod ledger;
mod ledger_copy;
mod log;
mod process;
mod profile;
mod ring;
mod shared_ledger;
mod stacks;
mod sums;
mod writer;

pub use self::blocks::{BlockInUse, BlocksInUse};
pub use self::core::CoreLedger;
pub use self::error::LiveError;
pub use self::ledger_copy::LedgerSnapshot;
pub use self::log::LogSource;
pub use self::process::{LiveProcess, LiveProcessSummary, recorded_processes};
pub use self::ring::{BlockEvent, LiveLogReader};
pub use self::shared_ledger::{LedgerProcessState, SharedLedger, SharedLedgerProfile};
pub use self::writer::LiveProfileRow;
pub use heapprof_abi::{StackNumber, ThreadNumber};

//! Reads the books of a recording from outside, and makes a profile of them.
//!
//! The collector keeps its books in the recorded program's memory (`heapprof-abi` says how they
//! lie there). A [`LiveProcess`] reads them through `/proc/PID/mem` while the program runs: nobody
//! is stopped, no signal is sent, and the program does nothing for it. A [`CoreLedger`] reads them
//! from the memory that a core file keeps of a program that ended, and [`SharedLedger`] from a file
//! in memory that the program has handed over before it was killed.
//!
//! What is read is data of somebody else's: every address, number and length is checked, every loop
//! has a bound, and so has the memory that a reading takes. A program that writes into its books
//! gets a wrong profile or an error, and no more.
//!
//! It must never know reports, SQLite or the command line.
#![forbid(unsafe_code)]

mod blocks;
mod core;
mod error;
mod frozen;
mod ledger;
mod log;
mod process;
mod profile;
mod read;
mod ring;
mod shared_ledger;
mod stacks;
mod sums;
mod writer;

pub use self::blocks::{BlockInUse, BlocksInUse};
pub use self::core::CoreLedger;
pub use self::error::LiveError;
pub use self::frozen::LedgerSnapshot;
pub use self::log::LogSource;
pub use self::process::{LiveProcess, LiveProcessSummary, recorded_processes};
pub use self::ring::{BlockEvent, LiveLogReader};
pub use self::shared_ledger::{LedgerProcessState, SharedLedger, SharedLedgerProfile};
pub use self::writer::LiveProfileRow;

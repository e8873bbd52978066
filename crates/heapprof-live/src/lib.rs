//! Reads the books of a recording from outside, and makes a profile of them.
//!
//! The collector keeps its books in the recorded program's memory (`heapprof-books` says how they
//! lie there). A [`Process`] reads them through `/proc/PID/mem` while the program runs: nobody is
//! stopped, no signal is sent, and the program does nothing for it. A [`Core`] reads them from the
//! memory that a core file keeps of a program that ended, and [`Kept`] from a file in memory that
//! the program has handed over before it was killed.
//!
//! What is read is data of somebody else's: every address, number and length is checked, every loop
//! has a bound, and so has the memory that a reading takes. A program that writes into its books
//! gets a wrong profile or an error, and no more.
//!
//! It must never know reports, SQLite or the command line.
#![forbid(unsafe_code)]

mod blocks;
mod books;
mod core;
mod error;
mod frozen;
mod kept;
mod log;
mod process;
mod profile;
mod read;
mod ring;
mod stacks;
mod sums;
mod writer;

pub use self::blocks::{Block, Blocks};
pub use self::core::Core;
pub use self::error::Error;
pub use self::frozen::Frozen;
pub use self::kept::{Kept, Left, State};
pub use self::log::Logged;
pub use self::process::{Found, Process, recorded};
pub use self::ring::{Event, Log};
pub use self::writer::Row;

//! Where a log and what it names are read: in the file that the program keeps its books in, or in
//! its memory.

use heapprof_profile::Profile;

use crate::error::LiveError;
use crate::process::LiveProcess;
use crate::profile::{stacks, threads};
use crate::ring::LiveLogReader;
use crate::shared_ledger::{self, SharedLedger};

/// A recorded program that has a log.
#[derive(Debug)]
pub enum LogSource {
    /// What is read outlives it.
    SharedLedger(SharedLedger),
    /// It is read as long as it is there.
    Process(Box<LiveProcess>),
}

impl LogSource {
    /// The log of the recording, from its first event on; `None` if there is none.
    ///
    /// # Errors
    /// The books may be damaged, or the process be gone.
    pub fn log(&self) -> Result<Option<LiveLogReader>, LiveError> {
        match self {
            Self::SharedLedger(kept) => kept.log(),
            Self::Process(process) => process.log(),
        }
    }

    /// The stacks from this number on, as samples of a profile: the second value of each is the
    /// stack's number. Also returns which number comes next.
    ///
    /// # Errors
    /// Those of [`log`](Self::log).
    pub fn stacks(&self, first: u32) -> Result<(Profile, u32), LiveError> {
        match self {
            Self::SharedLedger(kept) => {
                kept.with_ledger(|_, reader, books| stacks(reader, books, &[], first))
            }
            Self::Process(process) => {
                let code = process.code();
                process.with_ledger(|reader, books| stacks(reader, books, &code, first))
            }
        }
    }

    /// The kernel's number of each thread that has one here. Number 1 is the first.
    ///
    /// # Errors
    /// Those of [`log`](Self::log).
    pub fn threads(&self) -> Result<Vec<Option<u32>>, LiveError> {
        match self {
            Self::SharedLedger(kept) => kept.with_ledger(|_, reader, books| threads(reader, books)),
            Self::Process(process) => process.with_ledger(threads),
        }
    }

    /// What the program is called.
    ///
    /// # Errors
    /// Those of [`log`](Self::log).
    pub fn program(&self) -> Result<String, LiveError> {
        match self {
            Self::SharedLedger(kept) => {
                kept.with_ledger(|head, _, _| Ok(shared_ledger::program(head)))
            }
            Self::Process(process) => Ok(process.program()),
        }
    }
}

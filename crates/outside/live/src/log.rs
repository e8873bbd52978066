//! Reads a log, and the stacks and threads that it names, from the saved ledger or from the
//! program's memory.

use heapprof_abi::StackNumber;
use heapprof_profile::Profile;

use crate::error::LiveError;
use crate::process::LiveProcess;
use crate::profile::{stacks, threads};
use crate::ring::LiveLogReader;
use crate::shared_ledger::{self, SharedLedger};

/// A recorded program that has a log.
#[derive(Debug)]
pub enum LogSource {
    /// A saved ledger, which outlives the program.
    SharedLedger(SharedLedger),
    /// The process itself, which can be read until it ends.
    Process(Box<LiveProcess>),
}

impl LogSource {
    /// Opens the log of the recording, from its first event on; `None` if there is no log.
    ///
    /// # Errors
    /// The ledger may be damaged, or the process be gone.
    pub fn log(&self) -> Result<Option<LiveLogReader>, LiveError> {
        match self {
            Self::SharedLedger(kept) => kept.log(),
            Self::Process(process) => process.log(),
        }
    }

    /// Returns the stacks from the number `first` on, as samples of a profile: the second value of
    /// each is the stack's number. Also returns the number that comes next.
    ///
    /// # Errors
    /// The ledger may be damaged, or the process be gone.
    pub fn stacks(&self, first: StackNumber) -> Result<(Profile, StackNumber), LiveError> {
        match self {
            Self::SharedLedger(kept) => {
                kept.with_ledger(|_, reader, ledger| stacks(reader, ledger, &[], first))
            }
            Self::Process(process) => {
                let code = process.code();
                process.with_ledger(|reader, ledger| stacks(reader, ledger, &code, first))
            }
        }
    }

    /// Returns the kernel's number of each thread in the ledger, if it has one. Thread number 1
    /// comes first.
    ///
    /// # Errors
    /// The ledger may be damaged, or the process be gone.
    pub fn threads(&self) -> Result<Vec<Option<u32>>, LiveError> {
        match self {
            Self::SharedLedger(kept) => {
                kept.with_ledger(|_, reader, ledger| threads(reader, ledger))
            }
            Self::Process(process) => process.with_ledger(threads),
        }
    }

    /// The program's name.
    ///
    /// # Errors
    /// The ledger may be damaged, or the process be gone.
    pub fn program(&self) -> Result<String, LiveError> {
        match self {
            Self::SharedLedger(kept) => {
                kept.with_ledger(|head, _, _| Ok(shared_ledger::program(head)))
            }
            Self::Process(process) => Ok(process.program()),
        }
    }
}

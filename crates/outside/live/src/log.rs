//! Reads the log of a recording with its stacks and threads, from the saved ledger or from the
//! program's memory.

use heapprof_abi::StackNumber;
use heapprof_profile::Profile;

use crate::error::LiveError;
use crate::process::LiveProcess;
use crate::profile::{stacks, threads};
use crate::ring::LiveLogReader;
use crate::shared_ledger::{self, SharedLedger};

/// The source from which a recorded program's log of block events is read.
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

    /// Returns a profile with a sample for each stack from the number `first` on, and the next free
    /// stack number. The second value of each sample is the number of its stack.
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

    /// Returns the kernel's number of each thread in the ledger, or `None` where it is unknown. The
    /// first entry is for thread number 1.
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

    /// Returns the program's name.
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

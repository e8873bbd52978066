//! Where a log and what it names are read: in the file that the program keeps its books in, or in
//! its memory.

use heapprof_profile::Profile;

use crate::error::Error;
use crate::kept::{self, Kept};
use crate::process::Process;
use crate::profile::{stacks, threads};
use crate::ring::Log;

/// A recorded program that has a log.
#[derive(Debug)]
pub enum Logged {
    /// What is read outlives it.
    Kept(Kept),
    /// It is read as long as it is there.
    Process(Box<Process>),
}

impl Logged {
    /// The log of the recording, from its first event on; `None` if there is none.
    ///
    /// # Errors
    /// The books may be damaged, or the process be gone.
    pub fn log(&self) -> Result<Option<Log>, Error> {
        match self {
            Self::Kept(kept) => kept.log(),
            Self::Process(process) => process.log(),
        }
    }

    /// The stacks from this number on, as samples of a profile: the second value of each is the
    /// stack's number. Also returns which number comes next.
    ///
    /// # Errors
    /// Those of [`log`](Self::log).
    pub fn stacks(&self, first: u32) -> Result<(Profile, u32), Error> {
        match self {
            Self::Kept(kept) => {
                kept.with_books(|_, reader, books| stacks(reader, books, &[], first))
            }
            Self::Process(process) => {
                let code = process.code();
                process.with_books(|reader, books| stacks(reader, books, &code, first))
            }
        }
    }

    /// The kernel's number of each thread that has one here. Number 1 is the first.
    ///
    /// # Errors
    /// Those of [`log`](Self::log).
    pub fn threads(&self) -> Result<Vec<Option<u32>>, Error> {
        match self {
            Self::Kept(kept) => kept.with_books(|_, reader, books| threads(reader, books)),
            Self::Process(process) => process.with_books(threads),
        }
    }

    /// What the program is called.
    ///
    /// # Errors
    /// Those of [`log`](Self::log).
    pub fn program(&self) -> Result<String, Error> {
        match self {
            Self::Kept(kept) => kept.with_books(|head, _, _| Ok(kept::program(head))),
            Self::Process(process) => Ok(process.program()),
        }
    }
}

//! The books in a copy of a process's memory, which are those of one moment.

use std::ops::Range;

use heapprof_memory::Memory;
use heapprof_process::maps::ProcessMapping;
use heapprof_profile::Profile;

use crate::blocks::{BlocksInUse, blocks};
use crate::error::LiveError;
use crate::ledger::{self, LiveLedger};
use crate::process::code;
use crate::profile::profile_from_rows;
use crate::read::BoundedMemoryReader;
use crate::writer::{LiveProfileRow, MappedCode};

/// The books of a moment.
pub struct LedgerSnapshot<M> {
    pub(crate) memory: M,
    /// Where the books are.
    pub(crate) ledger: u64,
    pub(crate) code: Vec<MappedCode>,
}

impl<M: Memory> LedgerSnapshot<M> {
    /// Finds the books in these pieces of a copy. `constants` is what the process can't write to,
    /// which need not be in the copy, and `maps` says where its files are mapped.
    ///
    /// # Errors
    /// There may be no books in it.
    pub fn new(
        memory: M,
        pieces: impl Iterator<Item = Range<u64>>,
        constants: impl Memory,
        maps: &[ProcessMapping],
    ) -> Result<Self, LiveError> {
        Ok(Self {
            memory,
            ledger: ledger::find(memory, pieces)?,
            code: code(maps, constants),
        })
    }

    /// The blocks in use. In sampled mode they are those that were sampled.
    ///
    /// # Errors
    /// The books may be damaged.
    pub fn blocks(&self) -> Result<BlocksInUse, LiveError> {
        let reader = BoundedMemoryReader::new(self.memory);
        let books = LiveLedger::read(&reader, self.ledger)?;
        blocks(&reader, &books)
    }

    /// A profile of these types with these rows, each of which has a value for each type, and a
    /// label under `key`.
    ///
    /// # Errors
    /// Those of [`blocks`](Self::blocks).
    pub fn profile_of(
        &self,
        types: &[(&str, &str)],
        key: &str,
        rows: &[LiveProfileRow<'_>],
    ) -> Result<Profile, LiveError> {
        let reader = BoundedMemoryReader::new(self.memory);
        let books = LiveLedger::read(&reader, self.ledger)?;
        profile_from_rows(&reader, &books, &self.code, types, key, rows)
    }
}

//! Reads the ledger in a copy of a process's memory: the ledger at one moment.

use std::ops::Range;

use heapprof_memory::Memory;
use heapprof_process::maps::ProcessMapping;
use heapprof_profile::Profile;
use heapprof_profile::recording::RecordedMapping;

use crate::blocks::{BlocksInUse, blocks};
use crate::bounded_reads::BoundedMemoryReader;
use crate::error::LiveError;
use crate::ledger::{self, LiveLedger};
use crate::process::code;
use crate::profile::profile_from_rows;
use crate::writer::LiveProfileRow;

/// A ledger at one moment.
pub struct LedgerSnapshot<M> {
    pub(crate) memory: M,
    /// Address of the ledger.
    pub(crate) ledger: u64,
    pub(crate) code: Vec<RecordedMapping<'static>>,
}

impl<M: Memory> LedgerSnapshot<M> {
    /// Finds the ledger in pieces of a copied memory. `constants` reads the memory that the process
    /// can't write to, because a copy need not contain it. `maps` lists the mappings of files.
    ///
    /// # Errors
    /// There may be no ledger in the copy.
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

    /// Reads the blocks in use. In sampled mode only sampled blocks are returned.
    ///
    /// # Errors
    /// The ledger may be damaged.
    pub fn blocks(&self) -> Result<BlocksInUse, LiveError> {
        let reader = BoundedMemoryReader::new(self.memory);
        let ledger = LiveLedger::read(&reader, self.ledger)?;
        blocks(&reader, &ledger)
    }

    /// Makes a profile with the given sample types and rows. Each row has a value for each type,
    /// and a label under `key`.
    ///
    /// # Errors
    /// The ledger may be damaged.
    pub fn profile_of(
        &self,
        types: &[(&str, &str)],
        key: &str,
        rows: &[LiveProfileRow<'_>],
    ) -> Result<Profile, LiveError> {
        let reader = BoundedMemoryReader::new(self.memory);
        let ledger = LiveLedger::read(&reader, self.ledger)?;
        profile_from_rows(&reader, &ledger, &self.code, types, key, rows)
    }
}

//! The books in a copy of a process's memory, which are those of one moment.

use std::ops::Range;

use heapprof_memory::Memory;
use heapprof_process::maps::Map;
use heapprof_profile::Profile;

use crate::blocks::{Blocks, blocks};
use crate::books::{self, Books};
use crate::error::Error;
use crate::process::code;
use crate::profile::of_rows;
use crate::read::Reader;
use crate::writer::{Code, Row};

/// The books of a moment.
pub struct Frozen<M> {
    pub(crate) memory: M,
    /// Where the books are.
    pub(crate) books: u64,
    pub(crate) code: Vec<Code>,
}

impl<M: Memory> Frozen<M> {
    /// Finds the books in these pieces of a copy. `constants` is what the process can't write to,
    /// which need not be in the copy, and `maps` says where its files are mapped.
    ///
    /// # Errors
    /// There may be no books in it.
    pub fn new(
        memory: M,
        pieces: impl Iterator<Item = Range<u64>>,
        constants: impl Memory,
        maps: &[Map],
    ) -> Result<Self, Error> {
        Ok(Self {
            memory,
            books: books::find(memory, pieces)?,
            code: code(maps, constants),
        })
    }

    /// The blocks in use. In sampled mode they are those that were sampled.
    ///
    /// # Errors
    /// The books may be damaged.
    pub fn blocks(&self) -> Result<Blocks, Error> {
        let reader = Reader::new(self.memory);
        let books = Books::read(&reader, self.books)?;
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
        rows: &[Row<'_>],
    ) -> Result<Profile, Error> {
        let reader = Reader::new(self.memory);
        let books = Books::read(&reader, self.books)?;
        of_rows(&reader, &books, &self.code, types, key, rows)
    }
}

//! Reading memory of somebody else's: every read may fail, and all of them together have a bound.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use heapprof_books::chunks::{COUNT, FIRST};
use heapprof_memory::Memory;

use crate::error::Error;

/// So many bytes are read at most. The books of a program with 16 threads and 16,000 stacks have
/// 25 MB.
const MOST: u64 = 2 << 30;
/// Small things are read with what lies around them, in pieces of this size.
const BLOCK: u64 = 64 << 10;
/// What a piece that is not all there is read in.
const PAGE: u64 = 4096;
/// How many bytes of an array are read at once.
const AT_ONCE: usize = 1 << 20;

/// A memory that counts what is read of it.
pub(crate) struct Reader<M> {
    memory: M,
    left: Cell<u64>,
    /// What was read with other things, by the number of the block. Only what never changes is
    /// read from here.
    kept: RefCell<HashMap<u64, Box<[u8]>>>,
}

impl<M: Memory> Reader<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self {
            memory,
            left: Cell::new(MOST),
            kept: RefCell::default(),
        }
    }

    /// Fills `to` with what is at `at` now.
    pub(crate) fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Error> {
        let left = self.left.get().checked_sub(to.len() as u64);
        self.left.set(left.ok_or(Error::TooLarge(MOST >> 20))?);
        match at != 0 && self.memory.read(at, to) {
            true => Ok(()),
            false => Err(Error::Ended),
        }
    }

    pub(crate) fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u64(&self, at: u64) -> Result<u64, Error> {
        Ok(u64::from_ne_bytes(self.array(at)?))
    }

    pub(crate) fn i64(&self, at: u64) -> Result<i64, Error> {
        Ok(i64::from_ne_bytes(self.array(at)?))
    }

    pub(crate) fn u32(&self, at: u64) -> Result<u32, Error> {
        Ok(u32::from_ne_bytes(self.array(at)?))
    }

    /// Fills `to` with something that was written once and does not change.
    pub(crate) fn read_kept(&self, mut at: u64, mut to: &mut [u8]) -> Result<(), Error> {
        while !to.is_empty() {
            let (block, offset) = (at / BLOCK, (at % BLOCK) as usize);
            let mut kept = self.kept.borrow_mut();
            let bytes = match kept.entry(block) {
                std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(self.block(block * BLOCK, at)?)
                }
            };
            // What is missing at the end of a block is not mapped.
            let found = bytes.get(offset..).unwrap_or_default();
            let len = found.len().min(to.len());
            if len == 0 {
                return Err(Error::Ended);
            }
            to[..len].copy_from_slice(&found[..len]);
            at += len as u64;
            to = &mut to[len..];
        }
        Ok(())
    }

    /// Reads the block that begins at `start`, up to the first page behind `wanted` that is not
    /// there. Pages that are missing before it are zero.
    fn block(&self, start: u64, wanted: u64) -> Result<Box<[u8]>, Error> {
        let mut bytes = vec![0; BLOCK as usize];
        if start != 0 && self.read(start, &mut bytes).is_ok() {
            return Ok(bytes.into());
        }
        for (i, page) in bytes.chunks_exact_mut(PAGE as usize).enumerate() {
            let at = start + i as u64 * PAGE;
            match self.read(at, page) {
                Ok(()) => {}
                Err(Error::Ended) if at + PAGE <= wanted => page.fill(0),
                Err(Error::Ended) => {
                    bytes.truncate(i * PAGE as usize);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bytes.into())
    }

    /// Reads the first `len` elements of an array that grows in chunks, each of `N` bytes. `each`
    /// gets the number and the bytes of those that are not all zero.
    pub(crate) fn elements<const N: usize>(
        &self,
        chunks: u64,
        len: usize,
        mut each: impl FnMut(usize, &[u8; N]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let addresses: [u8; COUNT * 8] = self.array(chunks)?;
        let (mut first, mut buffer) = (0, Vec::new());
        for (k, address) in addresses.as_chunks::<8>().0.iter().enumerate() {
            if first >= len {
                break;
            }
            let (address, room) = (u64::from_ne_bytes(*address), FIRST << k);
            let mut left = room.min(len - first);
            let mut number = first;
            first += room;
            if address == 0 {
                continue;
            }
            let mut at = address;
            while left > 0 {
                let count = left.min(AT_ONCE / N);
                buffer.resize(count * N, 0);
                self.read(at, &mut buffer)?;
                for element in buffer.as_chunks::<N>().0 {
                    if element.iter().any(|&byte| byte != 0) {
                        each(number, element)?;
                    }
                    number += 1;
                }
                at = at.wrapping_add((count * N) as u64);
                left -= count;
            }
        }
        Ok(())
    }
}

/// The number at an offset of what was read.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |word| u64::from_ne_bytes(*word))
}

/// The number at an offset of what was read.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |word| u32::from_ne_bytes(*word))
}

/// The number at an offset of what was read.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |word| u16::from_ne_bytes(*word))
}

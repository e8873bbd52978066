//! Reads the memory of another program. Any read may fail, and the sum of all reads is limited.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use foldhash::fast::RandomState;
use heapprof_abi::chunks::{FIRST_CHUNK_LEN, MAX_CHUNKS};
use heapprof_memory::Memory;

use crate::error::LiveError;

/// Maximum number of bytes of all reads together. The ledger of a program with 16 threads and
/// 16,000 stacks has 25 MB.
const MAX_READ_BYTES: u64 = 1 << 30;
/// Maximum amount of work with data that was read: each byte copied from the cache counts 1, and so
/// does each step of a loop.
const MAX_WORK: u64 = 4 << 30;
/// Maximum number of bytes of all names and paths together.
const MAX_TEXT_BYTES: u64 = 256 << 20;
/// Size in bytes of a cached block. Small items are read together with the block around them.
const BLOCK_SIZE: usize = 64 << 10;
/// Size of a page in bytes. Some pages of a block may be unreadable.
const PAGE_SIZE: usize = 4096;
/// Maximum number of blocks in the cache.
const MAX_CACHED_BLOCKS: usize = 4096;
/// Work of each small read, in addition to its bytes.
const READ_COST: u64 = 16;
/// Maximum number of bytes of an array that are read at a time.
const MAX_CHUNK_BYTES: usize = 1 << 20;

/// A reader of a memory, with limits on the bytes and the work of all reads together.
pub(crate) struct BoundedMemoryReader<M> {
    memory: M,
    bytes_left: Cell<u64>,
    work_left: Cell<u64>,
    text_left: Cell<u64>,
    /// Whether some tables may be at unreadable addresses. Readers leave these tables out.
    is_partial: bool,
    /// Cached blocks. Only data that never changes may be read from here.
    cache: RefCell<BlockCache>,
}

/// Cached blocks by their numbers, and the block of the latest read.
#[derive(Default)]
struct BlockCache {
    place: HashMap<u64, usize, RandomState>,
    blocks: Vec<CachedBlock>,
    last: Option<(u64, usize)>,
}

/// A block of memory, as far as it could be read.
struct CachedBlock {
    bytes: Box<[u8]>,
    /// One bit for each page, which says whether the page could be read.
    pages: u16,
}

/// Subtracts `amount` from a budget. Fails if the budget is used up.
fn spend(budget: &Cell<u64>, amount: u64) -> Result<(), LiveError> {
    let left = budget.get().checked_sub(amount);
    budget.set(left.ok_or(LiveError::LedgerTooLarge)?);
    Ok(())
}

impl<M: Memory> BoundedMemoryReader<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self {
            memory,
            bytes_left: Cell::new(MAX_READ_BYTES),
            work_left: Cell::new(MAX_WORK),
            text_left: Cell::new(MAX_TEXT_BYTES),
            is_partial: false,
            cache: RefCell::default(),
        }
    }

    /// Makes a reader of a memory in which some tables may be at unreadable addresses.
    pub(crate) fn partial(memory: M) -> Self {
        Self {
            is_partial: true,
            ..Self::new(memory)
        }
    }

    /// Turns the error for an unreadable address into `None`, if the memory is partial. Other
    /// errors stay errors.
    pub(crate) fn if_reachable<T>(
        &self,
        read: Result<T, LiveError>,
    ) -> Result<Option<T>, LiveError> {
        match read {
            Err(LiveError::ProcessEnded) if self.is_partial => Ok(None),
            read => read.map(Some),
        }
    }

    /// Fills `to` with the present bytes at `at`.
    pub(crate) fn read(&self, at: u64, to: &mut [u8]) -> Result<(), LiveError> {
        spend(&self.bytes_left, to.len() as u64)?;
        self.read_bounded(at, to)
    }

    /// Fills `to` like [`read`](Self::read), but does not count the bytes, because the caller
    /// limits them.
    pub(crate) fn read_bounded(&self, at: u64, to: &mut [u8]) -> Result<(), LiveError> {
        let is_there = at != 0 && at.checked_add(to.len() as u64).is_some();
        match is_there && self.memory.read(at, to) {
            true => Ok(()),
            false => Err(LiveError::ProcessEnded),
        }
    }

    pub(crate) fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], LiveError> {
        let mut bytes = [0; N];
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u64(&self, at: u64) -> Result<u64, LiveError> {
        Ok(u64::from_ne_bytes(self.array(at)?))
    }

    pub(crate) fn i64(&self, at: u64) -> Result<i64, LiveError> {
        Ok(i64::from_ne_bytes(self.array(at)?))
    }

    pub(crate) fn u32(&self, at: u64) -> Result<u32, LiveError> {
        Ok(u32::from_ne_bytes(self.array(at)?))
    }

    /// Counts `steps` of work with data that was read.
    pub(crate) fn work(&self, steps: usize) -> Result<(), LiveError> {
        spend(&self.work_left, steps as u64)
    }

    /// Fills `to` from the cache, with data that does not change after it was written.
    pub(crate) fn read_cached(&self, mut at: u64, mut to: &mut [u8]) -> Result<(), LiveError> {
        spend(&self.work_left, to.len() as u64 + READ_COST)?;
        if at.checked_add(to.len() as u64).is_none() {
            return Err(LiveError::ProcessEnded);
        }
        let mut kept = self.cache.borrow_mut();
        while !to.is_empty() {
            let (number, offset) = (at / BLOCK_SIZE as u64, at as usize % BLOCK_SIZE);
            let known = match kept.last {
                Some((last, place)) if last == number => Some(place),
                _ => kept.place.get(&number).copied(),
            };
            let place = match known {
                Some(place) => place,
                None => {
                    if kept.blocks.len() >= MAX_CACHED_BLOCKS {
                        *kept = BlockCache::default();
                    }
                    let block = self.block(number * BLOCK_SIZE as u64)?;
                    kept.blocks.push(block);
                    let place = kept.blocks.len() - 1;
                    kept.place.insert(number, place);
                    place
                }
            };
            kept.last = Some((number, place));
            let block = &kept.blocks[place];
            // Copies up to the end of the page.
            let len = (PAGE_SIZE - offset % PAGE_SIZE).min(to.len());
            if block.pages >> (offset / PAGE_SIZE) & 1 == 0 {
                return Err(LiveError::ProcessEnded);
            }
            to[..len].copy_from_slice(&block.bytes[offset..offset + len]);
            at += len as u64;
            to = &mut to[len..];
        }
        Ok(())
    }

    /// Reads the block that begins at `start`, as far as it can be read.
    fn block(&self, start: u64) -> Result<CachedBlock, LiveError> {
        let mut bytes = vec![0; BLOCK_SIZE].into_boxed_slice();
        if self.read(start, &mut bytes).is_ok() {
            let pages = u16::MAX;
            return Ok(CachedBlock { bytes, pages });
        }
        let mut pages = 0;
        for (i, page) in bytes.chunks_exact_mut(PAGE_SIZE).enumerate() {
            match self.read(start + (i * PAGE_SIZE) as u64, page) {
                Ok(()) => pages |= 1 << i,
                Err(LiveError::ProcessEnded) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(CachedBlock { bytes, pages })
    }

    /// Reads a name or a path, which does not change after it was written.
    pub(crate) fn text(&self, at: u64, len: u32) -> Result<Vec<u8>, LiveError> {
        spend(&self.text_left, u64::from(len))?;
        let mut text = vec![0; len as usize];
        if len != 0 {
            self.read_cached(at, &mut text)?;
        }
        Ok(text)
    }

    /// Reads the first `len` elements of an array that grows in chunks. Each element has `N` bytes.
    /// Calls `each` with the number and the bytes of each element that is not all zeros.
    pub(crate) fn elements<const N: usize>(
        &self,
        chunks: u64,
        len: usize,
        mut each: impl FnMut(usize, &[u8; N]) -> Result<(), LiveError>,
    ) -> Result<(), LiveError> {
        let addresses: [u8; MAX_CHUNKS * 8] = self.array(chunks)?;
        let (mut first, mut buffer) = (0, Vec::new());
        for (k, address) in addresses.as_chunks::<8>().0.iter().enumerate() {
            if first >= len {
                break;
            }
            let (address, room) = (u64::from_ne_bytes(*address), FIRST_CHUNK_LEN << k);
            let mut left = room.min(len - first);
            let mut number = first;
            first += room;
            if address == 0 {
                continue;
            }
            let mut at = address;
            while left > 0 {
                let count = left.min(MAX_CHUNK_BYTES / N);
                buffer.resize(count * N, 0);
                let read = self.read(at, &mut buffer);
                if self.if_reachable(read)?.is_none() {
                    break;
                }
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

/// Returns the 64-bit number at an offset in some bytes; 0 if it extends beyond their end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |word| u64::from_ne_bytes(*word))
}

/// Returns the 32-bit number at an offset in some bytes; 0 if it extends beyond their end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |word| u32::from_ne_bytes(*word))
}

/// Returns the 16-bit number at an offset in some bytes; 0 if it extends beyond their end.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |word| u16::from_ne_bytes(*word))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A memory for tests: pieces of bytes, each with its address.
    #[derive(Clone, Copy)]
    pub(crate) struct PiecewiseMemory<'a>(pub(crate) &'a [(u64, &'a [u8])]);

    impl Memory for PiecewiseMemory<'_> {
        fn read(self, at: u64, to: &mut [u8]) -> bool {
            let all = self.0.iter().find_map(|(start, bytes)| {
                let from = at.checked_sub(*start)? as usize;
                bytes.get(from..from.checked_add(to.len())?)
            });
            all.is_some_and(|bytes| {
                to.copy_from_slice(bytes);
                true
            })
        }
    }

    /// Tests that data before or behind a hole in a block is read, and that data in the hole is
    /// not.
    #[test]
    fn a_hole_is_no_end() {
        let (page, base) = (PAGE_SIZE as u64, 16 * BLOCK_SIZE as u64);
        let (low, high) = (vec![1; PAGE_SIZE], vec![2; 2 * PAGE_SIZE]);
        let pieces = [(base, &low[..]), (base + 3 * page, &high[..])];
        let reader = BoundedMemoryReader::new(PiecewiseMemory(&pieces));
        let read = |at: u64, len: usize| {
            let mut bytes = vec![0; len];
            reader.read_cached(at, &mut bytes).map(|()| bytes)
        };
        assert_eq!(read(base + 10, 8).unwrap(), [1; 8]);
        assert_eq!(read(base + 3 * page, 8).unwrap(), [2; 8]);
        assert_eq!(read(base + 4 * page - 4, 8).unwrap(), [2; 8]);
        for at in [
            base + page,
            base + page - 4,
            base + 3 * page - 1,
            base + 5 * page - 4,
            0,
            u64::MAX - 3,
        ] {
            assert!(
                matches!(read(at, 8), Err(LiveError::ProcessEnded)),
                "{at:x}"
            );
        }
    }

    /// Tests that cached reads use up the work budget, so that they are limited, too.
    #[test]
    fn everything_has_an_end() {
        let page = vec![7; BLOCK_SIZE];
        let pieces = [(BLOCK_SIZE as u64, &page[..])];
        let reader = BoundedMemoryReader::new(PiecewiseMemory(&pieces));
        reader.work_left.set(10_000);
        let mut byte = [0];
        let reads = (0..).take_while(|_| reader.read_cached(BLOCK_SIZE as u64, &mut byte).is_ok());
        assert!(reads.count() < 1000);
        reader.bytes_left.set(100);
        assert!(matches!(
            reader.array::<200>(BLOCK_SIZE as u64),
            Err(LiveError::LedgerTooLarge)
        ));
        reader.text_left.set(5);
        assert!(matches!(
            reader.text(BLOCK_SIZE as u64, 6),
            Err(LiveError::LedgerTooLarge)
        ));
    }
}

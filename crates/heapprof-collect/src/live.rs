//! Which blocks are in use, and where each was allocated: a hash table by address in 64 parts.
//!
//! Each part has its lock, taken only while the process has more than one thread. 16 bytes an entry, at most
//! two thirds full, so 24 to 48 bytes a block; a shadow table would be quicker to find but take 8 bytes for
//! every 32 of heap.

use std::cell::UnsafeCell;

use crate::lock::Lock;
use crate::sys;
use crate::weak::single_threaded;

const PARTS: usize = 64;
const FIRST_BITS: u32 = 8;
const KEY_BITS: u32 = 45;
const KEY: u64 = (1 << KEY_BITS) - 1;

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The stack that allocated it.
    pub(crate) stack: u32,
    /// As asked for, in bytes.
    pub(crate) size: u64,
}

/// Address / 8 and the size's upper bits; the size's lower bits and the stack.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry(u64, u64);

#[repr(C, align(64))]
struct Part {
    lock: Lock,
    table: UnsafeCell<Table>,
}

struct Table {
    entry: *mut Entry,
    mask: usize,
    len: usize,
}

/// All blocks in use that are known of.
pub(crate) struct LiveTable {
    part: [Part; PARTS],
}

// SAFETY: a part's table is reached under its lock, or by the process's only thread.
unsafe impl Sync for LiveTable {}

/// Why a block could not be remembered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl LiveTable {
    pub(crate) const fn new() -> Self {
        const TABLE: Table = Table {
            entry: std::ptr::null_mut(),
            mask: 0,
            len: 0,
        };
        Self {
            part: [const {
                Part {
                    lock: Lock::new(),
                    table: UnsafeCell::new(TABLE),
                }
            }; PARTS],
        }
    }

    #[inline(always)]
    fn with<R>(&self, address: usize, work: impl FnOnce(&mut Table, u64, usize) -> R) -> R {
        let key = (address >> 3) as u64;
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let part = &self.part[(hash >> 58) as usize];
        let start = (hash >> 20) as usize;
        let alone = single_threaded();
        if !alone {
            part.lock.acquire();
        }
        // SAFETY: the lock is held, or there is no other thread.
        let result = work(unsafe { &mut *part.table.get() }, key, start);
        if !alone {
            part.lock.release();
        }
        result
    }

    /// Remembers a block; what was known of that address before, if anything (its free was not seen).
    #[inline]
    pub(crate) fn insert(&self, address: usize, block: Block) -> Result<Option<Block>, Full> {
        self.with(address, |table, key, start| table.insert(key, start, block))
    }

    /// Forgets a block.
    #[inline]
    pub(crate) fn remove(&self, address: usize) -> Option<Block> {
        self.with(address, |table, key, start| table.remove(key, start))
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        let len = |part: &Part| {
            let _guard = part.lock.lock();
            // SAFETY: the lock is held.
            unsafe { (*part.table.get()).len }
        };
        self.part.iter().map(len).sum()
    }

    /// Forgets all blocks.
    pub(crate) fn clear(&self) {
        for part in &self.part {
            let _guard = part.lock.lock();
            // SAFETY: the lock is held.
            let table = unsafe { &mut *part.table.get() };
            if !table.entry.is_null() {
                (0..=table.mask).for_each(|i| {
                    // SAFETY: `at` stays inside the table.
                    unsafe { *table.at(i) = Entry(0, 0) }
                });
            }
            table.len = 0;
        }
    }

    /// Holds all parts, for fork.
    pub(crate) fn acquire_all(&self) {
        self.part.iter().for_each(|p| p.lock.acquire());
    }

    /// Lets go of all parts.
    pub(crate) fn release_all(&self) {
        self.part.iter().for_each(|p| p.lock.release());
    }
}

impl Entry {
    #[inline]
    fn new(key: u64, block: Block) -> Self {
        Self(
            key | block.size >> 32 << KEY_BITS,
            block.size << 32 | u64::from(block.stack),
        )
    }

    #[inline]
    fn block(self) -> Block {
        Block {
            stack: self.1 as u32,
            size: self.0 >> KEY_BITS << 32 | self.1 >> 32,
        }
    }

    #[inline]
    fn key(self) -> u64 {
        self.0 & KEY
    }
}

impl Table {
    #[inline(always)]
    fn at(&self, i: usize) -> *mut Entry {
        // SAFETY: the index is masked to the table.
        unsafe { self.entry.add(i & self.mask) }
    }

    #[inline]
    fn insert(&mut self, key: u64, start: usize, block: Block) -> Result<Option<Block>, Full> {
        if self.len * 3 >= self.mask * 2 && !self.grow() {
            return Err(Full);
        }
        if key > KEY || block.size >> (32 + 64 - KEY_BITS) != 0 {
            return Err(Full);
        }
        let mut i = start;
        loop {
            let slot = self.at(i);
            // SAFETY: `at` stays inside the table, which is never full.
            let entry = unsafe { &mut *slot };
            if entry.key() == 0 {
                *entry = Entry::new(key, block);
                self.len += 1;
                return Ok(None);
            }
            if entry.key() == key {
                let old = entry.block();
                *entry = Entry::new(key, block);
                return Ok(Some(old));
            }
            i = i.wrapping_add(1);
        }
    }

    #[inline]
    fn remove(&mut self, key: u64, start: usize) -> Option<Block> {
        if self.entry.is_null() {
            return None;
        }
        let mut i = start;
        loop {
            // SAFETY: `at` stays inside the table, which is never full.
            let entry = unsafe { *self.at(i) };
            if entry.key() == key {
                self.close_gap(i);
                self.len -= 1;
                return Some(entry.block());
            }
            if entry.key() == 0 {
                return None;
            }
            i = i.wrapping_add(1);
        }
    }

    /// Moves later entries of the run forward, so that no search stops short (Knuth 6.4, algorithm R).
    #[inline]
    fn close_gap(&mut self, mut gap: usize) {
        let mut i = gap;
        loop {
            i = i.wrapping_add(1);
            // SAFETY: `at` stays inside the table.
            let entry = unsafe { *self.at(i) };
            if entry.key() == 0 {
                break;
            }
            let home = (entry.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize;
            // Whether the gap lies on the way from the entry's home to where it is.
            if i.wrapping_sub(home) & self.mask >= i.wrapping_sub(gap) & self.mask {
                // SAFETY: as above.
                unsafe { *self.at(gap) = entry };
                gap = i;
            }
        }
        // SAFETY: as above.
        unsafe { *self.at(gap) = Entry(0, 0) };
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let old_len = if self.entry.is_null() {
            0
        } else {
            self.mask + 1
        };
        let len = (old_len * 2).max(1 << FIRST_BITS);
        let new = sys::map(len * size_of::<Entry>()).cast::<Entry>();
        if new.is_null() {
            // One slot stays empty, or searches would not end.
            return self.len + 1 < old_len;
        }
        let old = std::mem::replace(
            self,
            Self {
                entry: new,
                mask: len - 1,
                len: 0,
            },
        );
        for i in 0..old_len {
            // SAFETY: `i` is below the old table's length.
            let entry = unsafe { *old.entry.add(i) };
            if entry.key() != 0 {
                let start = (entry.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize;
                let _ = self.insert(entry.key(), start, entry.block());
            }
        }
        if old_len != 0 {
            // SAFETY: the old table was mapped with this length and is not referred to any more.
            unsafe { sys::unmap(old.entry.cast(), old_len * size_of::<Entry>()) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn behaves_as_a_map_does() {
        let table = Box::new(LiveTable::new());
        let (mut model, mut x) = (HashMap::new(), 88_172_645_463_325_252u64);
        for step in 0..400_000u64 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let address = 0x7f00_0000_0000 + (x % 9_000) as usize * 16;
            let block = Block {
                stack: step as u32,
                size: if x & 64 == 0 { 1 << 44 } else { x % 900 },
            };
            if x >> 40 & 1 == 0 {
                assert_eq!(
                    table.insert(address, block),
                    Ok(model.insert(address, block))
                );
            } else {
                assert_eq!(table.remove(address), model.remove(&address));
            }
        }
        assert_eq!(table.len(), model.len());
        for (address, block) in model {
            assert_eq!(table.remove(address), Some(block));
        }
        assert_eq!(table.len(), 0);
        let huge = Block {
            stack: 1,
            size: 1 << 60,
        };
        assert_eq!(table.insert(4096, huge), Err(Full));
    }
}

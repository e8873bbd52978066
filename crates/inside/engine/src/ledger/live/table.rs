//! A part's hash table of blocks in use, by address, with linear probing.

use heapprof_abi::StackNumber;

/// Number of entries below which a table counts as small. A small table is at most half full.
const SMALL_TABLE_LIMIT: usize = 2048;
const KEY_BITS: u32 = heapprof_abi::table::ADDRESS_BITS;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveBlock {
    /// The stack that allocated the block.
    pub(crate) stack: StackNumber,
    /// The requested size, in bytes.
    pub(crate) size: u64,
}

/// An entry of the hash table. Its first word has the address divided by 8 (blocks of any malloc
/// are at least 8 bytes apart), and the upper bits of the size. The second word has the lower bits
/// of the size, and the stack's number.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LiveEntry(pub(super) u64, pub(super) u64);

#[repr(C)]
pub(crate) struct BlockTable {
    pub(crate) entry: *mut LiveEntry,
    pub(crate) mask: usize,
    /// Number of blocks of the part, in this table and in shadows.
    pub(crate) len: usize,
    /// Number of blocks in this table.
    pub(super) hashed: usize,
}

/// Returns the index at which the search for a key begins. The caller must apply the mask of the
/// part's table.
#[inline(always)]
pub(super) fn home_index(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize
}

/// The error of a table that has no memory for another block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableFull;

impl LiveEntry {
    #[inline]
    pub(super) fn new(key: u64, block: LiveBlock) -> Self {
        Self(
            key | block.size >> 32 << KEY_BITS,
            block.size << 32 | u64::from(block.stack.to_u32()),
        )
    }

    #[inline]
    pub(super) fn block(self) -> LiveBlock {
        LiveBlock {
            stack: StackNumber::from_u32(self.1 as u32),
            size: self.0 >> KEY_BITS << 32 | self.1 >> 32,
        }
    }

    #[inline]
    pub(super) fn key(self) -> u64 {
        self.0 & KEY_MASK
    }
}

impl BlockTable {
    /// Whether the table needs to grow. Small tables grow earlier, because that keeps searches
    /// short.
    #[inline(always)]
    pub(super) fn is_filled(&self) -> bool {
        let most = if self.mask < SMALL_TABLE_LIMIT { 3 } else { 4 };
        self.hashed * 6 >= self.mask * most
    }

    #[inline(always)]
    pub(super) fn at(&self, i: usize) -> *mut LiveEntry {
        // SAFETY: the index is masked to the table.
        unsafe { self.entry.add(i & self.mask) }
    }

    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        key: u64,
        start: usize,
        block: LiveBlock,
    ) -> Result<Option<LiveBlock>, TableFull> {
        if key > KEY_MASK || block.size >> (32 + 64 - KEY_BITS) != 0 {
            return Err(TableFull);
        }
        let mut i = start;
        loop {
            let slot = self.at(i);
            // SAFETY: `at` stays inside the table, which is never full.
            let entry = unsafe { &mut *slot };
            if entry.key() == 0 {
                *entry = LiveEntry::new(key, block);
                (self.len, self.hashed) = (self.len + 1, self.hashed + 1);
                return Ok(None);
            }
            if entry.key() == key {
                let old = entry.block();
                *entry = LiveEntry::new(key, block);
                return Ok(Some(old));
            }
            i = i.wrapping_add(1);
        }
    }

    /// Returns the block of a key.
    pub(super) fn find(&self, key: u64) -> Option<LiveBlock> {
        let mut i = home_index(key);
        loop {
            // SAFETY: `at` stays inside the table, which is never full.
            let entry = unsafe { *self.at(i) };
            if entry.key() == key {
                return Some(entry.block());
            }
            if entry.key() == 0 {
                return None;
            }
            i = i.wrapping_add(1);
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, key: u64, start: usize) -> Option<LiveBlock> {
        if self.entry.is_null() {
            return None;
        }
        let mut i = start;
        loop {
            // SAFETY: `at` stays inside the table, which is never full.
            let entry = unsafe { *self.at(i) };
            if entry.key() == key {
                self.close_gap(i);
                (self.len, self.hashed) = (self.len - 1, self.hashed - 1);
                return Some(entry.block());
            }
            if entry.key() == 0 {
                return None;
            }
            i = i.wrapping_add(1);
        }
    }

    /// Closes a gap at a removed entry: moves later entries of the run forward, so that searches
    /// find them (Knuth 6.4, algorithm R).
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
            let home = home_index(entry.key());
            // Whether the gap lies on the way from the entry's home to where it is.
            if i.wrapping_sub(home) & self.mask >= i.wrapping_sub(gap) & self.mask {
                // SAFETY: as above.
                unsafe { *self.at(gap) = entry };
                gap = i;
            }
        }
        // SAFETY: as above.
        unsafe { *self.at(gap) = LiveEntry(0, 0) };
    }
}

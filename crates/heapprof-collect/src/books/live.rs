//! Which blocks are in use, and where each was allocated: a hash table by address in 128 parts.
//!
//! A part holds regions of 64 KiB, not scattered addresses, so threads with heaps of their own
//! touch parts of their own. A part belongs to the first thread that touches it, and that thread
//! needs no locked instruction. When another thread comes, the part is everybody's from then on,
//! behind a lock (`access.rs` says how an owner gives way).
//!
//! An entry takes 16 bytes. The table of a large part is at most two thirds full, so a block takes
//! 24 to 48 bytes. A shadow table would be quicker to search, but would take 8 bytes for every 32
//! of heap.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::books::access::{Claim, Holder, Open, Owner};
use crate::dropped::count;
use crate::platform::kept::Lot;
use crate::platform::lock::{Spin, rank};
use crate::platform::pages::Pages;
use crate::platform::process::Process;
use crate::platform::sys::hint;
use crate::tables::counters::Access;

const PARTS: usize = heapprof_books::PARTS;
const REGION_BITS: u32 = 16;
const FIRST_BITS: u32 = 9;
/// Entries below which a table is at most half full.
const SMALL: usize = 2048;
const KEY_BITS: u32 = heapprof_books::table::ADDRESS_BITS;
const KEY: u64 = (1 << KEY_BITS) - 1;

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The stack that allocated it.
    pub(crate) stack: u32,
    /// The size that was asked for, in bytes.
    pub(crate) size: u64,
}

/// The first word is the address / 8 (every malloc's blocks are at least that far apart) and the
/// size's upper bits. The second is the size's lower bits and the stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Entry(u64, u64);

#[repr(C, align(64))]
pub(crate) struct Part {
    owner: Owner,
    lock: Spin<{ rank::PARTS }>,
    /// Whether fork holds the lock.
    forking: AtomicBool,
    pub(crate) table: UnsafeCell<Table>,
}

#[repr(C)]
pub(crate) struct Table {
    pub(crate) entry: *mut Entry,
    pub(crate) mask: usize,
    pub(crate) len: usize,
}

/// All blocks in use that are known.
pub(crate) struct LiveTable {
    pub(crate) part: [Part; PARTS],
    /// For each power of two, room for all parts' tables of that size side by side, where large
    /// pages may back them.
    region: [AtomicPtr<u8>; 40],
}

// SAFETY: a part's table is reached by its owner, or under its lock when it is everybody's.
unsafe impl Sync for LiveTable {}

/// Where in its part's table the search for a key begins, before it is masked to the table.
#[inline(always)]
fn home(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize
}

/// Why a block could not be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
                    owner: Owner::new(),
                    lock: Spin::new(),
                    forking: AtomicBool::new(false),
                    table: UnsafeCell::new(TABLE),
                }
            }; PARTS],
            region: [const { AtomicPtr::new(std::ptr::null_mut()) }; 40],
        }
    }

    /// Does `work` on the table of an address; `None` if its part is not to be had.
    #[inline(always)]
    pub(crate) fn with<R>(
        &self,
        address: usize,
        open: &mut Open<'_>,
        work: impl FnOnce(&mut Table, u64, usize) -> R,
    ) -> Option<R> {
        let key = (address >> 3) as u64;
        let part = self.part(address);
        let start = home(key);
        let locked = !open.owns(&part.owner)
            && open.reopening(|holder, access| part.enter(holder, access))?;
        // SAFETY: the part is this thread's own and its books are open, or the lock is held.
        let result = work(unsafe { &mut *part.table.get() }, key, start);
        if locked {
            part.lock.release();
        }
        Some(result)
    }

    #[inline(always)]
    fn index(&self, address: usize) -> usize {
        let region = (address >> REGION_BITS) as u64;
        (region.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PARTS.ilog2())) as usize
    }

    #[inline(always)]
    fn part(&self, address: usize) -> &Part {
        &self.part[self.index(address)]
    }

    /// Remembers a block. Returns the block that was known at that address before, if any: its free
    /// was not seen.
    #[inline]
    pub(crate) fn insert(
        &self,
        address: usize,
        block: Block,
        open: &mut Open<'_>,
    ) -> Result<Option<Block>, Full> {
        let pages = &open.process().pages;
        self.with(
            address,
            open,
            #[inline(always)]
            |table, key, start| {
                if table.is_filled() && !self.grow(table, address, pages) {
                    return Err(Full);
                }
                table.insert(key, start, block)
            },
        )
        .unwrap_or(Err(Full))
    }

    /// Forgets a block.
    #[inline]
    pub(crate) fn remove(&self, address: usize, open: &mut Open<'_>) -> Option<Block> {
        self.with(address, open, |table, key, start| table.remove(key, start))?
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        let len = |part: &Part| {
            // SAFETY: this is one word, which others may write meanwhile. Any moment's value will
            // do.
            unsafe { (&raw const (*part.table.get()).len).read_volatile() }
        };
        self.part.iter().map(len).sum()
    }

    /// Gives a part a table of twice the size. Returns false if there is no memory for that and the
    /// old table is all but full.
    #[cold]
    fn grow(&self, table: &mut Table, address: usize, pages: &Pages) -> bool {
        let old_len = if table.entry.is_null() {
            0
        } else {
            table.mask + 1
        };
        let len = (old_len * 2).max(1 << FIRST_BITS);
        let bytes = len * size_of::<Entry>();
        let region = self.region(len.ilog2() as usize, bytes * PARTS, pages);
        if region.is_null() {
            // One slot stays empty, or searches would not end.
            return table.len + 1 < old_len;
        }
        // SAFETY: the region has room for a table of this size for each part, used by this part
        // only.
        let entry = unsafe { region.add(self.index(address) * bytes) }.cast::<Entry>();
        let old = std::mem::replace(
            table,
            Table {
                entry,
                mask: len - 1,
                len: 0,
            },
        );
        for i in 0..old_len {
            // SAFETY: `i` is below the old table's length.
            let entry = unsafe { *old.entry.add(i) };
            if entry.key() != 0 {
                let _ = table.insert(entry.key(), home(entry.key()), entry.block());
            }
        }
        if old_len != 0 {
            // SAFETY: the old table is whole pages of a region of ours, never used again.
            unsafe { pages.discard(old.entry.cast(), old_len * size_of::<Entry>()) };
        }
        true
    }

    /// The region of tables of size `2^bits`, mapped when first needed.
    fn region(&self, bits: usize, bytes: usize, pages: &Pages) -> *mut u8 {
        let Some(slot) = self.region.get(bits) else {
            return std::ptr::null_mut();
        };
        let found = slot.load(Ordering::Acquire);
        if !found.is_null() {
            return found;
        }
        let new = pages.map_dense(bytes, Lot::Own);
        if new.is_null() {
            return new;
        }
        let none = std::ptr::null_mut();
        match slot.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: nobody saw this mapping: another thread was first.
                unsafe { pages.unmap(new, bytes) };
                other
            }
        }
    }

    /// How many bytes of the tables are in memory. This includes what large pages bring along for
    /// tables that no part has yet.
    pub(crate) fn resident(&self, pages: &Pages) -> usize {
        let each = self.region.iter().enumerate().map(|(bits, region)| {
            let at = region.load(Ordering::Acquire);
            match at.is_null() {
                true => 0,
                false => pages.resident(at, (size_of::<Entry>() << bits) * PARTS),
            }
        });
        each.sum()
    }

    /// The owner of each part.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Owner> + Clone {
        self.part.iter().map(|part| &part.owner)
    }

    /// Forgets all blocks. Returns false if a part is not to be had. No part may be another
    /// thread's own ([`share`](crate::books::access::share)).
    pub(crate) fn clear(&self, process: &Process) -> bool {
        let mut all = true;
        for part in &self.part {
            if !part.lock.acquire_in_time(process) {
                all = false;
                continue;
            }
            // SAFETY: the lock is held, and no other thread owns the part.
            let table = unsafe { &mut *part.table.get() };
            if !table.entry.is_null() {
                (0..=table.mask).for_each(|i| {
                    // SAFETY: `at` stays inside the table.
                    unsafe { *table.at(i) = Entry(0, 0) }
                });
            }
            table.len = 0;
            part.owner.disown();
            part.lock.release();
        }
        all
    }

    /// Brings the place of an address into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, address: usize) {
        let part = self.part(address);
        // SAFETY: the table's words are read whatever they are. A stale pointer is only a useless
        // hint.
        unsafe {
            let table = part.table.get();
            let (entry, mask) = (
                (&raw const (*table).entry).read_volatile(),
                (&raw const (*table).mask).read_volatile(),
            );
            hint(
                entry
                    .wrapping_add(home((address >> 3) as u64) & mask)
                    .cast(),
            );
        }
    }

    /// Makes all parts nobody's, in a forked child, which has one thread. Whoever comes first owns
    /// them again.
    pub(crate) fn disown(&self) {
        self.owners().for_each(Owner::disown);
    }

    /// Locks all parts for fork. Returns false if some are not to be had, because whoever is in the
    /// middle of them is held up.
    pub(crate) fn acquire_all(&self, process: &Process) -> bool {
        let mut all = true;
        for part in &self.part {
            let taken = part.lock.acquire_for_fork(process);
            part.forking.store(taken, Ordering::Relaxed);
            all &= taken;
        }
        all
    }

    /// Lets go of what [`acquire_all`](Self::acquire_all) held.
    pub(crate) fn release_all(&self) {
        for part in &self.part {
            if part.forking.swap(false, Ordering::Relaxed) {
                part.lock.release_after_fork();
            }
        }
    }
}

impl Part {
    /// Lets in a thread that is not known to own the part. Returns whether the thread holds the
    /// lock then, or `None` if the part is not to be had; and how the books are open then.
    fn enter(&self, holder: Holder<'_>, mut access: Access) -> (Option<bool>, Access) {
        let process = holder.process();
        loop {
            if self.owner.is_everybody() {
                if !self.lock.acquire_in_time(process) {
                    count(&process.dropped.held_up);
                    return (None, access);
                }
                // It may have been disowned before the lock was ours.
                if self.owner.is_everybody() {
                    return (Some(true), access);
                }
                self.lock.release();
            }
            let claim;
            (claim, access) = self.owner.claim(holder, access);
            match claim {
                Claim::Own => return (Some(false), access),
                Claim::Changed => {}
                Claim::Overtaken => return (None, access),
                Claim::Refused => {
                    count(&process.dropped.held_up);
                    return (None, access);
                }
            }
        }
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
    /// Whether it is time for a larger table. Small ones may be emptier, because that keeps
    /// searches short.
    #[inline(always)]
    fn is_filled(&self) -> bool {
        let most = if self.mask < SMALL { 3 } else { 4 };
        self.len * 6 >= self.mask * most
    }

    #[inline(always)]
    fn at(&self, i: usize) -> *mut Entry {
        // SAFETY: the index is masked to the table.
        unsafe { self.entry.add(i & self.mask) }
    }

    #[inline(always)]
    fn insert(&mut self, key: u64, start: usize, block: Block) -> Result<Option<Block>, Full> {
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

    /// Moves later entries of the run forward, so that no search stops short (Knuth 6.4, algorithm
    /// R).
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
            let home = home(entry.key());
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
}

#[cfg(test)]
mod tests;

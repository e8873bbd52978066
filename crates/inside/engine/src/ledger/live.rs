//! The live table: the blocks in use, and the stack of each block. It is a hash table by address in
//! 128 parts. Blocks that are close together have words outside the hash table (`live/shadows.rs`).
//!
//! A part contains whole regions of 64 KiB, not scattered addresses, so threads with separate heaps
//! touch separate parts. A part belongs to the first thread that touches it, and this thread needs
//! no locked instruction. When a second thread touches the part, the part becomes shared, and has a
//! lock from then on (`access.rs` describes how an owner gives way). A thread that may use a part
//! may also use the shadows of the part's regions.
//!
//! An entry of the hash table takes 16 bytes. The table of a large part is at most two thirds full,
//! so a block takes 24 to 48 bytes there. Sampled blocks are all in the hash table, because they
//! lie far apart.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use heapprof_platform::arch::prefetch;
use heapprof_platform::lock::{SpinLock, rank};
use heapprof_platform::pages::{PageSource, TableFill};
use heapprof_platform::sys;
use heapprof_platform::table_file::TableLifetime;

use crate::drop_counters::count;
use crate::ledger::access::{ClaimOutcome, LedgerHolder, OpenLedger, PartOwner};
use crate::process::EngineProcess;
use crate::tables::counters::AccessMode;

pub(crate) mod shadows;
pub(crate) mod table;

use shadows::{REGION_BITS, RegionShadows, ShadowSlot};
pub(crate) use table::{BlockTable, LiveBlock, TableFull};
use table::{LiveEntry, home_index};

const PART_COUNT: usize = heapprof_abi::PART_COUNT;
const FIRST_TABLE_BITS: u32 = 9;

#[repr(C, align(64))]
pub(crate) struct LivePart {
    owner: PartOwner,
    lock: SpinLock<{ rank::PARTS }>,
    /// Whether fork has taken the lock.
    forking: AtomicBool,
    pub(crate) table: UnsafeCell<BlockTable>,
}

/// The address of a block, and the [`ShadowSlot`] of the block's region, if the region has a slot.
#[derive(Clone, Copy)]
pub(crate) struct BlockSpot<'a> {
    address: usize,
    slot: Option<&'a ShadowSlot>,
}

impl BlockSpot<'_> {
    #[inline(always)]
    pub(crate) fn address(self) -> usize {
        self.address
    }
}

/// The live table: all known blocks in use.
pub(crate) struct LiveTable {
    pub(crate) part: [LivePart; PART_COUNT],
    /// Memory for the hash tables of the parts. For each power of two, the tables of this size are
    /// side by side. Large pages may be used for them.
    region: [AtomicPtr<u8>; 40],
    pub(crate) shadows: RegionShadows,
}

// SAFETY: a part's table and its regions' shadows are reached by its owner, or under its lock when
// it is shared.
unsafe impl Sync for LiveTable {}

impl LiveTable {
    pub(crate) const fn new() -> Self {
        const TABLE: BlockTable = BlockTable {
            entry: std::ptr::null_mut(),
            mask: 0,
            len: 0,
            hashed: 0,
        };
        Self {
            part: [const {
                LivePart {
                    owner: PartOwner::new(),
                    lock: SpinLock::new(),
                    forking: AtomicBool::new(false),
                    table: UnsafeCell::new(TABLE),
                }
            }; PART_COUNT],
            region: [const { AtomicPtr::new(std::ptr::null_mut()) }; 40],
            shadows: RegionShadows::new(),
        }
    }

    /// Runs `work` on the hash table of the part to which an address belongs. Returns `None` if the
    /// part is not available.
    #[inline(always)]
    pub(crate) fn with_table<R>(
        &self,
        address: usize,
        open: &mut OpenLedger<'_>,
        work: impl FnOnce(&mut BlockTable, u64, usize) -> R,
    ) -> Option<R> {
        let key = (address >> 3) as u64;
        let part = self.part(address);
        let start = home_index(key);
        let locked = !open.owns(&part.owner)
            && open.reopen_for(|holder, access| part.enter(holder, access))?;
        // SAFETY: the part is this thread's own and its ledger is open, or the lock is taken.
        let result = work(unsafe { &mut *part.table.get() }, key, start);
        if locked {
            part.lock.release();
        }
        Some(result)
    }

    #[inline(always)]
    fn index(&self, address: usize) -> usize {
        let region = (address >> REGION_BITS) as u64;
        (region.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PART_COUNT.ilog2())) as usize
    }

    #[inline(always)]
    fn part(&self, address: usize) -> &LivePart {
        &self.part[self.index(address)]
    }

    /// Adds a block. Returns the earlier block at this address, if its free was missed. The block's
    /// region may get a shadow only in exact mode, because sampled blocks are far apart.
    #[inline(always)]
    pub(crate) fn insert<const EXACT: bool>(
        &self,
        spot: BlockSpot<'_>,
        block: LiveBlock,
        open: &mut OpenLedger<'_>,
    ) -> Result<Option<LiveBlock>, TableFull> {
        let pages = &open.process().pages;
        let address = spot.address;
        self.with_table(
            address,
            open,
            #[inline(always)]
            |table, key, start| {
                let new = || self.shadows.slot_or_new(address, pages);
                let slot = spot.slot.or_else(new);
                let mut word = None;
                if let Some(slot) = slot {
                    if EXACT && self.shadows.is_due(slot.get()) {
                        self.give_shadow(slot, address, table, pages);
                    }
                    word = slot.get().word(address);
                    if let Some(word) = word
                        && shadows::fits(block.size)
                    {
                        let old = word.put(block);
                        return Ok(table.put_beside(slot, key, start, old));
                    }
                }
                if table.is_filled() && !self.grow(table, address, pages) {
                    return Err(TableFull);
                }
                let known = table.insert(key, start, block)?;
                if let (Some(slot), None) = (slot, known) {
                    slot.add(slot.get());
                }
                let Some(word) = word else {
                    return Ok(known);
                };
                // This block is too large for a word.
                let old = word.take();
                table.len -= usize::from(old.is_some());
                Ok(known.or(old))
            },
        )
        .unwrap_or(Err(TableFull))
    }

    /// Gives a region a shadow, and moves the region's blocks from the hash table to the shadow.
    #[cold]
    fn give_shadow(
        &self,
        slot: &ShadowSlot,
        address: usize,
        table: &mut BlockTable,
        pages: &PageSource,
    ) {
        let region = shadows::region_number(address);
        if !self.shadows.add(slot, region, pages) {
            return;
        }
        let move_it = |table: &mut BlockTable, key: u64| {
            if let Some(word) = slot.get().word((key << 3) as usize)
                && let Some(block) = table.remove(key, home_index(key))
            {
                word.put(block);
                slot.subtract(slot.get());
                table.len += 1;
            }
        };
        if table.mask < shadows::SHADOW_WORDS {
            let mut i = 0;
            while i <= table.mask {
                // SAFETY: `at` stays inside the table, which has the blocks that the slot counts.
                let entry = unsafe { *table.at(i) };
                let address = (entry.key() << 3) as usize;
                let is_of_region = entry.key() != 0 && shadows::region_number(address) == region;
                if is_of_region
                    && slot.get().word(address).is_some()
                    && shadows::fits(entry.block().size)
                {
                    // Another entry may come to this place.
                    move_it(table, entry.key());
                } else {
                    i += 1;
                }
            }
        } else {
            for address in shadows::block_addresses(region) {
                if slot.get().hashed_blocks() == 0 {
                    break;
                }
                let key = (address >> 3) as u64;
                if table
                    .find(key)
                    .is_some_and(|block| shadows::fits(block.size))
                {
                    move_it(table, key);
                }
            }
        }
    }

    /// Removes a block, and returns it.
    #[inline(always)]
    pub(crate) fn remove(
        &self,
        spot: BlockSpot<'_>,
        open: &mut OpenLedger<'_>,
    ) -> Option<LiveBlock> {
        let BlockSpot { address, slot } = spot;
        self.with_table(
            address,
            open,
            #[inline(always)]
            |table, key, start| {
                // The slot was there when the block was remembered.
                let Some(slot) = slot else {
                    return table.remove(key, start);
                };
                let held = slot.get();
                if let Some(block) = held.word(address).and_then(|word| word.take()) {
                    table.len -= 1;
                    return Some(block);
                }
                if held.hashed_blocks() == 0 {
                    return None;
                }
                let block = table.remove(key, start)?;
                slot.subtract(held);
                Some(block)
            },
        )?
    }

    /// Returns the number of blocks.
    pub(crate) fn len(&self) -> usize {
        let len = |part: &LivePart| {
            // SAFETY: this is one word, which others may write meanwhile. Any moment's value will
            // do.
            unsafe { (&raw const (*part.table.get()).len).read_volatile() }
        };
        self.part.iter().map(len).sum()
    }

    /// Gives a part a table of twice the size. Returns false if the old table is almost full, and
    /// there is no memory for the new one.
    #[cold]
    fn grow(&self, table: &mut BlockTable, address: usize, pages: &PageSource) -> bool {
        let old_len = if table.entry.is_null() {
            0
        } else {
            table.mask + 1
        };
        let len = (old_len * 2).max(1 << FIRST_TABLE_BITS);
        let bytes = len * size_of::<LiveEntry>();
        let region = self.region(len.ilog2() as usize, bytes * PART_COUNT, pages);
        if region.is_null() {
            // One slot stays empty, or searches would not end.
            return table.hashed + 1 < old_len;
        }
        // SAFETY: the region has room for a table of this size for each part, used by this part
        // only.
        let entry = unsafe { region.add(self.index(address) * bytes) }.cast::<LiveEntry>();
        let old = std::mem::replace(
            table,
            BlockTable {
                entry,
                mask: len - 1,
                len: table.len - table.hashed,
                hashed: 0,
            },
        );
        for i in 0..old_len {
            // SAFETY: `i` is below the old table's length.
            let entry = unsafe { *old.entry.add(i) };
            if entry.key() != 0 {
                let _ = table.insert(entry.key(), home_index(entry.key()), entry.block());
            }
        }
        if old_len != 0 {
            // SAFETY: the old table is whole pages of a region of ours, never used again.
            unsafe { pages.discard(old.entry.cast(), old_len * size_of::<LiveEntry>()) };
        }
        true
    }

    /// Returns the memory for all tables with `2^bits` entries. It is mapped at the first call.
    fn region(&self, bits: usize, bytes: usize, pages: &PageSource) -> *mut u8 {
        let Some(slot) = self.region.get(bits) else {
            return std::ptr::null_mut();
        };
        pages.map_once(
            slot,
            bytes,
            sys::PAGE_SIZE,
            TableLifetime::Own,
            TableFill::Dense,
        )
    }

    /// Returns how many bytes of the tables are resident. This includes the memory that large pages
    /// add for tables that no part uses yet.
    pub(crate) fn resident(&self, pages: &PageSource) -> usize {
        let each = self.region.iter().enumerate().map(|(bits, region)| {
            let at = region.load(Ordering::Acquire);
            match at.is_null() {
                true => 0,
                false => pages.resident(at, (size_of::<LiveEntry>() << bits) * PART_COUNT),
            }
        });
        each.sum::<usize>() + self.shadows.resident(pages)
    }

    /// Returns the owner of each part.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &PartOwner> + Clone {
        self.part.iter().map(|part| &part.owner)
    }

    /// Removes all blocks. Returns false if a part is not available. No part may have another
    /// thread as its owner: see [`share`](crate::ledger::access::share).
    pub(crate) fn clear(&self, process: &EngineProcess) -> bool {
        let mut all = true;
        for part in &self.part {
            if !part.lock.acquire_in_time(process) {
                all = false;
                continue;
            }
            // SAFETY: the lock is taken, and no other thread owns the part.
            let table = unsafe { &mut *part.table.get() };
            if !table.entry.is_null() {
                (0..=table.mask).for_each(|i| {
                    // SAFETY: `at` stays inside the table.
                    let entry = unsafe { &mut *table.at(i) };
                    if entry.key() != 0
                        && let Some(slot) = self.shadows.slot((entry.key() << 3) as usize)
                    {
                        slot.clear();
                    }
                    *entry = LiveEntry(0, 0);
                });
            }
            (table.len, table.hashed) = (0, 0);
            part.owner.disown();
            part.lock.release();
        }
        if all {
            self.shadows.clear(&process.pages);
        }
        all
    }

    /// Returns the spot of the block at `address`. Prefetches the word of a shadow, or the entry of
    /// the hash table, in which the block is stored or will be stored.
    #[inline(always)]
    pub(crate) fn find_spot(&self, address: usize) -> BlockSpot<'_> {
        let slot = self.shadows.slot(address);
        match slot.and_then(|slot| slot.get().word(address)) {
            Some(word) => prefetch(word.place()),
            None => self.prefetch(address),
        }
        BlockSpot { address, slot }
    }

    /// Prefetches the hash table's entry for an address.
    #[inline(always)]
    fn prefetch(&self, address: usize) {
        let part = self.part(address);
        // SAFETY: the table's words are read whatever they are. A stale pointer is only a useless
        // hint.
        unsafe {
            let table = part.table.get();
            let (entry, mask) = (
                (&raw const (*table).entry).read_volatile(),
                (&raw const (*table).mask).read_volatile(),
            );
            prefetch(
                entry
                    .wrapping_add(home_index((address >> 3) as u64) & mask)
                    .cast(),
            );
        }
    }

    /// Removes the owners of all parts, in a forked child, which has one thread. The first thread
    /// that touches a part owns it again.
    pub(crate) fn disown(&self) {
        self.owners().for_each(PartOwner::disown);
    }

    /// Locks all parts for fork. Returns false if a part is not available, because the thread that
    /// uses it is interrupted.
    pub(crate) fn acquire_all(&self, process: &EngineProcess) -> bool {
        let mut all = true;
        for part in &self.part {
            let taken = part.lock.acquire_for_fork(process);
            part.forking.store(taken, Ordering::Relaxed);
            all &= taken;
        }
        all
    }

    /// Releases the locks that [`acquire_all`](Self::acquire_all) took.
    pub(crate) fn release_all(&self) {
        for part in &self.part {
            if part.forking.swap(false, Ordering::Relaxed) {
                part.lock.release_after_fork();
            }
        }
    }
}

impl BlockTable {
    /// Counts a block that was put into a shadow's word, in place of `old`. Returns the earlier
    /// block at this address, if there was one: `old`, or a block in the hash table.
    #[inline(always)]
    fn put_beside(
        &mut self,
        slot: &ShadowSlot,
        key: u64,
        start: usize,
        old: Option<LiveBlock>,
    ) -> Option<LiveBlock> {
        if old.is_some() {
            return old;
        }
        self.len += 1;
        // A block that is too large for a word may still be in the hash table.
        let held = slot.get();
        if held.hashed_blocks() == 0 {
            return None;
        }
        let old = self.remove(key, start)?;
        slot.subtract(held);
        Some(old)
    }
}

impl LivePart {
    /// Acquires the part for a thread that may not own it, by a claim or by the part's lock. The
    /// first result is whether the lock was taken; `None` if the part is not available. The second
    /// result is the ledger's new access mode.
    fn enter(
        &self,
        holder: LedgerHolder<'_>,
        mut access: AccessMode,
    ) -> (Option<bool>, AccessMode) {
        let process = holder.process();
        loop {
            if self.owner.is_shared() {
                if !self.lock.acquire_in_time(process) {
                    count(&process.dropped.interrupted);
                    return (None, access);
                }
                // The part may have been disowned before this thread took the lock.
                if self.owner.is_shared() {
                    return (Some(true), access);
                }
                self.lock.release();
            }
            let claim;
            (claim, access) = self.owner.claim(holder, access);
            match claim {
                ClaimOutcome::Own => return (Some(false), access),
                ClaimOutcome::Changed => {}
                ClaimOutcome::Overtaken => return (None, access),
                ClaimOutcome::Refused => {
                    count(&process.dropped.interrupted);
                    return (None, access);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

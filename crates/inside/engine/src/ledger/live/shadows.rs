//! Shadows: arrays with a word for each address at which a block may begin. They are for regions in
//! which blocks are close together.
//!
//! Blocks that are allocated one after the other are mostly side by side. So are their words in a
//! shadow, and the processor has mostly fetched the next word already. In a hash table, each block
//! costs a cache miss.
//!
//! A region of 64 KiB with many known blocks gets a shadow of 32 KiB: a word of 8 bytes for every
//! 16 bytes. If blocks have 64 bytes, a shadow takes 32 bytes for each block, as much as the hash
//! table. From the 256th shadow on, a new shadow takes at most 128 bytes for each block that its
//! region has at that time. A shadow is never freed. If the program unmaps a region, its shadow
//! serves later blocks at the same addresses. A program that always uses new addresses has shadows
//! for all of them.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use heapprof_abi::StackNumber;
use heapprof_abi::shadow;
use heapprof_platform::pages::{PageSource, TableFill};
use heapprof_platform::sys;
use heapprof_platform::table_file::TableLifetime;

use crate::ledger::live::table::LiveBlock;

/// Number of words in a region's shadow.
pub(super) const SHADOW_WORDS: usize = shadow::WORDS;
const SHADOW_BYTES: usize = SHADOW_WORDS * 8;
/// Distance in bytes between two addresses that have a word in a shadow. Blocks that begin at other
/// addresses are in the hash table.
const GRAIN_BYTES: usize = 1 << shadow::GRAIN_BITS;
/// Binary logarithm of the size, in bytes, of a region that may have a shadow. A part of the live
/// table has all blocks of a region, or none of them.
pub(super) const REGION_BITS: u32 = shadow::GRAIN_BITS + SHADOW_WORDS.ilog2();
/// Mask of the bits of a slot that count blocks. They are the lower bits, because the rest of the
/// slot is a shadow's address, which is a multiple of 32 KiB.
const SLOT_COUNT_MASK: usize = SHADOW_BYTES - 1;
/// Number of a region's blocks in the hash table at which the region gets a shadow, while there are
/// few shadows. It is low because branch prediction is better if nearly all blocks are in shadows.
const MIN_BLOCKS_AT_FIRST: usize = 16;
/// Number of shadows (8 MiB in all) after which a region needs more blocks to get a shadow. This
/// saves memory.
const EARLY_SHADOW_LIMIT: usize = 256;
/// Number of a region's blocks in the hash table at which the region gets a shadow, once there are
/// [`EARLY_SHADOW_LIMIT`] shadows.
const MIN_BLOCKS_LATER: usize = 256;

/// Number of bits of an address.
const ADDRESS_BITS: u32 = 48;
/// Binary logarithm of the number of regions whose slots are in one table. Together these regions
/// have 8 GiB.
const SLOT_TABLE_BITS: u32 = 17;
const SLOT_TABLE_COUNT: usize = 1 << (ADDRESS_BITS - REGION_BITS - SLOT_TABLE_BITS);

/// A region's slot: the address of the region's shadow, if there is one, and the number of the
/// region's blocks that are in the hash table. A thread that may use the region's part of the live
/// table may write the slot.
pub(crate) struct ShadowSlot(AtomicUsize);

/// The shadows of regions, and the slots with their addresses.
pub(crate) struct RegionShadows {
    /// Addresses of the tables of slots.
    top: AtomicPtr<AtomicPtr<ShadowSlot>>,
    /// The shadows, in chunks, in the order in which regions got them. The first chunk has 16
    /// shadows, the next one 32, and so on. Behind the shadows of a chunk are the numbers of their
    /// regions.
    pub(crate) chunk: [AtomicPtr<u8>; shadow::MAX_SHADOW_CHUNKS],
    pub(crate) count: AtomicUsize,
    /// Number of a region's blocks in the hash table at which the region gets a shadow.
    min_blocks: AtomicUsize,
    /// Whether there was no memory for another shadow.
    is_full: AtomicBool,
}

/// Returns a pointer that marks a missing table: there was no memory for the table.
fn missing_table<T>() -> *mut T {
    std::ptr::without_provenance_mut(align_of::<T>())
}

/// Whether a pointer is the address of a table, and neither null nor the mark of a missing table.
#[inline(always)]
fn is_table_present<T>(table: *mut T) -> bool {
    table.addr() > align_of::<T>()
}

/// Whether a block of `size` bytes fits into a word: it must be smaller than 2 GiB.
#[inline(always)]
pub(super) fn fits(size: u64) -> bool {
    size < shadow::PRESENT_FLAG >> 32
}

/// Unpacks the block in a word that is not 0.
#[inline(always)]
fn unpack_block(word: u64) -> LiveBlock {
    LiveBlock {
        stack: StackNumber::from_u32(word as u32),
        size: (word & !shadow::PRESENT_FLAG) >> 32,
    }
}

/// Returns the number of the region that contains an address.
#[inline(always)]
pub(super) fn region_number(address: usize) -> usize {
    address >> REGION_BITS
}

/// Returns the addresses in a region that have a word in a shadow.
pub(super) fn block_addresses(region: usize) -> impl Iterator<Item = usize> {
    (0..SHADOW_WORDS).map(move |i| (region << REGION_BITS) + i * GRAIN_BYTES)
}

/// The address of a block's word in a shadow.
#[derive(Clone, Copy)]
pub(super) struct ShadowWord(*mut u64);

/// The value of a [`ShadowSlot`] at one moment.
#[derive(Clone, Copy)]
pub(super) struct SlotValue(usize);

impl ShadowSlot {
    #[inline(always)]
    pub(super) fn get(&self) -> SlotValue {
        SlotValue(self.0.load(Ordering::Relaxed))
    }

    /// Increments the number of blocks in the hash table. `held` is the slot's current value.
    #[inline(always)]
    pub(super) fn add(&self, held: SlotValue) {
        self.0.store(held.0 + 1, Ordering::Relaxed);
    }

    /// Decrements the number of blocks in the hash table. `held` is the slot's current value.
    #[inline(always)]
    pub(super) fn subtract(&self, held: SlotValue) {
        // In a child of a thread that was interrupted, the table may have a block that was not
        // counted.
        let one = usize::from(held.hashed_blocks() != 0);
        self.0.store(held.0 - one, Ordering::Relaxed);
    }

    /// Sets the number of blocks in the hash table to 0.
    pub(super) fn clear(&self) {
        self.0.fetch_and(!SLOT_COUNT_MASK, Ordering::Relaxed);
    }
}

impl SlotValue {
    /// Returns how many blocks of the region are in the hash table.
    #[inline(always)]
    pub(super) fn hashed_blocks(self) -> usize {
        self.0 & SLOT_COUNT_MASK
    }

    /// Returns the shadow's word for an address, if there is one.
    #[inline(always)]
    pub(super) fn word(self, address: usize) -> Option<ShadowWord> {
        if self.0 <= SLOT_COUNT_MASK || !address.is_multiple_of(GRAIN_BYTES) {
            return None;
        }
        let shadow = std::ptr::with_exposed_provenance_mut::<u64>(self.0 & !SLOT_COUNT_MASK);
        Some(ShadowWord(
            shadow.wrapping_add(address / GRAIN_BYTES % SHADOW_WORDS),
        ))
    }
}

impl ShadowWord {
    /// Stores a block in the word, and returns the earlier block. The block must [fit](fits).
    #[inline(always)]
    pub(super) fn put(self, block: LiveBlock) -> Option<LiveBlock> {
        let word = shadow::PRESENT_FLAG | block.size << 32 | u64::from(block.stack.to_u32());
        // SAFETY: it is inside a shadow, because `SlotValue::word` takes the place modulo its
        // length, and the caller may use the region.
        let old = unsafe { self.0.replace(word) };
        (old != 0).then(|| unpack_block(old))
    }

    /// Removes the block from the word and returns it.
    #[inline(always)]
    pub(super) fn take(self) -> Option<LiveBlock> {
        // SAFETY: it is inside a shadow, as in `put`, and the caller may use the region.
        let old = unsafe { self.0.replace(0) };
        (old != 0).then(|| unpack_block(old))
    }

    /// Returns the word's address, for a prefetch.
    #[inline(always)]
    pub(super) fn place(self) -> *const u8 {
        self.0.cast_const().cast()
    }
}

impl RegionShadows {
    pub(super) const fn new() -> Self {
        Self {
            top: AtomicPtr::new(std::ptr::null_mut()),
            chunk: [const { AtomicPtr::new(std::ptr::null_mut()) }; shadow::MAX_SHADOW_CHUNKS],
            count: AtomicUsize::new(0),
            min_blocks: AtomicUsize::new(MIN_BLOCKS_AT_FIRST),
            is_full: AtomicBool::new(false),
        }
    }

    /// Whether a region with this slot is to get a shadow.
    #[inline(always)]
    pub(super) fn is_due(&self, held: SlotValue) -> bool {
        held.0 >= self.min_blocks.load(Ordering::Relaxed) && held.0 <= SLOT_COUNT_MASK
    }

    /// Returns the slot of the region that contains an address; `None` if there is no table for the
    /// slot.
    #[inline(always)]
    pub(super) fn slot(&self, address: usize) -> Option<&ShadowSlot> {
        let region = region_number(address);
        let (table, place) = (region >> SLOT_TABLE_BITS, region % (1 << SLOT_TABLE_BITS));
        let top = self.top.load(Ordering::Acquire);
        if !is_table_present(top) || table >= SLOT_TABLE_COUNT {
            return None;
        }
        // SAFETY: `top` has `SLOT_TABLE_COUNT` of them.
        let table = unsafe { &*top.add(table) }.load(Ordering::Acquire);
        if !is_table_present(table) {
            return None;
        }
        // SAFETY: a table has a slot for each value that `place` can have.
        Some(unsafe { &*table.add(place) })
    }

    /// Returns the slot of the region that contains an address. Returns `None` if there is no
    /// memory for the slot. Later calls then return `None`, too.
    #[inline(always)]
    pub(super) fn slot_or_new(&self, address: usize, pages: &PageSource) -> Option<&ShadowSlot> {
        match self.slot(address) {
            found @ Some(_) => found,
            None => self.new_slot(address, pages),
        }
    }

    #[cold]
    fn new_slot(&self, address: usize, pages: &PageSource) -> Option<&ShadowSlot> {
        let table = region_number(address) >> SLOT_TABLE_BITS;
        let top = find_or_make_table(&self.top, SLOT_TABLE_COUNT, pages);
        if top == missing_table() || table >= SLOT_TABLE_COUNT {
            return None;
        }
        // SAFETY: `top` has `SLOT_TABLE_COUNT` of them.
        let table = unsafe { &*top.add(table) };
        match find_or_make_table(table, 1 << SLOT_TABLE_BITS, pages) == missing_table() {
            true => None,
            false => self.slot(address),
        }
    }

    /// Gives a region an empty shadow. Returns false if there is no memory for it.
    #[cold]
    pub(super) fn add(&self, slot: &ShadowSlot, region: usize, pages: &PageSource) -> bool {
        if self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if number >= EARLY_SHADOW_LIMIT {
            self.min_blocks.store(MIN_BLOCKS_LATER, Ordering::Relaxed);
        }
        let (chunk, place) = shadow::locate_shadow(number as u64);
        let Some(at) = self.chunk.get(chunk) else {
            self.is_full.store(true, Ordering::Relaxed);
            return false;
        };
        let len = shadow::chunk_len(chunk) as usize;
        let bytes = len * (SHADOW_BYTES + 8);
        let begin = pages.map_once(
            at,
            bytes,
            SHADOW_BYTES,
            TableLifetime::Own,
            TableFill::Dense,
        );
        if begin.is_null() {
            self.is_full.store(true, Ordering::Relaxed);
            return false;
        }
        // SAFETY: `place` is below the chunk's number of shadows, and behind the shadows lie as
        // many numbers.
        let new = unsafe {
            region_number_place(begin, chunk, place).store(region as u64, Ordering::Release);
            begin.add(place as usize * SHADOW_BYTES).expose_provenance()
        };
        slot.0
            .store(new | slot.get().hashed_blocks(), Ordering::Release);
        true
    }

    /// Empties all shadows. No part of the hash table is in use meanwhile.
    pub(super) fn clear(&self, pages: &PageSource) {
        let count = self.count.load(Ordering::Acquire) as u64;
        for number in 0..count {
            let (chunk, place) = shadow::locate_shadow(number);
            if let Some(begin) = self.begin(chunk) {
                // SAFETY: behind its shadows a chunk has as many numbers, and `place` is below
                // that.
                let region =
                    unsafe { region_number_place(begin, chunk, place) }.load(Ordering::Relaxed);
                if let Some(slot) = self.slot((region as usize) << REGION_BITS) {
                    slot.clear();
                }
            }
        }
        for (chunk, first) in
            (0..shadow::MAX_SHADOW_CHUNKS).map(|chunk| (chunk, shadow::first_shadow(chunk)))
        {
            let used = count.saturating_sub(first).min(shadow::chunk_len(chunk));
            if let (Some(begin), 1..) = (self.begin(chunk), used) {
                // SAFETY: whole shadows, which are whole pages, and no thread uses them now.
                unsafe { pages.clear_pages(begin, used as usize * SHADOW_BYTES) };
            }
        }
    }

    /// Returns the address at which a chunk begins, if the chunk exists.
    fn begin(&self, chunk: usize) -> Option<*mut u8> {
        let begin = self.chunk.get(chunk)?.load(Ordering::Acquire);
        (!begin.is_null()).then_some(begin)
    }

    /// Returns how many bytes of the shadows and slots are resident.
    pub(super) fn resident(&self, pages: &PageSource) -> usize {
        let chunks = self.chunk.iter().enumerate().map(|(i, chunk)| {
            let at = chunk.load(Ordering::Acquire);
            match at.is_null() {
                true => 0,
                false => pages.resident(at, shadow::chunk_len(i) as usize * (SHADOW_BYTES + 8)),
            }
        });
        let top = self.top.load(Ordering::Acquire);
        let tables = match is_table_present(top) {
            // SAFETY: `top` has `SLOT_TABLE_COUNT` of them.
            true => unsafe { std::slice::from_raw_parts(top, SLOT_TABLE_COUNT) },
            false => &[],
        };
        let slots = tables.iter().map(|table| {
            let at = table.load(Ordering::Acquire);
            match is_table_present(at) {
                true => pages.resident(at.cast(), size_of::<ShadowSlot>() << SLOT_TABLE_BITS),
                false => 0,
            }
        });
        chunks.sum::<usize>() + slots.sum::<usize>()
    }
}

/// Returns the word that has the number of a shadow's region. `place` is the index of the shadow in
/// its chunk.
///
/// # Safety
/// A chunk with the number `chunk` begins at `begin`, and `place` is below its length.
unsafe fn region_number_place<'a>(begin: *mut u8, chunk: usize, place: u64) -> &'a AtomicU64 {
    let numbers = begin.wrapping_add(shadow::chunk_len(chunk) as usize * SHADOW_BYTES);
    // SAFETY: the caller's promise. A chunk is never unmapped.
    unsafe { &*numbers.cast::<AtomicU64>().add(place as usize) }
}

/// Returns the table whose address is in `at`. If there is no table yet, makes a table with `len`
/// entries. Returns [`missing_table`] if there is no memory for it. Later calls then return this,
/// too.
fn find_or_make_table<T>(at: &AtomicPtr<T>, len: usize, pages: &PageSource) -> *mut T {
    let bytes = len * size_of::<T>();
    let made = pages.map_once(
        at,
        bytes,
        sys::PAGE_SIZE,
        TableLifetime::Own,
        TableFill::Sparse,
    );
    if !made.is_null() {
        return made;
    }
    let null = std::ptr::null_mut();
    match at.compare_exchange(null, missing_table(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => missing_table(),
        // Another thread was first, with memory or without.
        Err(made) => made,
    }
}

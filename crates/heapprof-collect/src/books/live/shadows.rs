//! A word for each place that a block may have, where blocks lie close together.
//!
//! Blocks that are allocated one after the other mostly lie side by side, and end one after the
//! other. So do their words, and the processor has mostly fetched them already. In a hash table
//! each block is a miss of its own.
//!
//! A region of 64 KiB in which many blocks are known gets a shadow of 32 KiB: 8 bytes for every 16.
//! Where blocks have 64 bytes, that is 32 for each, as much as in the hash table. It is never more
//! than 256 for each block that was there when the shadow was made, or half of the region.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use heapprof_books::shadow;

use crate::books::live::table::Block;
use crate::platform::kept::Lot;
use crate::platform::pages::Pages;

/// The words of a region.
pub(super) const WORDS: usize = shadow::WORDS;
const BYTES: usize = WORDS * 8;
/// Bytes of memory for each word. Blocks that begin elsewhere are in the hash table.
const GRAIN: usize = 1 << shadow::GRAIN_BITS;
/// Regions of so many bytes have a shadow, as a power of two. A part of the table has all blocks of
/// a region, or none.
pub(super) const REGION_BITS: u32 = shadow::GRAIN_BITS + WORDS.ilog2();
/// The part of a slot that counts. A shadow's address is a multiple of 32 KiB.
const COUNT: usize = BYTES - 1;
/// If so many of a region's blocks are in the hash table, it gets a shadow.
const MANY: usize = 128;

/// The bits of an address.
const ADDRESS_BITS: u32 = 48;
/// How many regions have their slots in one table, as a power of two: those of 8 GiB.
const TABLE_BITS: u32 = 17;
const TABLES: usize = 1 << (ADDRESS_BITS - REGION_BITS - TABLE_BITS);

/// The address of a region's shadow, if it has one, and how many of its blocks are in the hash
/// table. Whoever may use the region's part of the hash table may write it.
pub(crate) struct Slot(AtomicUsize);

/// The shadows of regions, and where to find them.
pub(crate) struct Shadows {
    /// The tables of slots.
    top: AtomicPtr<AtomicPtr<Slot>>,
    /// The shadows in the order in which regions got them, in chunks of 16, 32, 64 and so on.
    /// Behind the shadows of each are the numbers of their regions.
    pub(crate) chunk: [AtomicPtr<u8>; shadow::CHUNKS],
    pub(crate) count: AtomicUsize,
    /// Whether there was no memory for one more.
    is_full: AtomicBool,
}

/// Stands for a table for which there was no memory.
fn none<T>() -> *mut T {
    std::ptr::without_provenance_mut(align_of::<T>())
}

/// What a word is for a block; `None` for one of 2 GiB or more.
#[inline(always)]
fn word_of(block: Block) -> Option<u64> {
    let is_fit = block.size < shadow::PRESENT >> 32;
    is_fit.then_some(shadow::PRESENT | block.size << 32 | u64::from(block.stack))
}

/// The block of a word that is not 0.
#[inline(always)]
fn block_of(word: u64) -> Block {
    Block {
        stack: word as u32,
        size: (word & !shadow::PRESENT) >> 32,
    }
}

/// The region of an address.
#[inline(always)]
pub(super) fn region_of(address: usize) -> usize {
    address >> REGION_BITS
}

/// The addresses of a region at which blocks may be that have a word.
pub(super) fn places(region: usize) -> impl Iterator<Item = usize> {
    (0..WORDS).map(move |i| (region << REGION_BITS) + i * GRAIN)
}

/// A region's shadow, or none.
#[derive(Clone, Copy)]
pub(super) struct Shadow(*mut u64);

impl Slot {
    /// How many blocks of the region are in the hash table.
    #[inline(always)]
    pub(super) fn hashed(&self) -> usize {
        self.0.load(Ordering::Relaxed) & COUNT
    }

    /// Notes that one more is there.
    #[inline(always)]
    pub(super) fn add(&self) {
        let slot = self.0.load(Ordering::Relaxed);
        self.0.store(slot + 1, Ordering::Relaxed);
    }

    /// Notes that one of them is gone.
    #[inline(always)]
    pub(super) fn subtract(&self) {
        let slot = self.0.load(Ordering::Relaxed);
        self.0.store(slot - 1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn shadow(&self) -> *mut u64 {
        let slot = self.0.load(Ordering::Relaxed);
        std::ptr::with_exposed_provenance_mut(slot & !COUNT)
    }

    /// The word of an address, if it has one.
    #[inline(always)]
    pub(super) fn word(&self, address: usize) -> Option<Shadow> {
        let shadow = self.shadow();
        let has_word = !shadow.is_null() && address.is_multiple_of(GRAIN);
        has_word.then(|| Shadow(shadow.wrapping_add(address / GRAIN % WORDS)))
    }

    /// Whether the region is to get a shadow.
    #[inline(always)]
    pub(super) fn wants_shadow(&self) -> bool {
        let slot = self.0.load(Ordering::Relaxed);
        (MANY..=COUNT).contains(&slot)
    }
}

impl Shadow {
    /// Puts a block there, and returns the one that was. `None` if it has none of these words.
    #[inline(always)]
    pub(super) fn put(self, block: Block) -> Option<Option<Block>> {
        let word = word_of(block)?;
        // SAFETY: it is inside a shadow, and the caller may use the region.
        let old = unsafe { self.0.replace(word) };
        Some((old != 0).then(|| block_of(old)))
    }

    /// Takes the block that is there.
    #[inline(always)]
    pub(super) fn take(self) -> Option<Block> {
        // SAFETY: as above.
        let old = unsafe { self.0.replace(0) };
        (old != 0).then(|| block_of(old))
    }

    /// Where it is, for the cache.
    #[inline(always)]
    pub(super) fn place(self) -> *const u8 {
        self.0.cast_const().cast()
    }
}

impl Shadows {
    pub(super) const fn new() -> Self {
        Self {
            top: AtomicPtr::new(std::ptr::null_mut()),
            chunk: [const { AtomicPtr::new(std::ptr::null_mut()) }; shadow::CHUNKS],
            count: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
        }
    }

    /// The slot of an address's region, if there is a table with it.
    #[inline(always)]
    pub(super) fn slot(&self, address: usize) -> Option<&Slot> {
        let region = region_of(address);
        let (table, place) = (region >> TABLE_BITS, region % (1 << TABLE_BITS));
        let top = self.top.load(Ordering::Acquire);
        if top.is_null() || table >= TABLES || top == none() {
            return None;
        }
        // SAFETY: there are so many.
        let table = unsafe { &*top.add(table) }.load(Ordering::Acquire);
        if table.is_null() || table == none() {
            return None;
        }
        // SAFETY: a table has so many slots.
        Some(unsafe { &*table.add(place) })
    }

    /// The slot of an address's region. `None` if there is no memory for it, now and later on.
    #[inline(always)]
    pub(super) fn slot_or_new(&self, address: usize, pages: &Pages) -> Option<&Slot> {
        match self.slot(address) {
            found @ Some(_) => found,
            None => self.new_slot(address, pages),
        }
    }

    #[cold]
    fn new_slot(&self, address: usize, pages: &Pages) -> Option<&Slot> {
        let table = region_of(address) >> TABLE_BITS;
        let top = make(&self.top, TABLES, pages);
        if top == none() || table >= TABLES {
            return None;
        }
        // SAFETY: there are so many.
        let table = unsafe { &*top.add(table) };
        match make(table, 1 << TABLE_BITS, pages) == none() {
            true => None,
            false => self.slot(address),
        }
    }

    /// Gives a region a shadow, in which nothing is yet. Returns false if there is no memory for
    /// it.
    #[cold]
    pub(super) fn add(&self, slot: &Slot, region: usize, pages: &Pages) -> bool {
        if self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let (chunk, place) = shadow::place(number as u64);
        let place = place as usize;
        let Some(at) = self.chunk.get(chunk) else {
            self.is_full.store(true, Ordering::Relaxed);
            return false;
        };
        let len = shadow::len(chunk) as usize;
        let mut begin = at.load(Ordering::Acquire);
        if begin.is_null() {
            // One more, so that the first one can be put in its place.
            let bytes = len * (BYTES + 8) + BYTES;
            let new = pages.map_dense(bytes, Lot::Own);
            if new.is_null() {
                self.is_full.store(true, Ordering::Relaxed);
                return false;
            }
            let aligned = new.map_addr(|at| at.next_multiple_of(BYTES));
            let null = std::ptr::null_mut();
            match at.compare_exchange(null, aligned, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => begin = aligned,
                Err(other) => {
                    // SAFETY: nobody saw this mapping: another thread was first.
                    unsafe { pages.unmap(new, bytes) };
                    begin = other;
                }
            }
        }
        // SAFETY: the chunk has so many shadows, and behind them as many numbers. This place is the
        // region's alone.
        unsafe {
            let numbers = begin.add(len * BYTES).cast::<u64>();
            numbers.add(place).write(region as u64);
            let new = begin.add(place * BYTES).expose_provenance();
            slot.0.store(new | slot.hashed(), Ordering::Release);
        }
        true
    }

    /// Empties the shadows of the regions that `is_meant` says.
    pub(super) fn clear(&self, is_meant: impl Fn(usize) -> bool) {
        for (_, begin) in self.all().filter(|&(region, _)| is_meant(region)) {
            // SAFETY: a whole shadow, and the caller may use the region.
            unsafe { begin.write_bytes(0, WORDS) };
        }
    }

    /// All shadows, with the regions whose they are.
    fn all(&self) -> impl Iterator<Item = (usize, *mut u64)> {
        let count = self.count.load(Ordering::Acquire);
        (0..count).filter_map(|number| {
            let (chunk, place) = shadow::place(number as u64);
            let (len, place) = (shadow::len(chunk) as usize, place as usize);
            let begin = self.chunk.get(chunk)?.load(Ordering::Acquire);
            if begin.is_null() {
                return None;
            }
            // SAFETY: as in `add`. A number that is not written yet is 0, which is no region's.
            unsafe {
                let numbers = begin.add(len * BYTES).cast::<u64>();
                let region = numbers.add(place).read() as usize;
                (region != 0).then(|| (region, begin.add(place * BYTES).cast()))
            }
        })
    }

    /// How many bytes of the shadows and slots are in memory.
    pub(super) fn resident(&self, pages: &Pages) -> usize {
        let chunks = self.chunk.iter().enumerate().map(|(i, chunk)| {
            let at = chunk.load(Ordering::Acquire);
            match at.is_null() {
                true => 0,
                false => pages.resident(at, shadow::len(i) as usize * (BYTES + 8)),
            }
        });
        let top = self.top.load(Ordering::Acquire);
        if top.is_null() || top == none() {
            return 0;
        }
        // SAFETY: there are so many.
        let tables = unsafe { std::slice::from_raw_parts(top, TABLES) };
        let slots = tables.iter().map(|table| {
            let at = table.load(Ordering::Acquire);
            match at.is_null() || at == none() {
                true => 0,
                false => pages.resident(at.cast(), size_of::<Slot>() << TABLE_BITS),
            }
        });
        chunks.sum::<usize>() + slots.sum::<usize>()
    }
}

/// The table that `at` points to, which is made with so many entries if there is none; [`none`] if
/// there is no memory for it, now or before.
fn make<T>(at: &AtomicPtr<T>, len: usize, pages: &Pages) -> *mut T {
    let found = at.load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    let bytes = len * size_of::<T>();
    let mut new = pages.map(bytes, Lot::Own).cast::<T>();
    if new.is_null() {
        new = none();
    }
    let null = std::ptr::null_mut();
    match at.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(other) => {
            if new != none() {
                // SAFETY: nobody saw this mapping: another thread was first.
                unsafe { pages.unmap(new.cast(), bytes) };
            }
            other
        }
    }
}

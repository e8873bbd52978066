//! A global allocator on private mappings, for allocations of the engine's cold code inside the
//! program.
//!
//! libheapprof.so uses this allocator instead of malloc, which belongs to the program. Sizes are
//! rounded up to powers of two, and each size has a list of free blocks. A block of more than 32
//! KiB is a separate mapping, which is unmapped when the block is freed.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::{ForkLock, LockedValue, WaitPolicy, rank};
use crate::sys::{self, PAGE_SIZE};

/// The state of the allocator: a list of free blocks for each size, the mappings, and the reserve.
pub struct EngineArena {
    lists: LockedValue<{ rank::ARENA }, ArenaLists>,
    /// Whether any spare block is in use.
    spare: AtomicBool,
}

struct ArenaLists {
    free: [*mut u8; CLASS_COUNT],
    at: *mut u8,
    left: usize,
    /// Address of the reserve: memory that is used when the kernel provides no memory any more.
    reserve: *mut u8,
    /// Number of unused bytes of the reserve. The unused bytes are at its start.
    reserve_left: usize,
    /// Length of the reserve in bytes.
    reserve_len: usize,
    /// Number of blocks in use that came from [`EngineArena::spare`].
    spare_blocks: usize,
    /// Start and length of each free range that spare blocks are cut from.
    spare: [(usize, usize); 64],
    /// Start and length of each earlier reserve that still has spare blocks in use.
    earlier: [(usize, usize); 16],
    /// Number of bytes of all chunks that small blocks are cut from.
    chunks: usize,
    /// Start and length of each block that is a separate mapping.
    mapped: [(usize, usize); 64],
    /// Total length in bytes of the blocks that are separate mappings, but are missing in `mapped`,
    /// because that list is full.
    unlisted: usize,
}

// SAFETY: the lists are reached only under their lock.
unsafe impl Send for ArenaLists {}

const MIN_CLASS_BITS: u32 = 4;
const MAX_SMALL_BLOCK: usize = 32 << 10;
const CLASS_COUNT: usize = (MAX_SMALL_BLOCK.ilog2() - MIN_CLASS_BITS + 1) as usize;
const CHUNK_LEN: usize = 128 << 10;

impl ArenaLists {
    /// Returns pages from the kernel, or else from the reserve.
    fn pages(&mut self, len: usize) -> *mut u8 {
        let mapped = sys::map_dense(len);
        if !mapped.is_null() || self.reserve_left < len {
            return mapped;
        }
        self.reserve_left -= len;
        // SAFETY: the remaining part of the reserve is at its start.
        unsafe { self.reserve.add(self.reserve_left) }
    }

    /// Updates the list of mappings: removes `old` and adds `new`. Each is a start and a length, or
    /// zeros for no mapping.
    fn remap(&mut self, old: (usize, usize), new: (usize, usize)) {
        for (wanted, becomes) in [(old, (0, 0)), ((0, 0), new)] {
            let bytes = wanted.1 + becomes.1;
            if bytes == 0 {
                continue;
            }
            match self.mapped.iter_mut().find(|mapping| **mapping == wanted) {
                Some(mapping) => *mapping = becomes,
                None if wanted.1 == 0 => self.unlisted += bytes,
                // A block of a reserve that was given up since is in no list.
                None => self.unlisted = self.unlisted.saturating_sub(bytes),
            }
        }
    }

    /// Takes a spare block from the first free range of the reserve that is large enough.
    fn spare(&mut self, layout: Layout) -> *mut u8 {
        let size = spare_size(layout);
        for i in 0..self.spare.len() {
            let (start, len) = self.spare[i];
            let skip = start.next_multiple_of(layout.align()) - start;
            if len < skip + size {
                continue;
            }
            self.spare[i] = (start + skip + size, len - skip - size);
            self.add_spare(start, skip);
            self.spare_blocks += 1;
            return std::ptr::with_exposed_provenance_mut(start + skip);
        }
        std::ptr::null_mut()
    }

    /// Adds a free range from which spare blocks can be cut, if the list has room for it.
    fn add_spare(&mut self, mut start: usize, mut len: usize) {
        if len == 0 {
            return;
        }
        for range in &mut self.spare {
            if range.1 > 0 && (range.0 + range.1 == start || start + len == range.0) {
                (start, len) = (start.min(range.0), len + range.1);
                *range = (0, 0);
            }
        }
        if let Some(free) = self.spare.iter_mut().find(|(_, len)| *len == 0) {
            *free = (start, len);
        }
    }

    /// Makes a spare block free again.
    fn take_back(&mut self, block: *mut u8, layout: Layout) {
        self.spare_blocks -= 1;
        if self.spare_blocks > 0 {
            return self.add_spare(block.addr(), spare_size(layout));
        }
        for (start, len) in std::mem::take(&mut self.earlier) {
            if len > 0 {
                // SAFETY: it is an earlier reserve, and nothing of it is in use.
                unsafe { sys::unmap(std::ptr::with_exposed_provenance_mut(start), len) };
            }
        }
        self.spare.fill((0, 0));
        self.add_spare(self.reserve.addr(), self.reserve_len);
    }

    fn is_reserve(&self, block: *mut u8) -> bool {
        let holds = |(start, len): (usize, usize)| block.addr().wrapping_sub(start) < len;
        holds((self.reserve.addr(), self.reserve_len)) || self.earlier.into_iter().any(holds)
    }
}

impl EngineArena {
    /// Makes an arena with nothing mapped yet.
    pub const fn new() -> Self {
        Self {
            lists: LockedValue::new(ArenaLists {
                free: [std::ptr::null_mut(); CLASS_COUNT],
                at: std::ptr::null_mut(),
                left: 0,
                reserve: std::ptr::null_mut(),
                reserve_left: 0,
                reserve_len: 0,
                spare_blocks: 0,
                spare: [(0, 0); 64],
                earlier: [(0, 0); 16],
                chunks: 0,
                mapped: [(0, 0); 64],
                unlisted: 0,
            }),
            spare: AtomicBool::new(false),
        }
    }

    /// Returns the lock that fork must take.
    pub fn locks(&self) -> [&dyn ForkLock; 1] {
        let Self { lists, spare: _ } = self;
        [&lists.lock]
    }

    /// Sets `len` bytes aside as a reserve for later allocations, which must not fail. Returns
    /// false if there is not enough memory.
    ///
    /// The reserve is needed because std aborts the process when an allocation fails, and the
    /// process belongs to the program.
    pub fn reserve(&self, process: &impl WaitPolicy, len: usize) -> bool {
        let len = round_to_pages(len);
        self.lists.with(process, |lists| {
            let spare = lists.spare.iter().map(|(_, len)| *len).max();
            if lists.reserve_left >= len && spare >= Some(len) {
                return true;
            }
            let new = sys::map(len);
            if new.is_null() {
                return false;
            }
            if lists.spare_blocks > 0 {
                let is_full = lists.spare.iter().all(|(_, len)| *len > 0);
                let mut earlier = lists.earlier.iter_mut();
                let Some(free) = earlier.find(|(_, len)| *len == 0 && !is_full) else {
                    // SAFETY: no other code knows of the new reserve yet.
                    unsafe { sys::unmap(new, len) };
                    return false;
                };
                *free = (lists.reserve.addr(), lists.reserve_len);
            } else {
                if lists.reserve_left == lists.reserve_len && lists.reserve_len > 0 {
                    // SAFETY: nothing of the old reserve is in use.
                    unsafe { sys::unmap(lists.reserve, lists.reserve_len) };
                }
                lists.spare.fill((0, 0));
            }
            lists.add_spare(new.expose_provenance(), len);
            (lists.reserve, lists.reserve_left, lists.reserve_len) = (new, len, len);
            true
        })
    }

    /// Returns how many bytes of the arena are resident.
    pub fn resident(&self, process: &impl WaitPolicy) -> usize {
        let (cut, reserve, earlier, mapped) = self.lists.with(process, |lists| {
            let cut = lists.chunks.saturating_sub(lists.left) + lists.unlisted;
            let reserve = (lists.reserve.addr(), lists.reserve_len);
            (cut, reserve, lists.earlier, lists.mapped)
        });
        let all = mapped.into_iter().chain(earlier).chain([reserve]);
        let all = all.filter(|(_, len)| *len > 0);
        cut + all
            .map(|(at, len)| sys::resident(std::ptr::without_provenance(at), len))
            .sum::<usize>()
    }

    /// Takes a spare block from the reserve. It serves an allocation of the engine for which the
    /// program's allocator has no memory. Returns null when the reserve is used up.
    #[cold]
    pub fn spare(&self, process: &impl WaitPolicy, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE_SIZE {
            return std::ptr::null_mut();
        }
        self.lists.with(process, |lists| {
            let block = lists.spare(layout);
            self.spare.store(lists.spare_blocks > 0, Ordering::Relaxed);
            block
        })
    }

    /// Whether a block came from [`spare`](Self::spare).
    #[inline(always)]
    pub fn is_spare(&self, process: &impl WaitPolicy, block: *mut u8) -> bool {
        self.spare.load(Ordering::Relaxed)
            && self.lists.with(process, |lists| lists.is_reserve(block))
    }

    /// Frees a spare block.
    ///
    /// # Safety
    /// The block came from [`spare`](Self::spare) with this layout, and nothing uses it any more.
    #[cold]
    pub unsafe fn free_spare(&self, process: &impl WaitPolicy, block: *mut u8, layout: Layout) {
        self.lists.with(process, |lists| {
            lists.take_back(block, layout);
            self.spare.store(lists.spare_blocks > 0, Ordering::Relaxed);
        });
    }
}

fn size_class(layout: Layout) -> Option<usize> {
    let size = layout
        .size()
        .max(layout.align())
        .max(1 << MIN_CLASS_BITS)
        .next_power_of_two();
    (size <= MAX_SMALL_BLOCK).then(|| (size.ilog2() - MIN_CLASS_BITS) as usize)
}

/// Returns how many bytes of the reserve a spare block takes.
fn spare_size(layout: Layout) -> usize {
    layout.size().next_multiple_of(64)
}

fn round_to_pages(size: usize) -> usize {
    size.next_multiple_of(PAGE_SIZE)
}

/// A global allocator that consists of an arena and the process's [`WaitPolicy`].
pub struct EngineAllocator<'a, P>(pub &'a EngineArena, pub &'a P);

impl<P: WaitPolicy> EngineAllocator<'_, P> {
    fn with<R>(&self, use_it: impl FnOnce(&mut ArenaLists) -> R) -> R {
        self.0.lists.with(self.1, use_it)
    }
}

// SAFETY: blocks are disjoint pieces of private mappings. Each is as large as its power of two, or
// whole pages. It is aligned to its size, or to a page if its size is more than a page. A layout
// whose alignment is more than a page is refused.
unsafe impl<P: WaitPolicy> GlobalAlloc for EngineAllocator<'_, P> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE_SIZE {
            return std::ptr::null_mut();
        }
        let Some(class) = size_class(layout) else {
            return self.with(|lists| {
                let len = round_to_pages(layout.size());
                let block = lists.pages(len);
                if !block.is_null() && !lists.is_reserve(block) {
                    lists.remap((0, 0), (block.addr(), len));
                }
                block
            });
        };
        self.with(|lists| {
            let head = lists.free[class];
            if !head.is_null() {
                // SAFETY: a free block's first word is the next one.
                lists.free[class] = unsafe { head.cast::<*mut u8>().read() };
                return head;
            }
            let size = 1usize << (class as u32 + MIN_CLASS_BITS);
            // The chunk is page-aligned. A block of up to a page is cut at a multiple of its size,
            // so it is aligned to its size. A larger block is cut at a multiple of the page size,
            // so it is aligned to a page.
            let skip = lists.at.addr().next_multiple_of(size.min(PAGE_SIZE)) - lists.at.addr();
            if lists.left < size + skip {
                let chunk = lists.pages(CHUNK_LEN);
                if chunk.is_null() {
                    return chunk;
                }
                (lists.at, lists.left) = (chunk, CHUNK_LEN);
                // The reserve is counted as a whole.
                lists.chunks += if lists.is_reserve(chunk) {
                    0
                } else {
                    CHUNK_LEN
                };
            } else {
                // SAFETY: `skip` is left.
                lists.at = unsafe { lists.at.add(skip) };
                lists.left -= skip;
            }
            let block = lists.at;
            // SAFETY: `size` is left.
            lists.at = unsafe { block.add(size) };
            lists.left -= size;
            block
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match size_class(layout) {
            Some(class) => self.with(|lists| {
                // SAFETY: the block is free and at least a word.
                unsafe { block.cast::<*mut u8>().write(lists.free[class]) };
                lists.free[class] = block;
            }),
            None => {
                let len = round_to_pages(layout.size());
                let is_mapped = self.with(|lists| {
                    let is_mapped = !lists.is_reserve(block);
                    if is_mapped {
                        lists.remap((block.addr(), len), (0, 0));
                    }
                    is_mapped
                });
                if is_mapped {
                    // SAFETY: it was mapped by `alloc` with this size.
                    unsafe { sys::unmap(block, len) };
                }
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps to GlobalAlloc's contract.
        let block = unsafe { self.alloc(layout) };
        // A fresh mapping is zeros, and pages that are not written take no memory.
        let is_fresh = size_class(layout).is_none() && !self.with(|lists| lists.is_reserve(block));
        if !block.is_null() && !is_fresh {
            // SAFETY: a block of this size was given just now.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps to GlobalAlloc's contract.
        unsafe {
            let new_layout = Layout::from_size_align_unchecked(size, layout.align());
            match (size_class(layout), size_class(new_layout)) {
                (Some(old), Some(new)) if old == new => return block,
                (None, None) if !self.with(|lists| lists.is_reserve(block)) => {
                    let (len, new_len) = (round_to_pages(layout.size()), round_to_pages(size));
                    let moved = sys::remap(block, len, new_len);
                    if !moved.is_null() {
                        let (old, new) = ((block.addr(), len), (moved.addr(), new_len));
                        self.with(|lists| lists.remap(old, new));
                        return moved;
                    }
                }
                _ => {}
            }
            let new = self.alloc(new_layout);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(block, new, size.min(layout.size()));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::lock::tests::TestProcess;

    #[test]
    fn spare_blocks_are_of_the_reserve_and_come_back() {
        let (arena, process) = (EngineArena::new(), TestProcess);
        let layout = |size: usize, align| Layout::from_size_align(size, align).unwrap();
        let len = 1 << 20;
        assert!(arena.reserve(&process, len));
        for round in 0..3 {
            let mut all = Vec::new();
            let mut total = 0;
            for i in 0.. {
                let layout = layout(1 + i * 1237 % 50_000, 1 << (i % 10));
                let block = arena.spare(&process, layout);
                if block.is_null() {
                    break;
                }
                assert!(
                    arena.is_spare(&process, block) && block.addr().is_multiple_of(layout.align())
                );
                // SAFETY: the block is as large as was asked for.
                unsafe { block.write_bytes(i as u8, layout.size()) };
                total += layout.size();
                all.push((block, layout));
                if i % 5 == 0 {
                    let (block, layout) = all.swap_remove(i * 7 % all.len());
                    // SAFETY: the block was given above, and is not used any more.
                    unsafe { arena.free_spare(&process, block, layout) };
                }
            }
            assert!(total > len / 2, "{round}: {total}");
            all.sort_unstable_by_key(|(block, _)| block.addr());
            for pair in all.windows(2) {
                assert!(pair[0].0.addr() + pair[0].1.size() <= pair[1].0.addr());
            }
            for (block, layout) in all {
                // SAFETY: the block came from `spare` with this layout, and is not used any more.
                unsafe { arena.free_spare(&process, block, layout) };
                assert!(arena.is_spare(&process, block) == arena.spare.load(Ordering::Relaxed));
            }
        }
        assert!(
            !arena.is_spare(&process, std::ptr::null_mut())
                && arena.spare(&process, layout(1, 2 * PAGE_SIZE)).is_null()
        );
    }

    #[test]
    fn what_is_in_memory_is_counted_once() {
        let (arena, process) = (EngineArena::new(), TestProcess);
        let allocator = EngineAllocator(&arena, &process);
        let layout = Layout::from_size_align(300 * PAGE_SIZE, 8).unwrap();
        let larger = Layout::from_size_align(700 * PAGE_SIZE, 8).unwrap();
        let count = |blocks: usize| {
            // SAFETY: the layout is valid and not empty; blocks are as large as asked for, and
            // freed once.
            unsafe {
                let all: Vec<*mut u8> = (0..blocks)
                    .map(|_| allocator.alloc_zeroed(layout))
                    .collect();
                let untouched = arena.resident(&process);
                for block in &all {
                    block.write_bytes(1, layout.size() / 2);
                }
                let half = arena.resident(&process);
                let grown = allocator.realloc(all[0], layout, larger.size());
                assert!(arena.resident(&process) >= half);
                grown.write_bytes(1, larger.size());
                let more = arena.resident(&process);
                allocator.dealloc(grown, larger);
                all[1..]
                    .iter()
                    .for_each(|&block| allocator.dealloc(block, layout));
                (half - untouched, more - half, arena.resident(&process))
            }
        };
        let (half, grown, after) = count(40);
        // A kernel that gives large pages by itself gives more than was written.
        assert!(
            half >= 40 * 150 * PAGE_SIZE && grown >= 550 * PAGE_SIZE,
            "{half} {grown}"
        );
        // Blocks for which the list has no room are counted as a whole, and not any more once they
        // are freed.
        count(100);
        assert_eq!(arena.resident(&process), after);
    }

    #[test]
    fn blocks_are_aligned_disjoint_and_reused() {
        let (arena, process) = (EngineArena::new(), TestProcess);
        let allocator = EngineAllocator(&arena, &process);
        let mut all: Vec<(*mut u8, Layout)> = Vec::new();
        for i in 0..4_000usize {
            let layout = Layout::from_size_align(1 + i * 37 % 70_000, 1 << (i % 10)).unwrap();
            // SAFETY: the layout is valid and not empty; the block is as large as asked for.
            unsafe {
                let block = allocator.alloc(layout);
                assert_eq!(block as usize % layout.align(), 0);
                block.write_bytes(i as u8, layout.size());
                all.push((block, layout));
            }
        }
        for (i, &(block, layout)) in all.iter().enumerate() {
            // SAFETY: still allocated; each byte was written.
            unsafe {
                assert!(
                    (0..layout.size()).all(|at| *block.add(at) == i as u8),
                    "block {i}"
                );
                let grown = allocator.realloc(block, layout, layout.size() * 2);
                assert!(
                    (0..layout.size()).all(|at| *grown.add(at) == i as u8),
                    "block {i}"
                );
                let layout = Layout::from_size_align(layout.size() * 2, layout.align()).unwrap();
                allocator.dealloc(grown, layout);
                if size_class(layout).is_some() {
                    assert_eq!(allocator.alloc(layout), grown);
                    allocator.dealloc(grown, layout);
                }
            }
        }
    }
}

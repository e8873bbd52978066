//! A global allocator on private mappings, for what the collector's cold parts allocate inside the program.
//!
//! libheapprof.so uses it in place of malloc, which is the program's. Sizes are rounded up to powers of two
//! with free lists; from 32 KiB on each block is a mapping of its own and goes back when freed.

use std::alloc::{GlobalAlloc, Layout};

use crate::lock::Locked;
use crate::sys;

/// The allocator.
pub struct Arena;

struct Lists {
    free: [*mut u8; CLASSES],
    at: *mut u8,
    left: usize,
    /// Memory for when the kernel gives no more: its end, and what is left of it.
    reserve: *mut u8,
    reserve_left: usize,
    reserve_len: usize,
}

// SAFETY: reached under its lock only.
unsafe impl Send for Lists {}

const SMALLEST: u32 = 4;
const LARGEST: usize = 32 << 10;
const CLASSES: usize = (LARGEST.ilog2() - SMALLEST + 1) as usize;
const CHUNK: usize = 128 << 10;
const PAGE: usize = 4096;

static LISTS: Locked<Lists> = Locked::new(Lists {
    free: [std::ptr::null_mut(); CLASSES],
    at: std::ptr::null_mut(),
    left: 0,
    reserve: std::ptr::null_mut(),
    reserve_left: 0,
    reserve_len: 0,
});

impl Lists {
    /// Pages from the kernel, else from the reserve.
    fn pages(&mut self, len: usize) -> *mut u8 {
        let mapped = sys::map_dense(len);
        if !mapped.is_null() || self.reserve_left < len {
            return mapped;
        }
        self.reserve_left -= len;
        // SAFETY: what is left of the reserve is at its start.
        unsafe { self.reserve.add(self.reserve_left) }
    }

    fn is_reserve(&self, block: *mut u8) -> bool {
        let start = self.reserve.addr();
        start <= block.addr() && block.addr() < start + self.reserve_len
    }
}

/// Sets memory aside, so that what follows can't fail for lack of it; false when there is not so much.
///
/// std aborts the process when an allocation fails, and the process is the program's.
pub(crate) fn reserve(len: usize) -> bool {
    let len = pages(len);
    LISTS.with(|lists| {
        if lists.reserve_left >= len {
            return true;
        }
        let new = sys::map(len);
        if new.is_null() {
            return false;
        }
        if lists.reserve_left == lists.reserve_len && lists.reserve_len > 0 {
            // SAFETY: nothing was ever taken from the old one.
            unsafe { sys::unmap(lists.reserve, lists.reserve_len) };
        }
        (lists.reserve, lists.reserve_left, lists.reserve_len) = (new, len, len);
        true
    })
}

/// The lock that fork must hold.
pub(crate) fn lock() -> &'static crate::lock::Lock {
    &LISTS.lock
}

fn class(layout: Layout) -> Option<usize> {
    let size = layout
        .size()
        .max(layout.align())
        .max(1 << SMALLEST)
        .next_power_of_two();
    (size <= LARGEST).then(|| (size.ilog2() - SMALLEST) as usize)
}

fn pages(size: usize) -> usize {
    size.next_multiple_of(PAGE)
}

// SAFETY: blocks are disjoint pieces of private mappings, as large and aligned as their power of two or a page.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE {
            return std::ptr::null_mut();
        }
        let Some(class) = class(layout) else {
            return LISTS.with(|lists| lists.pages(pages(layout.size())));
        };
        LISTS.with(|lists| {
            let head = lists.free[class];
            if !head.is_null() {
                // SAFETY: a free block's first word is the next one.
                lists.free[class] = unsafe { head.cast::<*mut u8>().read() };
                return head;
            }
            let size = 1usize << (class as u32 + SMALLEST);
            // Powers of two in a page-aligned chunk: aligned to themselves when cut at multiples of themselves.
            let skip = lists.at.addr().next_multiple_of(size.min(PAGE)) - lists.at.addr();
            if lists.left < size + skip {
                let chunk = lists.pages(CHUNK);
                if chunk.is_null() {
                    return chunk;
                }
                (lists.at, lists.left) = (chunk, CHUNK);
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
        match class(layout) {
            Some(class) => LISTS.with(|lists| {
                // SAFETY: the block is free and at least a word.
                unsafe { block.cast::<*mut u8>().write(lists.free[class]) };
                lists.free[class] = block;
            }),
            None if !LISTS.with(|lists| lists.is_reserve(block)) => {
                // SAFETY: it was mapped by `alloc` with this size.
                unsafe { sys::unmap(block, pages(layout.size())) };
            }
            None => {}
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps to GlobalAlloc's contract.
        unsafe {
            let new_layout = Layout::from_size_align_unchecked(size, layout.align());
            match (class(layout), class(new_layout)) {
                (Some(old), Some(new)) if old == new => return block,
                (None, None) if !LISTS.with(|lists| lists.is_reserve(block)) => {
                    let moved = sys::remap(block, pages(layout.size()), pages(size));
                    if !moved.is_null() {
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

    #[test]
    fn blocks_are_aligned_disjoint_and_reused() {
        let mut all: Vec<(*mut u8, Layout)> = Vec::new();
        for i in 0..4_000usize {
            let layout = Layout::from_size_align(1 + i * 37 % 70_000, 1 << (i % 10)).unwrap();
            // SAFETY: the layout is valid and not empty; the block is as large as asked for.
            unsafe {
                let block = Arena.alloc(layout);
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
                let grown = Arena.realloc(block, layout, layout.size() * 2);
                assert!(
                    (0..layout.size()).all(|at| *grown.add(at) == i as u8),
                    "block {i}"
                );
                let layout = Layout::from_size_align(layout.size() * 2, layout.align()).unwrap();
                Arena.dealloc(grown, layout);
                if class(layout).is_some() {
                    assert_eq!(Arena.alloc(layout), grown);
                    Arena.dealloc(grown, layout);
                }
            }
        }
    }
}

//! Reads memory by whole pages, and each page once. Without this cache, a walk over many small
//! structures would make a system call for each word.

use std::cell::RefCell;
use std::collections::HashMap;

use heapprof_memory::Memory;
use heapprof_process::PAGE_SIZE;

/// Maximum number of pages in the cache (256 MiB).
const MAX_CACHED_PAGES: usize = 1 << 16;

/// A memory with a cache of the pages that were read.
pub(crate) struct PageCache<M> {
    memory: M,
    pages: RefCell<HashMap<u64, Option<Box<[u8; PAGE_SIZE as usize]>>>>,
}

impl<M: Memory> PageCache<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self {
            memory,
            pages: RefCell::default(),
        }
    }
}

impl<M: Memory> Memory for &PageCache<M> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        let (mut at, mut to) = (at, to);
        while !to.is_empty() {
            let offset = (at % PAGE_SIZE) as usize;
            let (part, rest) = to.split_at_mut(to.len().min(PAGE_SIZE as usize - offset));
            let mut pages = self.pages.borrow_mut();
            if pages.len() >= MAX_CACHED_PAGES {
                pages.clear();
            }
            let page = pages.entry(at / PAGE_SIZE).or_insert_with(|| {
                let mut bytes = Box::new([0; PAGE_SIZE as usize]);
                let is_read = self.memory.read(at / PAGE_SIZE * PAGE_SIZE, &mut *bytes);
                is_read.then_some(bytes)
            });
            let Some(bytes) = page else { return false };
            part.copy_from_slice(&bytes[offset..offset + part.len()]);
            let Some(next) = at.checked_add(part.len() as u64) else {
                return false;
            };
            (at, to) = (next, rest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[derive(Clone, Copy)]
    struct CountingMemory<'a>(&'a Cell<usize>);

    /// Reads two pages at 0x1000, and counts the reads. Each byte is the low byte of its address.
    impl Memory for CountingMemory<'_> {
        fn read(self, at: u64, to: &mut [u8]) -> bool {
            self.0.set(self.0.get() + 1);
            let is_there = (PAGE_SIZE..3 * PAGE_SIZE).contains(&at);
            for (i, byte) in to.iter_mut().enumerate().filter(|_| is_there) {
                *byte = (at + i as u64) as u8;
            }
            is_there
        }
    }

    #[test]
    fn each_page_is_read_once() {
        let reads = Cell::new(0);
        let cache = PageCache::new(CountingMemory(&reads));
        let memory = &cache;
        // Reads across the bound of both pages, many times.
        for _ in 0..100 {
            let word = memory.u64(2 * PAGE_SIZE - 4).unwrap();
            assert_eq!(word.to_ne_bytes(), [0xfc, 0xfd, 0xfe, 0xff, 0, 1, 2, 3]);
        }
        assert_eq!(reads.get(), 2);
        // Pages that can't be read are not read again, either.
        assert_eq!(memory.u64(3 * PAGE_SIZE - 4), None);
        assert_eq!(memory.u8(3 * PAGE_SIZE), None);
        assert_eq!(memory.u64(u64::MAX - 3), None);
        assert_eq!(reads.get(), 4);
    }
}

//! Memory that is read page by page, and each page once: a walk over many small structures would
//! otherwise ask the kernel for each of their words.

use std::cell::RefCell;
use std::collections::HashMap;

use heapprof_memory::Memory;

const PAGE: u64 = 4096;
/// More pages are not kept: 256 MiB.
const MOST: usize = 1 << 16;

/// A memory, and what was read of it.
pub(crate) struct Cache<M> {
    memory: M,
    pages: RefCell<HashMap<u64, Option<Box<[u8; PAGE as usize]>>>>,
}

impl<M: Memory> Cache<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self {
            memory,
            pages: RefCell::default(),
        }
    }
}

impl<M: Memory> Memory for &Cache<M> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        let (mut at, mut to) = (at, to);
        while !to.is_empty() {
            let offset = (at % PAGE) as usize;
            let (part, rest) = to.split_at_mut(to.len().min(PAGE as usize - offset));
            let mut pages = self.pages.borrow_mut();
            if pages.len() >= MOST {
                pages.clear();
            }
            let page = pages.entry(at / PAGE).or_insert_with(|| {
                let mut bytes = Box::new([0; PAGE as usize]);
                let is_read = self.memory.read(at / PAGE * PAGE, &mut *bytes);
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

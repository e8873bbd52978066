//! Every distinct stack once: its number by its hash, its frames by its number.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::chunks::Chunks;
use crate::lock::Locked;
use crate::probe_table::ProbeTable;
use crate::sys;

/// The stacks of a process.
pub(crate) struct Stacks {
    by_hash: ProbeTable,
    /// Where each stack's frames are: a header word, then return addresses, leaf first.
    frames: Chunks<*const u64>,
    len: AtomicU32,
    arena: Locked<Arena>,
}

// SAFETY: frames are written once, before their stack's number is published.
unsafe impl Sync for Stacks {}

struct Arena {
    at: *mut u64,
    left: usize,
    /// Words mapped so far.
    mapped: usize,
}

// SAFETY: reached under its lock only.
unsafe impl Send for Arena {}

impl Stacks {
    pub(crate) const fn new() -> Self {
        Self {
            by_hash: ProbeTable::new(),
            frames: Chunks::new(),
            len: AtomicU32::new(0),
            arena: Locked::new(Arena {
                at: std::ptr::null_mut(),
                left: 0,
                mapped: 0,
            }),
        }
    }

    /// The number of the stack with this hash, if it was seen before.
    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<u32> {
        self.by_hash.find(hash).map(|id| id as u32)
    }

    /// The number of a stack, given when it is new; `None` without memory.
    pub(crate) fn find_or_insert(
        &self,
        hash: u64,
        generation: u32,
        leaf_first: impl ExactSizeIterator<Item = u64>,
    ) -> Option<u32> {
        let id = self.by_hash.find_or_insert(hash, || {
            let at = self.arena.with(|arena| arena.take(leaf_first.len() + 1))?;
            let id = self.len.load(Ordering::Relaxed);
            let place = self.frames.touch(id as usize);
            if place.is_null() || id == u32::MAX {
                return None;
            }
            // SAFETY: `at` has room for the header and all frames; `place` is mapped and nobody reads it yet.
            unsafe {
                *at = u64::from(generation) << 32 | leaf_first.len() as u64;
                leaf_first
                    .enumerate()
                    .for_each(|(i, pc)| *at.add(1 + i) = pc);
                *place = at;
            }
            self.len.store(id + 1, Ordering::Release);
            Some(u64::from(id))
        });
        id.map(|id| id as u32)
    }

    /// How many stacks there are.
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// How much the frames of all stacks take, in words, or somewhat more.
    pub(crate) fn words(&self) -> usize {
        self.arena.with(|arena| arena.mapped)
    }

    /// A stack's generation of mappings, and its return addresses, leaf first.
    pub(crate) fn get(&self, id: u32) -> (u32, &[u64]) {
        // SAFETY: numbers below `len` have a published, immutable record with its length in front.
        unsafe {
            let at = *self.frames.get(id as usize);
            (
                ((*at) >> 32) as u32,
                std::slice::from_raw_parts(at.add(1), *at as u32 as usize),
            )
        }
    }

    /// The locks that fork must hold.
    pub(crate) fn locks(&self) -> [&crate::lock::Lock; 2] {
        [&self.by_hash.lock, &self.arena.lock]
    }
}

impl Arena {
    fn take(&mut self, words: usize) -> Option<*mut u64> {
        const CHUNK: usize = 64 << 10;
        if words > self.left {
            let new = sys::map(CHUNK).cast::<u64>();
            if new.is_null() {
                return None;
            }
            (self.at, self.left) = (new, CHUNK / 8);
            self.mapped += CHUNK / 8;
        }
        let at = self.at;
        // SAFETY: `words` are left behind `at`.
        self.at = unsafe { at.add(words) };
        self.left -= words;
        Some(at)
    }
}

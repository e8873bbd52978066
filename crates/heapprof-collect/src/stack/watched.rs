//! Blocks whose end a provider of stacks must know: the interpreters themselves.
//!
//! A provider that remembers where an interpreter is must not read it once it is freed. Every free
//! that is recorded looks here, so in an exact recording no such free is missed.

use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The most blocks that can be watched at once.
const MOST: usize = 64;
/// A block may begin so many bytes before what was given, because of a header.
const HEADER: usize = 64;

/// Who is told of a block's end, with the address that it gave.
pub(crate) type Freed = fn(usize);

/// The blocks that are watched.
pub(crate) struct Watched {
    /// A bit for each remainder of an address that a watched block may have.
    mask: AtomicU64,
    block: [AtomicUsize; MOST],
    /// [`Freed`] as a pointer.
    freed: AtomicPtr<()>,
}

/// The bit of an address.
fn bit(address: usize) -> u64 {
    1 << (address / HEADER % 64)
}

impl Watched {
    /// Nothing is watched.
    pub(crate) const fn new() -> Self {
        Self {
            mask: AtomicU64::new(0),
            block: [const { AtomicUsize::new(0) }; MOST],
            freed: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Watches the block that begins at `address` or a little before. Returns false if there are as
    /// many as there can be.
    pub(crate) fn watch(&self, address: usize, freed: Freed) -> bool {
        self.freed.store(freed as *mut (), Ordering::Release);
        let is_mine = |place: &&AtomicUsize| {
            let took = place.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed);
            took.is_ok() || place.load(Ordering::Relaxed) == address
        };
        if !self.block.iter().any(|place| is_mine(&place)) {
            return false;
        }
        let bits = bit(address) | bit(address.wrapping_sub(HEADER));
        self.mask.fetch_or(bits, Ordering::AcqRel);
        true
    }

    /// Called before the block at `address` is freed.
    #[inline(always)]
    pub(crate) fn is_freed(&self, address: usize) {
        if self.mask.load(Ordering::Relaxed) & bit(address) != 0 {
            self.tell(address);
        }
    }

    #[cold]
    fn tell(&self, address: usize) {
        for place in &self.block {
            let watched = place.load(Ordering::Acquire);
            if watched == 0 || watched.wrapping_sub(address) >= HEADER {
                continue;
            }
            place.store(0, Ordering::Release);
            let freed = self.freed.load(Ordering::Acquire);
            if !freed.is_null() {
                // SAFETY: nothing else is stored there.
                unsafe { std::mem::transmute::<*mut (), Freed>(freed)(watched) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ENDED: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn a_watched_block_s_end_is_told_once() {
        let watched = Watched::new();
        let ended = |address: usize| ENDED.store(address, Ordering::Relaxed);
        let told = || ENDED.swap(0, Ordering::Relaxed);
        assert!(watched.watch(0x1_0000, ended) && watched.watch(0x2_0040, ended));
        watched.is_freed(0x3_0000);
        watched.is_freed(0x1_0010);
        assert_eq!(told(), 0);
        watched.is_freed(0x1_0000);
        assert_eq!(told(), 0x1_0000);
        watched.is_freed(0x1_0000);
        assert_eq!(told(), 0);
        // The block begins before a header.
        watched.is_freed(0x2_0020);
        assert_eq!(told(), 0x2_0040);
        for i in 1..=MOST {
            assert!(watched.watch(i << 12, ended));
        }
        assert!(!watched.watch(1 << 30, ended));
        assert!(watched.watch(1 << 12, ended), "it is watched already");
    }
}

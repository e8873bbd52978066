//! Watched blocks: blocks whose frees are reported to a stack provider. They are the structures of
//! interpreters.
//!
//! A provider that remembers an interpreter's address must not read the interpreter once it is
//! freed. So every free that the filter chooses is checked here. The filter also has the watched
//! blocks, so that their frees are not missed in a sampled recording.
//!
//! A free is reported only if its address is exactly that of a watched block. Perl takes an
//! interpreter directly from malloc, without a header, and a small block of another owner may be
//! right before it.

use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::tables::filter::AddressFilter;

/// Maximum number of blocks that can be watched at once.
const MAX_WATCHED_BLOCKS: usize = 64;
/// Number of low bits of an address that have no influence on its bit of the mask.
const MASK_SHIFT: u32 = 6;

/// A function that is called before a watched block is freed. It gets the block's address.
pub(crate) type FreeListener = fn(usize);

/// The blocks that are watched.
pub(crate) struct WatchedBlocks {
    /// The mask: a set of bits. For each address that was ever watched, one bit is set, which other
    /// addresses may share.
    mask: AtomicU64,
    block: [AtomicUsize; MAX_WATCHED_BLOCKS],
    /// Number of entries of `block` that were ever used. Most programs have one interpreter.
    used: AtomicUsize,
    /// The [`FreeListener`] as a pointer.
    freed: AtomicPtr<()>,
}

/// Returns an address's bit of the mask.
fn bit(address: usize) -> u64 {
    1 << ((address >> MASK_SHIFT) % 64)
}

impl WatchedBlocks {
    /// Makes a table without watched blocks.
    pub(crate) const fn new() -> Self {
        Self {
            mask: AtomicU64::new(0),
            block: [const { AtomicUsize::new(0) }; MAX_WATCHED_BLOCKS],
            used: AtomicUsize::new(0),
            freed: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Watches the block that begins at `address`. Returns false if the maximum number of blocks is
    /// watched already.
    pub(crate) fn watch(
        &self,
        address: usize,
        freed: FreeListener,
        filter: &AddressFilter,
    ) -> bool {
        self.freed.store(freed as *mut (), Ordering::Release);
        let is_watched = |place: &AtomicUsize| place.load(Ordering::Acquire) == address;
        if self.block.iter().any(is_watched) {
            return true;
        }
        for (i, place) in self.block.iter().enumerate() {
            let took = place.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed);
            match took {
                Ok(_) => {
                    self.used.fetch_max(i + 1, Ordering::AcqRel);
                    self.mask.fetch_or(bit(address), Ordering::AcqRel);
                    filter.add(address);
                    return true;
                }
                Err(watched) if watched == address => return true,
                Err(_) => {}
            }
        }
        false
    }

    /// Adds all watched blocks to `filter`, so that it chooses their frees. This is needed after
    /// the filter was emptied.
    pub(crate) fn note_again(&self, filter: &AddressFilter) {
        for place in &self.block {
            let watched = place.load(Ordering::Acquire);
            if watched != 0 {
                filter.add(watched);
            }
        }
    }

    /// Reports the free of the block at `address`, if it is watched. This is called before the
    /// free.
    #[inline(always)]
    pub(crate) fn note_free(&self, address: usize, filter: &AddressFilter) {
        if self.mask.load(Ordering::Relaxed) & bit(address) != 0 {
            self.report_free(address, filter);
        }
    }

    #[cold]
    fn report_free(&self, address: usize, filter: &AddressFilter) {
        let used = self.used.load(Ordering::Acquire).min(MAX_WATCHED_BLOCKS);
        for place in &self.block[..used] {
            if place.load(Ordering::Acquire) != address {
                continue;
            }
            let ended = place.compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed);
            if ended.is_err() {
                continue;
            }
            filter.remove(address);
            let freed = self.freed.load(Ordering::Acquire);
            if !freed.is_null() {
                // SAFETY: only `watch` stores a pointer there, and it is a [`FreeListener`].
                unsafe { std::mem::transmute::<*mut (), FreeListener>(freed)(address) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ENDED: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn the_end_of_a_watched_block_is_reported_once() {
        let (watched, filter) = (WatchedBlocks::new(), AddressFilter::new());
        let ended = |address: usize| ENDED.store(address, Ordering::Relaxed);
        let reported = || ENDED.swap(0, Ordering::Relaxed);
        assert!(watched.watch(0x1_0000, ended, &filter) && watched.watch(0x2_0040, ended, &filter));
        watched.note_free(0x3_0000, &filter);
        // Small blocks right before a watched one, and behind its beginning, are not watched.
        for other in [0x1_0010, 0x1_0000 - 16, 0x1_0000 - 32, 0x2_0020] {
            watched.note_free(other, &filter);
        }
        assert_eq!(reported(), 0);
        assert!(filter.may_hold(0x1_0000) && filter.may_hold(0x2_0040));
        watched.note_free(0x1_0000, &filter);
        assert_eq!(reported(), 0x1_0000);
        assert!(!filter.may_hold(0x1_0000));
        filter.fill(0);
        watched.note_again(&filter);
        assert!(!filter.may_hold(0x1_0000) && filter.may_hold(0x2_0040));
        watched.note_free(0x1_0000, &filter);
        assert_eq!(reported(), 0);
        watched.note_free(0x2_0040, &filter);
        assert_eq!(reported(), 0x2_0040);
        for i in 1..=MAX_WATCHED_BLOCKS {
            assert!(watched.watch(i << 12, ended, &filter));
        }
        assert!(!watched.watch(1 << 30, ended, &filter));
        assert!(
            watched.watch(1 << 12, ended, &filter),
            "it is watched already"
        );
    }
}

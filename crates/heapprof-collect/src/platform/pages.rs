//! Where the tables get their memory: from the kernel, or from a region that somebody hands in.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::platform::sys::{self, PAGE};

/// A source of zeroed memory in whole pages.
pub(crate) struct Pages {
    /// The region that somebody handed in; null if the kernel gives the memory.
    region: *mut u8,
    len: usize,
    /// How much of the region is taken.
    taken: AtomicUsize,
}

// SAFETY: each part of the region is given out once.
unsafe impl Sync for Pages {}
// SAFETY: as above.
unsafe impl Send for Pages {}

impl Pages {
    /// Memory of the kernel's, as much as it has.
    pub(crate) const fn of_kernel() -> Self {
        Self {
            region: std::ptr::null_mut(),
            len: 0,
            taken: AtomicUsize::new(0),
        }
    }

    /// The memory of a region, and no more than that. What is given back to it is not given out
    /// again.
    ///
    /// # Safety
    /// The region begins at a page, is zeroed, is nobody else's to write, and stays for as long as
    /// anything uses what this gives.
    #[cfg(test)]
    pub(crate) const unsafe fn of_region(region: *mut u8, len: usize) -> Self {
        Self {
            region,
            len,
            taken: AtomicUsize::new(0),
        }
    }

    fn is_kernel(&self) -> bool {
        self.region.is_null()
    }

    /// Fresh zeroed memory; null if there is none.
    pub(crate) fn map(&self, len: usize) -> *mut u8 {
        match self.is_kernel() {
            true => sys::map(len),
            false => self.take(len),
        }
    }

    /// As [`map`](Self::map), for tables that will be filled.
    pub(crate) fn map_dense(&self, len: usize) -> *mut u8 {
        match self.is_kernel() {
            true => sys::map_dense(len),
            false => self.take(len),
        }
    }

    fn take(&self, len: usize) -> *mut u8 {
        let take = |taken: usize| {
            let end = taken.checked_add(len.checked_next_multiple_of(PAGE)?)?;
            (end <= self.len).then_some(end)
        };
        match self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            // SAFETY: what was taken is inside the region.
            Ok(taken) => unsafe { self.region.add(taken) },
            Err(_) => std::ptr::null_mut(),
        }
    }

    /// Gives memory back that nobody uses.
    ///
    /// # Safety
    /// `at..at+len` came from here, and nothing refers to it any more.
    pub(crate) unsafe fn unmap(&self, at: *mut u8, len: usize) {
        if self.is_kernel() {
            // SAFETY: the caller's contract.
            unsafe { sys::unmap(at, len) };
        }
    }

    /// Says that the content of part of the memory is not needed any more.
    ///
    /// # Safety
    /// The same as for [`unmap`](Self::unmap).
    pub(crate) unsafe fn discard(&self, at: *mut u8, len: usize) {
        if self.is_kernel() {
            // SAFETY: the caller's contract.
            unsafe { sys::discard(at, len) };
        }
    }

    /// How many bytes of a part are in memory.
    pub(crate) fn resident(&self, at: *const u8, len: usize) -> usize {
        match self.is_kernel() {
            true => sys::resident(at, len),
            false => len,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::alloc::{Layout, alloc_zeroed};

    use super::*;

    /// A region of whole pages, which is never freed.
    pub(crate) fn region_of(len: usize) -> Pages {
        let layout = Layout::from_size_align(len, PAGE).unwrap();
        // SAFETY: the region is zeroed, and nobody else knows of it.
        unsafe { Pages::of_region(alloc_zeroed(layout), len) }
    }

    /// As [`region_of`], as large as most tests need.
    pub(crate) fn region() -> Pages {
        region_of(64 << 20)
    }

    #[test]
    fn a_region_is_given_out_once() {
        let pages = region_of(4 * PAGE);
        let first = pages.map(1);
        assert!(!first.is_null() && first.addr().is_multiple_of(PAGE));
        assert_eq!(pages.map_dense(2 * PAGE).addr(), first.addr() + PAGE);
        assert!(pages.map(2 * PAGE).is_null() && pages.map(usize::MAX).is_null());
        assert_eq!(pages.map(PAGE).addr(), first.addr() + 3 * PAGE);
        assert!(pages.map(1).is_null());
    }
}

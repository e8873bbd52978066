//! Memory for tables. It comes from the kernel, or from a file that outlives the process.

#[cfg(any(test, feature = "regions"))]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::sys;
use crate::table_file::{TableFile, TableLifetime};

#[cfg(any(test, feature = "regions"))]
pub mod regions;

/// A source of zeroed memory in whole pages.
pub struct PageSource {
    /// The file in which tables are kept, if there is one.
    pub table_file: TableFile,
    #[cfg(any(test, feature = "regions"))]
    region: PageRegion,
}

/// Memory that a test provides.
#[cfg(any(test, feature = "regions"))]
struct PageRegion {
    /// Address of the region; null if the memory comes from the kernel.
    at: *mut u8,
    len: usize,
    /// Number of bytes that are taken.
    taken: AtomicUsize,
}

// SAFETY: each part of the region is given out once.
#[cfg(any(test, feature = "regions"))]
unsafe impl Sync for PageRegion {}
// SAFETY: as for `Sync`.
#[cfg(any(test, feature = "regions"))]
unsafe impl Send for PageRegion {}

/// Whether a table will be mostly filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFill {
    /// Few of the table's pages will be written.
    Sparse,
    /// Nearly all of the table's pages will be written.
    Dense,
}

impl PageSource {
    /// Makes a source that gets its pages from the kernel. Their number has no limit.
    pub const fn from_kernel() -> Self {
        Self {
            table_file: TableFile::new(),
            #[cfg(any(test, feature = "regions"))]
            region: PageRegion {
                at: std::ptr::null_mut(),
                len: 0,
                taken: AtomicUsize::new(0),
            },
        }
    }

    /// Makes a source whose only memory is a region. Memory that is unmapped is not used again.
    ///
    /// # Safety
    /// The region begins at a page, is zeroed, is written by no other code, and stays for as long
    /// as anything uses the memory that comes from it.
    #[cfg(any(test, feature = "regions"))]
    pub const unsafe fn from_region(at: *mut u8, len: usize) -> Self {
        let taken = AtomicUsize::new(0);
        Self {
            table_file: TableFile::new(),
            region: PageRegion { at, len, taken },
        }
    }

    #[cfg(any(test, feature = "regions"))]
    fn is_region(&self) -> bool {
        !self.region.at.is_null()
    }

    #[cfg(not(any(test, feature = "regions")))]
    fn is_region(&self) -> bool {
        false
    }

    /// Maps fresh zeroed memory. Returns null if there is none.
    pub fn map(&self, len: usize, lot: TableLifetime) -> *mut u8 {
        self.take_other(len, lot).unwrap_or_else(|| sys::map(len))
    }

    /// Maps fresh zeroed memory for a table that will be filled. Returns null if there is none.
    pub fn map_dense(&self, len: usize, lot: TableLifetime) -> *mut u8 {
        self.take_other(len, lot)
            .unwrap_or_else(|| sys::map_dense(len))
    }

    /// Returns the address in `at`. If it is null, first maps zeroed memory at a multiple of
    /// `align`, and stores the address of this memory in `at`. If several threads do so at the same
    /// time, the memory of the first thread is used. Returns null if there is no memory.
    pub fn map_once<T>(
        &self,
        at: &AtomicPtr<T>,
        len: usize,
        align: usize,
        lot: TableLifetime,
        fill: TableFill,
    ) -> *mut T {
        let found = at.load(Ordering::Acquire);
        if !found.is_null() {
            return found;
        }
        let len = if align > sys::PAGE_SIZE {
            len + align
        } else {
            len
        };
        let new = match fill {
            TableFill::Sparse => self.map(len, lot),
            TableFill::Dense => self.map_dense(len, lot),
        };
        if new.is_null() {
            return new.cast();
        }
        let begin = new.map_addr(|at| at.next_multiple_of(align)).cast::<T>();
        let null = std::ptr::null_mut();
        match at.compare_exchange(null, begin, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => begin,
            Err(first) => {
                // SAFETY: the memory came from this source, and no other thread has seen it.
                unsafe { self.unmap(new, len) };
                first
            }
        }
    }

    /// Takes memory of the table file or, in a test, of the region. Returns `None` if the caller
    /// must map private memory of the kernel.
    fn take_other(&self, len: usize, lot: TableLifetime) -> Option<*mut u8> {
        #[cfg(any(test, feature = "regions"))]
        if self.is_region() {
            return Some(self.take(len));
        }
        self.table_file.take(len, lot)
    }

    #[cfg(any(test, feature = "regions"))]
    fn take(&self, len: usize) -> *mut u8 {
        let take = |taken: usize| {
            let end = taken.checked_add(len.checked_next_multiple_of(sys::PAGE_SIZE)?)?;
            (end <= self.region.len).then_some(end)
        };
        let taken = &self.region.taken;
        match taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            // SAFETY: the part that is taken is inside the region.
            Ok(taken) => unsafe { self.region.at.add(taken) },
            Err(_) => std::ptr::null_mut(),
        }
    }

    /// Copies a number or a list of chunks, `of`, into the table file for its readers. Does nothing
    /// if there is no file, or if readers do not need the value.
    #[inline]
    pub fn copy<T>(&self, of: &T) {
        if self.table_file.is_there() {
            self.table_file.copy(std::ptr::from_ref(of).addr());
        }
    }

    /// Unmaps memory that is not used any more.
    ///
    /// # Safety
    /// `at..at+len` came from this source, and nothing refers to it any more.
    pub unsafe fn unmap(&self, at: *mut u8, len: usize) {
        if !self.is_region() && !self.table_file.holds(at) {
            // SAFETY: the caller's contract.
            unsafe { sys::unmap(at, len) };
        }
    }

    /// Discards the content of `len` bytes of memory at `at`. The content is not needed any more.
    ///
    /// # Safety
    /// `at..at+len` came from this source, and nothing refers to it any more.
    pub unsafe fn discard(&self, at: *mut u8, len: usize) {
        if !self.is_region() && !self.table_file.holds(at) {
            // SAFETY: the caller's contract.
            unsafe { sys::discard(at, len) };
        }
    }

    /// Makes whole pages of the memory zero.
    ///
    /// # Safety
    /// `at..at+len` came from this source, and nothing refers to it any more.
    pub unsafe fn clear_pages(&self, at: *mut u8, len: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            match self.is_region() || self.table_file.holds(at) {
                true => at.write_bytes(0, len),
                false => sys::discard(at, len),
            }
        }
    }

    /// Returns how many of the `len` bytes at `at` are resident.
    pub fn resident(&self, at: *const u8, len: usize) -> usize {
        match self.is_region() {
            false => sys::resident(at, len),
            true => len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::regions::region_of;
    use super::*;
    use crate::sys::PAGE_SIZE;

    /// Tests that each caller gets the same mapping, and that aligned memory has its whole length.
    #[test]
    fn what_is_mapped_once_stays() {
        let pages = region_of(16 * PAGE_SIZE);
        let none = || AtomicPtr::<u64>::new(std::ptr::null_mut());
        let (at, aligned) = (none(), none());
        let map =
            |at, len, align| pages.map_once(at, len, align, TableLifetime::Own, TableFill::Dense);
        let first = map(&at, PAGE_SIZE, PAGE_SIZE);
        assert!(!first.is_null());
        assert_eq!(map(&at, PAGE_SIZE, PAGE_SIZE), first);
        let begin = map(&aligned, 2 * PAGE_SIZE, 4 * PAGE_SIZE);
        assert!(begin.addr().is_multiple_of(4 * PAGE_SIZE));
        // One page, two, and room to align them.
        assert_eq!(pages.region.taken.load(Ordering::Relaxed), 7 * PAGE_SIZE);
        assert!(map(&none(), 16 * PAGE_SIZE, PAGE_SIZE).is_null());
    }

    #[test]
    fn whoever_maps_first_is_heard() {
        const THREADS: usize = 4;
        let pages = PageSource::from_kernel();
        for _ in 0..100 {
            let at = AtomicPtr::<u64>::new(std::ptr::null_mut());
            let barrier = std::sync::Barrier::new(THREADS);
            let map = || {
                barrier.wait();
                let mapped = pages.map_once(
                    &at,
                    PAGE_SIZE,
                    PAGE_SIZE,
                    TableLifetime::Own,
                    TableFill::Sparse,
                );
                mapped.addr()
            };
            let all: Vec<usize> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(map)).collect();
                let each = threads.into_iter().map(|thread| thread.join().unwrap());
                each.collect()
            });
            let first = at.load(Ordering::Relaxed);
            assert!(all.iter().all(|&mapped| mapped == first.addr()));
            // SAFETY: the memory came from this source, and every thread is done with it.
            unsafe { pages.unmap(first.cast(), PAGE_SIZE) };
        }
    }

    #[test]
    fn a_region_is_given_out_once() {
        let pages = region_of(4 * PAGE_SIZE);
        let map = |len| pages.map(len, TableLifetime::Own);
        let first = map(1);
        assert!(!first.is_null() && first.addr().is_multiple_of(PAGE_SIZE));
        let dense = pages.map_dense(2 * PAGE_SIZE, TableLifetime::Lasting);
        assert_eq!(dense.addr(), first.addr() + PAGE_SIZE);
        assert!(map(2 * PAGE_SIZE).is_null() && map(usize::MAX).is_null());
        assert_eq!(map(PAGE_SIZE).addr(), first.addr() + 3 * PAGE_SIZE);
        assert!(map(1).is_null());
    }
}

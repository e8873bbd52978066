//! An array that grows without moving: chunks of doubling size, mapped when first touched.

use std::sync::atomic::{AtomicPtr, Ordering};

use heapprof_abi::chunks::MAX_CHUNKS;
use heapprof_platform::pages::{PageSource, TableFill};
use heapprof_platform::sys;
use heapprof_platform::table_file::TableLifetime;

const FIRST_CHUNK_LEN: usize = 4096;

/// An array of zero-initialized `T`s by index. `T` must be valid as all zero bytes.
#[repr(transparent)]
pub(crate) struct ChunkedArray<T> {
    chunk: [AtomicPtr<T>; MAX_CHUNKS],
}

const _: () = assert!(FIRST_CHUNK_LEN == heapprof_abi::chunks::FIRST_CHUNK_LEN);

impl<T> ChunkedArray<T> {
    /// Creates an array with nothing mapped yet.
    pub(crate) const fn new() -> Self {
        Self {
            chunk: [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CHUNKS],
        }
    }

    #[inline]
    fn locate(index: usize) -> (usize, usize) {
        let k = (index / FIRST_CHUNK_LEN + 1).ilog2() as usize;
        (k, index - FIRST_CHUNK_LEN * ((1 << k) - 1))
    }

    /// Returns the address of an element; null if its chunk was never touched.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> *mut T {
        // Most programs have fewer stacks than the first chunk has room for.
        let first = self.chunk[0].load(Ordering::Acquire);
        if index < FIRST_CHUNK_LEN && !first.is_null() {
            // SAFETY: the first chunk has `FIRST_CHUNK_LEN` elements.
            return unsafe { first.add(index) };
        }
        self.find(index)
    }

    fn find(&self, index: usize) -> *mut T {
        let (k, offset) = Self::locate(index);
        match self.chunk.get(k).map(|c| c.load(Ordering::Acquire)) {
            // SAFETY: chunk `k` has `FIRST_CHUNK_LEN << k` elements and `offset` is below that.
            Some(chunk) if !chunk.is_null() => unsafe { chunk.add(offset) },
            _ => std::ptr::null_mut(),
        }
    }

    /// Returns the address of an element, and maps its chunk at the first touch. Null if there is
    /// no memory.
    #[inline]
    pub(crate) fn touch(&self, index: usize, pages: &PageSource, lot: TableLifetime) -> *mut T {
        let found = self.get(index);
        if found.is_null() {
            self.map(index, pages, lot)
        } else {
            found
        }
    }

    #[cold]
    fn map(&self, index: usize, pages: &PageSource, lot: TableLifetime) -> *mut T {
        let (k, _) = Self::locate(index);
        let Some(slot) = self.chunk.get(k) else {
            return std::ptr::null_mut();
        };
        let bytes = (FIRST_CHUNK_LEN << k) * size_of::<T>();
        let fill = match self.is_dense(k, pages) {
            true => TableFill::Dense,
            false => TableFill::Sparse,
        };
        let mapped = pages.map_once(slot, bytes, sys::PAGE_SIZE, lot, fill);
        if mapped.is_null() {
            return std::ptr::null_mut();
        }
        pages.copy(self);
        self.get(index)
    }

    /// Calls the closure `each` with the elements below `len` whose chunks are mapped.
    ///
    /// # Safety
    /// `T` may be shared with a thread that writes it.
    pub(crate) unsafe fn each(&self, len: usize, mut each: impl FnMut(usize, &T)) {
        let mut first = 0;
        for (k, slot) in self.chunk.iter().enumerate() {
            let (chunk, room) = (slot.load(Ordering::Acquire), FIRST_CHUNK_LEN << k);
            if first >= len {
                break;
            }
            if !chunk.is_null() {
                for i in 0..room.min(len - first) {
                    // SAFETY: `i` is below the chunk's number of elements, and the caller's
                    // promise.
                    each(first + i, unsafe { &*chunk.add(i) });
                }
            }
            first += room;
        }
    }

    /// Unmaps all memory of the array.
    ///
    /// # Safety
    /// No code uses the array or its elements any more.
    pub(crate) unsafe fn give_back(&self, pages: &PageSource) {
        for (k, slot) in self.chunk.iter().enumerate() {
            let chunk = slot.load(Ordering::Relaxed);
            if !chunk.is_null() {
                // SAFETY: the chunk was mapped with this size, and the caller's promise.
                unsafe { pages.unmap(chunk.cast(), (FIRST_CHUNK_LEN << k) * size_of::<T>()) };
            }
        }
    }

    /// Returns how many bytes of the array are resident.
    pub(crate) fn resident(&self, pages: &PageSource) -> usize {
        let each = self.chunk.iter().enumerate().map(|(k, chunk)| {
            let at = chunk.load(Ordering::Acquire);
            let bytes = if at.is_null() {
                0
            } else {
                (FIRST_CHUNK_LEN << k) * size_of::<T>()
            };
            pages.resident(at.cast_const().cast(), bytes)
        });
        each.sum()
    }

    /// Whether chunk `k` is likely to be filled, because at least half of the previous chunk is
    /// resident. Some threads never touch more than a few elements.
    fn is_dense(&self, k: usize, pages: &PageSource) -> bool {
        let bytes = (FIRST_CHUNK_LEN << k) * size_of::<T>();
        k > 0 && bytes >= sys::LARGE_PAGE_SIZE && {
            let before = self.chunk[k - 1].load(Ordering::Acquire);
            !before.is_null() && {
                let len = bytes / 2;
                pages.resident(before.cast_const().cast(), len) * 2 >= len
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_platform::pages::regions::region;
    use heapprof_platform::table_file::TableLifetime;

    /// Number of elements. It is small in an interpreter (Miri), which takes a thousand times as
    /// long.
    const COUNT: usize = if cfg!(miri) { 5_000 } else { 50_000 };

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let (chunks, pages) = (ChunkedArray::<u64>::new(), region());
        assert!(chunks.get(0).is_null());
        for index in 0..COUNT {
            // SAFETY: touched elements are mapped.
            unsafe { *chunks.touch(index, &pages, TableLifetime::Own) = index as u64 };
        }
        // SAFETY: as above.
        assert!((0..COUNT).all(|i| unsafe { *chunks.get(i) } == i as u64));
    }
}

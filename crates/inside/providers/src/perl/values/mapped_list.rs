//! Lists in separate mappings, so that they use neither the program's heap nor the memory that is
//! reserved for profiles.

use heapprof_engine::StackNumber;
use heapprof_platform::sys;

/// A growing list of numbers or of structures of numbers. It is in a separate mapping. All zeros
/// must be a valid `T`.
pub(in crate::perl) struct MappedVec<T: PlainNumbers> {
    at: *mut T,
    len: usize,
    room: usize,
}

/// An element type of [`MappedVec`] that consists of plain numbers.
///
/// # Safety
/// All zeros is a valid value of the type, and a value owns nothing.
pub(in crate::perl) unsafe trait PlainNumbers: Copy {}

// SAFETY: zero is a number, and numbers own nothing.
unsafe impl PlainNumbers for u8 {}
// SAFETY: zero is a number, and numbers own nothing.
unsafe impl PlainNumbers for u32 {}
// SAFETY: zero is a number, and numbers own nothing.
unsafe impl PlainNumbers for u64 {}
// SAFETY: it is a number, and zero is one.
unsafe impl PlainNumbers for StackNumber {}

/// Initial size of a list in bytes.
const INITIAL_BYTES: usize = 64 << 10;

impl<T: PlainNumbers> MappedVec<T> {
    pub(in crate::perl) const fn new() -> Self {
        Self {
            at: std::ptr::null_mut(),
            len: 0,
            room: 0,
        }
    }

    /// Reserves memory for `wanted` elements. Returns false if there is no memory.
    pub(in crate::perl) fn reserve(&mut self, wanted: usize) -> bool {
        if wanted <= self.room {
            return true;
        }
        let bytes = |room: usize| room.checked_mul(size_of::<T>());
        let first = INITIAL_BYTES / size_of::<T>();
        let room = wanted.max(self.room.saturating_mul(2)).max(first);
        let Some(new) = bytes(room).and_then(|bytes| bytes.checked_next_multiple_of(4096)) else {
            return false;
        };
        let at = match self.at.is_null() {
            true => sys::map(new),
            // SAFETY: it is this list's own memory.
            false => unsafe { sys::remap(self.at.cast(), self.bytes(), new) },
        };
        if at.is_null() {
            return false;
        }
        (self.at, self.room) = (at.cast(), new / size_of::<T>());
        true
    }

    fn bytes(&self) -> usize {
        (self.room * size_of::<T>()).next_multiple_of(4096)
    }

    /// Appends an element. Returns false if there is no memory.
    pub(in crate::perl) fn push(&mut self, one: T) -> bool {
        let has_room = self.len < self.room || self.reserve(self.len + 1);
        if has_room {
            // SAFETY: there is room for one more.
            unsafe { self.at.add(self.len).write(one) };
            self.len += 1;
        }
        has_room
    }

    /// Extends the list to `len` elements; the new elements are zero. Returns false if there is no
    /// memory.
    pub(in crate::perl) fn grow(&mut self, len: usize) -> bool {
        if !self.reserve(len) {
            return false;
        }
        if len > self.len {
            // SAFETY: there is room for `len` elements, and zeros are values.
            unsafe { self.at.add(self.len).write_bytes(0, len - self.len) };
            self.len = len;
        }
        true
    }

    /// Shortens the list to `len` elements, if it is longer.
    pub(in crate::perl) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(in crate::perl) fn all(&self) -> &[T] {
        match self.at.is_null() {
            true => &[],
            // SAFETY: `len` elements were written, and no code changes them while this is borrowed.
            false => unsafe { std::slice::from_raw_parts(self.at, self.len) },
        }
    }

    pub(in crate::perl) fn all_mut(&mut self) -> &mut [T] {
        match self.at.is_null() {
            true => &mut [],
            // SAFETY: `len` elements were written, and they are this list's own.
            false => unsafe { std::slice::from_raw_parts_mut(self.at, self.len) },
        }
    }
}

impl<T: PlainNumbers> Drop for MappedVec<T> {
    fn drop(&mut self) {
        if !self.at.is_null() {
            // SAFETY: it is this list's own memory, and no code has a part of it.
            unsafe { sys::unmap(self.at.cast(), self.bytes()) };
        }
    }
}

/// A hash table from numbers to numbers. A key may have several values.
pub(in crate::perl) struct NumberMultimap {
    /// Entries of the table: pairs of a key plus one, and a value. An entry with 0 instead of a key
    /// is free. The number of entries is a power of two.
    places: MappedVec<u64>,
    len: usize,
}

impl NumberMultimap {
    pub(in crate::perl) const fn new() -> Self {
        Self {
            places: MappedVec::new(),
            len: 0,
        }
    }

    fn first_place(&self, key: u64) -> usize {
        let places = self.places.all().len() / 2;
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        mixed as usize & places.wrapping_sub(1)
    }

    /// Iterates over the values of a key.
    #[inline]
    pub(in crate::perl) fn get_all(&self, key: u64) -> impl Iterator<Item = u64> {
        let all = self.places.all();
        let (first, count) = (self.first_place(key), all.len() / 2);
        (0..count)
            .map(move |i| {
                let place = 2 * ((first + i) & (count - 1));
                (all[place], all[place + 1])
            })
            .take_while(|&(found, _)| found != 0)
            .filter_map(move |(found, of)| (found == key.wrapping_add(1)).then_some(of))
    }

    /// Adds a pair. Returns false if there is no memory.
    pub(in crate::perl) fn add(&mut self, key: u64, of: u64) -> bool {
        let places = self.places.all().len() / 2;
        if 2 * (self.len + 1) > places {
            let old = std::mem::replace(&mut self.places, MappedVec::new());
            let wanted = 2 * (2 * places).max(1024);
            if !self.places.grow(wanted) {
                self.places = old;
                return false;
            }
            for &[key, of] in old.all().as_chunks().0 {
                if key != 0 {
                    self.put(key, of);
                }
            }
        }
        self.put(key.wrapping_add(1), of);
        self.len += 1;
        true
    }

    fn put(&mut self, key: u64, of: u64) {
        let first = self.first_place(key.wrapping_sub(1));
        let all = self.places.all_mut();
        let count = all.len() / 2;
        for i in 0..count {
            let place = 2 * ((first + i) & (count - 1));
            if all[place] == 0 {
                (all[place], all[place + 1]) = (key, of);
                return;
            }
        }
    }
}

//! A growing map from u64 to u64 that is read without locks: unwind rules by address, stacks by
//! hash.
//!
//! The map uses open addressing, with 16 bytes for each entry. It begins with 32 KiB, because large
//! sparse tables cost a TLB miss for each lookup. A table that is more than half full is copied
//! into a table of twice its size. The old table stays mapped, for readers that still read it.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use heapprof_platform::arch::prefetch;
use heapprof_platform::lock::FutexLock;
use heapprof_platform::table_file::TableLifetime;

use crate::drop_counters::count;
use crate::process::EngineProcess;

const EMPTY_KEY: u64 = 0;
/// Flag of a key that was removed. Its entry is never reused for another key, because a reader that
/// is just finding the removed key must not get the value of another key.
const REMOVED_KEY_FLAG: u64 = 1 << 63;
const FIRST_BITS: u32 = 11;

#[repr(C)]
struct ProbeHeader {
    shift: u32,
    used: AtomicUsize,
    entry: [ProbeEntry; 0],
}

#[repr(C)]
struct ProbeEntry {
    key: AtomicU64,
    value: AtomicU64,
}

/// A growing map from u64 to u64. Keys 0 and 1 are reserved. If keys are ever removed from a map,
/// all its keys must be program addresses, whose highest bit is 0.
pub(crate) struct ProbeTable<const RANK: u8> {
    current: AtomicPtr<ProbeHeader>,
    /// Whether any keys were removed.
    has_removed: AtomicBool,
    /// Locked by writers.
    pub(crate) lock: FutexLock<RANK>,
}

impl ProbeHeader {
    fn len(&self) -> usize {
        1 << (64 - self.shift)
    }

    fn entry(&self, i: usize) -> &ProbeEntry {
        // SAFETY: tables are mapped with `len()` entries behind the header, and `i` is masked to
        // them.
        unsafe { &*self.entry.as_ptr().add(i & (self.len() - 1)) }
    }

    /// Returns the index at which the search for a key begins.
    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline]
    fn find(&self, key: u64) -> Result<u64, usize> {
        let mut i = self.home(key);
        loop {
            let entry = self.entry(i);
            match entry.key.load(Ordering::Acquire) {
                found if found == key => return Ok(entry.value.load(Ordering::Relaxed)),
                EMPTY_KEY => return Err(i),
                _ => i += 1,
            }
        }
    }

    /// Returns the entry of a key that was removed.
    fn find_removed(&self, key: u64) -> Option<&ProbeEntry> {
        let mut i = self.home(key);
        loop {
            let entry = self.entry(i);
            match entry.key.load(Ordering::Relaxed) {
                found if found == key | REMOVED_KEY_FLAG => return Some(entry),
                EMPTY_KEY => return None,
                _ => i += 1,
            }
        }
    }

    fn place_entry(&self, key: u64, value: u64) {
        if let Err(i) = self.find(key) {
            let entry = self.entry(i);
            entry.value.store(value, Ordering::Relaxed);
            entry.key.store(key, Ordering::Release);
            self.used.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<const RANK: u8> ProbeTable<RANK> {
    /// Creates an empty table, which is not mapped yet.
    pub(crate) const fn new() -> Self {
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            has_removed: AtomicBool::new(false),
            lock: FutexLock::new(),
        }
    }

    fn current(&self) -> Option<&ProbeHeader> {
        // SAFETY: published tables are never unmapped.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value of `key`.
    #[inline]
    pub(crate) fn find(&self, key: u64) -> Option<u64> {
        self.current()?.find(key).ok()
    }

    /// Prefetches the entry of `key`.
    #[inline(always)]
    pub(crate) fn prefetch(&self, key: u64) {
        if let Some(table) = self.current() {
            prefetch(std::ptr::from_ref(table.entry(table.home(key))).cast());
        }
    }

    /// Returns the value of `key`. If the key is new, `make` makes its value under the lock.
    /// Returns `None` if there is no memory, or if another thread is interrupted while it has the
    /// lock.
    #[cold]
    pub(crate) fn find_or_insert(
        &self,
        process: &EngineProcess,
        key: u64,
        make: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let Some(_guard) = self.lock.lock_in_time(process) else {
            count(&process.dropped.interrupted);
            return None;
        };
        if let Some(found) = self.find(key) {
            return Some(found);
        }
        let mut table = self.current();
        if self.has_removed.load(Ordering::Relaxed)
            && let Some(entry) = table.and_then(|table| table.find_removed(key))
        {
            let value = make()?;
            entry.value.store(value, Ordering::Relaxed);
            entry.key.store(key, Ordering::Release);
            return Some(value);
        }
        if table.is_none_or(|t| t.used.load(Ordering::Relaxed) * 2 > t.len()) {
            table = self.grow(process);
        }
        // The value is made only when there is a place for it, because a number that is given out
        // is used up.
        let table = table?;
        let value = make()?;
        table.place_entry(key, value);
        Some(value)
    }

    fn grow(&self, process: &EngineProcess) -> Option<&ProbeHeader> {
        let old = self.current();
        let bits = old.map_or(FIRST_BITS, |t| 65 - t.shift);
        let bytes = size_of::<ProbeHeader>() + (size_of::<ProbeEntry>() << bits);
        let new = process
            .pages
            .map_dense(bytes, TableLifetime::Own)
            .cast::<ProbeHeader>();
        if new.is_null() {
            // The old table serves until it is all but full.
            return old.filter(|t| t.used.load(Ordering::Relaxed) < t.len() - 1);
        }
        // SAFETY: fresh zeroed memory of the right size, seen by no other thread yet.
        let table = unsafe {
            (*new).shift = 64 - bits;
            &*new
        };
        let has_removed = self.has_removed.load(Ordering::Relaxed);
        for entry in old
            .into_iter()
            .flat_map(|t| (0..t.len()).map(|i| t.entry(i)))
        {
            let key = entry.key.load(Ordering::Relaxed);
            if key != EMPTY_KEY && !(has_removed && key & REMOVED_KEY_FLAG != 0) {
                table.place_entry(key, entry.value.load(Ordering::Relaxed));
            }
        }
        self.current.store(new, Ordering::Release);
        Some(table)
    }

    /// Returns how many bytes of the map are resident, including the smaller tables that it used
    /// before.
    pub(crate) fn resident(&self, process: &EngineProcess) -> usize {
        self.current().map_or(0, |table| {
            let bytes = |len| size_of::<ProbeHeader>() + len * size_of::<ProbeEntry>();
            let earlier = (FIRST_BITS..64 - table.shift).map(|bits| bytes(1 << bits));
            let at = std::ptr::from_ref(table).cast();
            let now = process.pages.resident(at, bytes(table.len()));
            now + earlier.sum::<usize>()
        })
    }

    /// Returns the number of keys, including removed keys that still have an entry.
    pub(crate) fn len(&self) -> usize {
        self.current().map_or(0, |t| t.used.load(Ordering::Relaxed))
    }

    /// Removes the keys in a range.
    pub(crate) fn remove_range(&self, process: &EngineProcess, range: std::ops::Range<u64>) {
        self.remove(process, |key| range.contains(&key));
    }

    /// Removes the keys for which `is_unwanted` returns true.
    pub(crate) fn remove(&self, process: &EngineProcess, is_unwanted: impl Fn(u64) -> bool) {
        // If the lock is not available, a signal handler holds up the thread that has it. The keys
        // must go all the same.
        let _guard = self.lock.lock_in_time(process);
        self.has_removed.store(true, Ordering::Relaxed);
        loop {
            let table = self.current();
            for entry in table
                .into_iter()
                .flat_map(|t| (0..t.len()).map(|i| t.entry(i)))
            {
                let key = entry.key.load(Ordering::Relaxed);
                if key != EMPTY_KEY && key & REMOVED_KEY_FLAG == 0 && is_unwanted(key) {
                    entry.key.store(key | REMOVED_KEY_FLAG, Ordering::Release);
                }
            }
            // Another thread may have copied the keys into a larger table.
            if self.current().map(std::ptr::from_ref) == table.map(std::ptr::from_ref) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_platform::pages::regions::region;

    /// Number of keys. It is small in an interpreter (Miri), which takes a thousand times as long.
    const COUNT: u64 = if cfg!(miri) { 1_500 } else { 50_000 };

    #[test]
    fn finds_what_was_inserted_through_growth_and_removal() {
        let process = EngineProcess::new(region());
        let table = ProbeTable::<0>::new();
        assert_eq!(table.find(7), None);
        for key in 2..COUNT {
            assert_eq!(
                table.find_or_insert(&process, key, || Some(key * 3)),
                Some(key * 3)
            );
        }
        assert_eq!(
            table.find_or_insert(&process, 77, || unreachable!()),
            Some(231)
        );
        table.remove_range(&process, 100..200);
        for key in 2..COUNT {
            let expected = (!(100..200).contains(&key)).then_some(key * 3);
            assert_eq!(table.find(key), expected);
        }
        assert_eq!(table.find_or_insert(&process, 150, || Some(1)), Some(1));
        assert_eq!(table.find(150), Some(1));
        assert_eq!(table.find_or_insert(&process, 151, || None), None);
        assert_eq!(table.find(151), None);
    }

    /// Tests that a key that was removed gets its old entry when it comes back. This is common,
    /// because a library that is loaded again mostly has its old addresses.
    #[test]
    fn a_key_that_comes_back_has_its_old_place() {
        let process = EngineProcess::new(region());
        let table = ProbeTable::<0>::new();
        for round in 0..COUNT / 100 {
            for key in 2..102 {
                let made = table.find_or_insert(&process, key, || Some(key + round));
                assert_eq!(made, Some(key + round));
            }
            table.remove(&process, |key| key % 3 != 0);
            assert_eq!((table.find(4), table.find(3)), (None, Some(3 + round)));
            table.remove_range(&process, 0..u64::MAX);
            assert_eq!(table.find(3), None);
        }
        assert_eq!(table.len(), 100);
    }
}

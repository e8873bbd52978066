//! The numbers of objects that a thread has allocated and freed, for each power of two of the size.
//!
//! The size of a block is also known when it is freed. So the difference of both numbers is the
//! number of objects in use. Counting one object takes three instructions.

use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_profile::{SIZE_CLASS_COUNT, SizeHistogram};

use crate::tables::counters::{EventWeight, add};
use crate::tables::sampler::{OBJECT_BITS, rounded};

/// One thread's counts of objects by size, in the recording's unit. That thread writes them, and
/// other threads read them.
#[repr(C)]
pub(crate) struct SizeCounts {
    allocated: [AtomicU64; SIZE_COUNTERS],
    freed: [AtomicU64; SIZE_COUNTERS],
}

/// Number of counts. Objects of no bytes have a separate count, so that they need no branch and no
/// further instruction. The last count is for mappings.
const SIZE_COUNTERS: usize = SIZE_CLASS_COUNT + 1;
const _: () = assert!(SIZE_COUNTERS == heapprof_abi::SIZE_COUNT);
const MAPPINGS_INDEX: usize = SIZE_COUNTERS - 1;

/// Returns the index of the count for a size: one more than the size's class.
#[inline(always)]
fn counter_index(size: u64) -> usize {
    // No block has half of the address space, so nothing is lost.
    (63 - (size << 1 | 1).leading_zeros()) as usize
}

impl SizeCounts {
    /// Counts an allocation of `size` bytes.
    #[inline(always)]
    pub(crate) fn count_allocation(&self, size: u64, weight: EventWeight) {
        add(&self.allocated[counter_index(size)], weight.objects);
    }

    /// Counts the end of a block of `size` bytes.
    #[inline(always)]
    pub(crate) fn count_free(&self, size: u64, weight: EventWeight) {
        add(&self.freed[counter_index(size)], weight.objects);
    }

    /// Counts a mapping.
    pub(crate) fn count_mapping(&self, weight: EventWeight) {
        add(&self.allocated[MAPPINGS_INDEX], weight.objects);
    }

    /// Counts the end of a mapping.
    pub(crate) fn count_unmapping(&self, weight: EventWeight) {
        add(&self.freed[MAPPINGS_INDEX], weight.objects);
    }

    /// Returns pairs of counts: the number of allocated objects, and the number of freed objects.
    fn both(&self) -> impl Iterator<Item = (&AtomicU64, &AtomicU64)> {
        self.allocated.iter().zip(&self.freed)
    }

    /// Adds another thread's objects in use, as if this thread had allocated them.
    pub(crate) fn take_over(&self, other: &Self) {
        for (to, of) in self.both().zip(other.both()) {
            add(to.0, in_use(of) as u64);
        }
    }

    /// Restarts the counts. They begin with the objects in use if `keeps_in_use` is true, otherwise
    /// with zero.
    pub(crate) fn restart(&self, keeps_in_use: bool) {
        for both in self.both() {
            let in_use = if keeps_in_use { in_use(both) } else { 0 };
            both.0.store(in_use as u64, Ordering::Relaxed);
            both.1.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the number of objects in use by the thread's counts, in the recording's unit. The
    /// number is negative if the thread frees blocks that other threads allocate.
    pub(crate) fn in_use(&self) -> i64 {
        self.both().map(in_use).fold(0, i64::wrapping_add)
    }

    /// Adds this thread's counts to `sizes`, in the recording's unit.
    pub(crate) fn add_to(&self, sizes: &mut SizeHistogram) {
        for (count, both) in self.both().enumerate() {
            let class = &mut sizes.classes[count.saturating_sub(1)];
            let allocated = both.0.load(Ordering::Relaxed) as i64;
            class.allocated = class.allocated.wrapping_add(allocated);
            class.in_use = class.in_use.wrapping_add(in_use(both));
        }
    }
}

fn in_use((allocated, freed): (&AtomicU64, &AtomicU64)) -> i64 {
    let freed = freed.load(Ordering::Relaxed);
    allocated.load(Ordering::Relaxed).wrapping_sub(freed) as i64
}

/// Converts a count of objects from a sampled recording's unit to a number of objects.
pub(crate) fn objects_from_units(objects: i64) -> i64 {
    rounded(objects, OBJECT_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_profile::class_of;

    #[test]
    fn a_count_is_one_more_than_the_class() {
        for size in (0..63).flat_map(|bits| [1u64 << bits, (1 << bits) - 1]) {
            let class = counter_index(size).saturating_sub(1);
            assert_eq!(class, class_of(size), "{size}");
        }
        assert!(counter_index(i64::MAX as u64) < MAPPINGS_INDEX);
    }
}

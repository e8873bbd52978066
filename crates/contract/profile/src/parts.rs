//! Helpers for columns of consecutive parts (stacks, texts, sets of labels), and for the memory
//! that tables take.

use std::ops::Range;

/// Returns the range of part `i` in a column whose parts end at the positions in `end`.
#[inline]
pub(crate) fn range(end: &[usize], i: usize) -> Range<usize> {
    let begin = if i == 0 { 0 } else { end[i - 1] };
    begin..end[i]
}

/// Estimates how many bytes a hash table for `capacity` entries takes. The estimate assumes that an
/// eighth of the table is empty, and that each entry takes one additional byte. While the table
/// grows, the smaller old table is in memory, too.
pub(crate) fn hash_table_memory<T>(capacity: usize) -> u64 {
    (capacity as u64).saturating_mul(size_of::<T>() as u64 + 1) / 2 * 3
}

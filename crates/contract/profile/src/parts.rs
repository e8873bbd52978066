//! Columns of parts, one behind the other (stacks, texts, sets of labels), and the memory that
//! tables take.

use std::ops::Range;

/// Where part `i` is in a column whose parts end at the positions in `end`.
#[inline]
pub(crate) fn range(end: &[usize], i: usize) -> Range<usize> {
    let begin = if i == 0 { 0 } else { end[i - 1] };
    begin..end[i]
}

/// About how many bytes a hash table takes that has room for `capacity` entries. An eighth of it is
/// empty, each entry takes a byte more, and while it grows the smaller table is in memory too.
pub(crate) fn hash_table_memory<T>(capacity: usize) -> u64 {
    (capacity as u64).saturating_mul(size_of::<T>() as u64 + 1) / 2 * 3
}

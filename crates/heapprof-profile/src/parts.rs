//! A column of parts, one behind the other: stacks, texts, sets of labels. And what tables take in
//! memory.

use std::ops::Range;

/// Where part `i` is in a column whose parts end there.
#[inline]
pub(crate) fn range(end: &[usize], i: usize) -> Range<usize> {
    let begin = if i == 0 { 0 } else { end[i - 1] };
    begin..end[i]
}

/// About how many bytes a hash table takes that has room for so many: an eighth is empty, each
/// entry has a byte more, and while it grows the smaller one is there, too.
pub(crate) fn hashed<T>(capacity: usize) -> u64 {
    (capacity as u64).saturating_mul(size_of::<T>() as u64 + 1) / 2 * 3
}

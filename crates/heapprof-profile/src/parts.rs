//! A column of parts, one behind the other: stacks, texts, sets of labels.

use std::ops::Range;

/// Where part `i` is in a column whose parts end there.
#[inline]
pub(crate) fn range(end: &[usize], i: usize) -> Range<usize> {
    let begin = if i == 0 { 0 } else { end[i - 1] };
    begin..end[i]
}

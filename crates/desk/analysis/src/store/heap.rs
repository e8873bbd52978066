//! The four values of a row of `heap_sample`. Values of other types have their own rows.

use heapprof_profile::{Profile, ValueType};
use heapprof_totals::estimate::SumSpread;
use heapprof_totals::totals::spread_of;

/// The sample types of the values in a row of `heap_sample`, with their units, in the order of the
/// columns.
pub(crate) const HEAP_TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// Returns the column of each heap type in a profile, and the columns of other types.
pub(crate) fn columns(profile: &Profile) -> ([Option<usize>; HEAP_TYPES.len()], Vec<usize>) {
    let types = &profile.sample_type;
    let heap = HEAP_TYPES.map(|(name, unit)| {
        let is_it = |t: &ValueType| profile.text(t.r#type) == name && profile.text(t.unit) == unit;
        types.iter().position(is_it)
    });
    let others = (0..types.len()).filter(|&column| !heap.contains(&Some(column)));
    (heap, others.collect())
}

/// Returns the spread of the sum of samples in a column, if the sum is an estimate.
pub(crate) fn spread_of_samples(
    profile: &Profile,
    samples: impl Iterator<Item = u32>,
    column: usize,
) -> Option<SumSpread> {
    let each = samples.map(|at| spread_of(profile, at as usize, column));
    let known = each.fold(SumSpread::default(), SumSpread::combine);
    (known != SumSpread::default()).then_some(known)
}

//! What percentages are of.

use heapprof_profile::Profile;

/// The label that marks the samples of a base that stay in sight (`-diff_base`).
const BASE: &str = "pprof::base";

/// Sum of the values of the sample type at `column`, signs aside; of the base's samples alone when they are marked.
/// With a `divisor`, another sample type, the mean. Sums wrap beyond 64 bits, as pprof's do.
pub fn total(profile: &Profile, column: usize, divisor: Option<usize>) -> i64 {
    let sets = 0..profile.label_sets.len() as u32;
    let is_base: Vec<bool> = sets
        .map(|set| {
            let labels = profile.label_sets.get(heapprof_profile::LabelSetIndex(set));
            let mut labels = labels.iter();
            labels.any(|l| profile.text(l.key) == BASE && profile.text(l.str) == "true")
        })
        .collect();
    // Value and divisor: of all samples, and of the base's.
    let (mut all, mut base) = ((0i64, 0i64), (0i64, 0i64));
    for i in 0..profile.samples.len() {
        let values = profile.samples.values(i);
        let value = values[column].wrapping_abs();
        let by = divisor.map_or(0, |d| values[d]);
        let add = |sum: &mut (i64, i64)| {
            *sum = (sum.0.wrapping_add(value), sum.1.wrapping_add(by));
        };
        add(&mut all);
        if is_base[profile.samples.label_set(i).index()] {
            add(&mut base);
        }
    }
    match if base.0 > 0 { base } else { all } {
        (sum, 0) => sum,
        (sum, by) => sum.wrapping_div(by),
    }
}

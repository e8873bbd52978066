//! Computes the spread of estimates: the number of sampled blocks and the variance. The files of
//! other samplers do not contain the spread.
//!
//! tcmalloc, jemalloc, Go and Google's Java agent sample as heapprof does: a block of `size` bytes
//! is sampled with probability p = 1 - exp(-size/period). Each sample has a size in its label
//! `bytes`. In Go, all blocks of the sample have this size; in the other samplers it is their mean
//! size. So the bytes of a sample are an estimate from bytes·p/size sampled blocks. Each of these
//! blocks adds size²·(1-p)/p² to the variance of bytes, and (1 - p)/p² to the variance of objects.
//! If sizes differ within a stack, the result is about right for bytes and a guess for objects.
//! docs/formats/spread.md derives these formulas.

use heapprof_profile::{Profile, Unit};

/// Pairs of sample types: a number of objects, and their bytes.
const SAMPLE_TYPE_PAIRS: [[&str; 2]; 3] = [
    ["alloc_objects", "alloc_space"],
    ["inuse_objects", "inuse_space"],
    ["objects", "space"],
];

/// Adds the spread to a profile whose values are estimates and have no spread yet.
pub(crate) fn add(profile: &mut Profile) {
    let Some(period) = period(profile) else {
        return;
    };
    let pairs = pairs(profile);
    let sizes = sizes(profile);
    let worth = |i: usize| profile.samples.values(i).iter().any(|&v| v != 0);
    let samples = profile.samples.len();
    // A sample without a size shows that another tool wrote the profile. That tool may give all
    // sizes another meaning.
    let any = (0..samples).any(worth);
    if pairs.is_empty() || !any || (0..samples).any(|i| worth(i) && sizes[i].is_none()) {
        return;
    }
    // A value that comes from less than one sampled block can't be an estimate with this period.
    let is_less = |i: usize| {
        let size = sizes[i].unwrap_or(1.0);
        let values = profile.samples.values(i);
        let blocks = |&[_, space]: &[usize; 2]| blocks(values[space], size, period);
        pairs
            .iter()
            .map(blocks)
            .any(|blocks| blocks > 0.0 && blocks < 0.5)
    };
    if (0..samples).any(is_less) {
        return;
    }
    let width = profile.sample_type.len();
    let (mut sampled, mut variance) = (vec![0u64; width], vec![0.0; width]);
    for (i, size) in sizes.into_iter().enumerate() {
        let Some(size) = size else {
            continue;
        };
        sampled.fill(0);
        variance.fill(0.0);
        let p = probability(size, period);
        let values = profile.samples.values(i);
        for &[objects, space] in &pairs {
            let blocks = blocks(values[space], size, period);
            if blocks <= 0.0 {
                continue;
            }
            // The cast limits numbers that are too large.
            let count = blocks.round().max(1.0) as u64;
            let of_objects = blocks * (1.0 - p) / (p * p);
            (sampled[objects], sampled[space]) = (count, count);
            variance[objects] = finite(of_objects);
            variance[space] = finite(of_objects * size * size);
        }
        profile.samples.set_spread(i, &sampled, &variance);
    }
}

/// Returns the probability that a block of this size is sampled.
fn probability(size: f64, period: f64) -> f64 {
    -(-size / period).exp_m1()
}

/// Returns the number of sampled blocks of this size from which `bytes` were estimated.
fn blocks(bytes: i64, size: f64, period: f64) -> f64 {
    (bytes as f64).abs() * probability(size, period) / size
}

fn finite(variance: f64) -> f64 {
    if variance.is_finite() {
        variance
    } else {
        f64::MAX
    }
}

/// Returns the sampling period in bytes if the spread is to be computed. Returns `None` if the
/// values are not estimates, if the profile has a spread, or if heapprof collected it (early
/// versions wrote no spread).
fn period(profile: &Profile) -> Option<f64> {
    let r#type = profile.period_type?;
    let unit = Unit::parse(profile.text(r#type.unit))?;
    let by_space = profile.text(r#type.r#type) == "space" && unit == Unit::parse("bytes")?;
    // heapprof's own profiles have their spread. Those that it wrote before it stored the spread
    // have samples with blocks of many sizes.
    let is_ours = |comment: &&_| profile.text(**comment).starts_with("collector: heapprof");
    let knows = profile.samples.has_spread() || profile.comment.iter().any(|c| is_ours(&c));
    (by_space && profile.period > 1 && !knows).then_some(profile.period as f64)
}

/// Returns the pairs of [`SAMPLE_TYPE_PAIRS`] that the profile has, as positions of its sample
/// types.
fn pairs(profile: &Profile) -> Vec<[usize; 2]> {
    let find = |(name, unit): (&str, &str)| {
        let mut types = profile.sample_type.iter();
        types.position(|t| profile.text(t.r#type) == name && profile.text(t.unit) == unit)
    };
    let pair =
        |[objects, space]: &[&str; 2]| Some([find((objects, "count"))?, find((space, "bytes"))?]);
    SAMPLE_TYPE_PAIRS.iter().filter_map(pair).collect()
}

/// Returns the size in the label `bytes` of each sample; `None` for a sample without exactly one
/// such label.
fn sizes(profile: &Profile) -> Vec<Option<f64>> {
    let of_set = |set| {
        let labels = profile.label_sets.get(heapprof_profile::LabelSetIndex(set));
        let mut sizes = labels.iter().filter(|label| {
            label.str.is_empty() && label.num > 0 && profile.text(label.key) == "bytes"
        });
        let size = sizes.next()?;
        sizes.next().is_none().then_some(size.num as f64)
    };
    let of_sets: Vec<Option<f64>> = (0..profile.label_sets.len() as u32).map(of_set).collect();
    let samples = 0..profile.samples.len();
    samples
        .map(|i| of_sets[profile.samples.label_set(i).index()])
        .collect()
}

#[cfg(test)]
mod tests {
    use heapprof_profile::ProfileBuilder;

    use super::*;

    /// Makes a profile with two sample types. Each row has the values of a stack, and the size in
    /// its label if it has one.
    fn profile(period: i64, rows: &[([i64; 2], Option<i64>)]) -> Profile {
        let mut builder =
            ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
        builder.profile.period_type = Some(builder.value_type("space", "bytes"));
        builder.profile.period = period;
        for (i, (values, size)) in rows.iter().enumerate() {
            let label = size.map(|size| builder.number_label("bytes", size, "bytes"));
            let mut labels: Vec<_> = label.into_iter().collect();
            builder.add_folded_with_labels(&format!("main;f{i}"), values, &mut labels);
        }
        builder.finish()
    }

    fn added(mut profile: Profile) -> Option<Vec<(u64, f64)>> {
        add(&mut profile);
        let of = |i| {
            let spread = profile.samples.spread(i)?;
            assert_eq!(spread.sampled[0], spread.sampled[1]);
            Some((spread.sampled[1], spread.variance[1]))
        };
        (0..profile.samples.len()).map(of).collect()
    }

    #[test]
    fn one_size_a_row_is_enough() {
        // Four blocks of 512 bytes that stand for about 1025 blocks each, two blocks that are
        // certain, and nothing.
        let rows = [
            ([4098, 2_098_176], Some(512)),
            ([2, 200_000_000], Some(100_000_000)),
            ([0, 0], None),
        ];
        let found = added(profile(524_288, &rows)).unwrap();
        let of_four = 4.0 * 524_288.0 * 524_288.0;
        assert_eq!((found[0].0, found[1], found[2]), (4, (2, 0.0), (0, 0.0)));
        assert!((found[0].1 / of_four - 1.0).abs() < 0.01, "{found:?}");
        // The spread of a difference is computed in the same way.
        let rows = [([-4098, -2_098_176], Some(512))];
        assert_eq!(added(profile(524_288, &rows)).unwrap()[0].0, 4);
    }

    #[test]
    fn nothing_is_made_up() {
        let row = ([4098, 2_098_176], Some(512));
        assert_eq!(added(profile(1, &[row])), None);
        assert_eq!(added(profile(524_288, &[row, ([1, 16], None)])), None);
        assert_eq!(added(profile(524_288, &[])), Some(Vec::new()));
        assert_eq!(
            added(profile(524_288, &[row, ([3, 3000], Some(1000))])),
            None
        );
        let mut ours = profile(524_288, &[row]);
        let comment = ours.strings.intern("collector: heapprof 0.1.0");
        ours.comment.push(comment);
        assert_eq!(added(ours), None);
        let mut known = profile(524_288, &[row]);
        known.samples.set_spread(0, &[7, 7], &[1.0, 2.0]);
        assert_eq!(added(known), Some(vec![(7, 2.0)]));
        let mut by_time = profile(524_288, &[row]);
        by_time.period_type = Some(by_time.sample_type[0]);
        assert_eq!(added(by_time), None);
    }
}

//! Spread of values: how far a sampler's values may be from the truth.
//!
//! A sampler that takes each block with a known probability p counts that block as 1/p blocks. It
//! estimates the variance of the sum of blocks by Σ (1 - p)/p² over the blocks that it took, and
//! the variance of the sum of their bytes by Σ size²·(1 - p)/p². Source: D. G. Horvitz and D. J.
//! Thompson, "A generalization of sampling without replacement from a finite universe" (1952).
//! docs/formats/spread.md describes the fields in a file.

use super::Samples;

/// Spread of the values of all samples, with one entry for each value.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpreadTable {
    pub(crate) sampled: Vec<u64>,
    pub(crate) variance: Vec<f64>,
}

/// Spread of the values of one sample, with one entry for each sample type.
#[derive(Clone, Copy, Debug)]
pub struct SampleSpread<'a> {
    /// Number of sampled blocks behind each value; 0 if the value is not an estimate, or if the
    /// number is unknown.
    pub sampled: &'a [u64],
    /// The estimated variance of each value, in the square of the value's unit.
    pub variance: &'a [f64],
}

/// Maximum number of blocks behind a value: the largest number that SQL can count.
pub(crate) const MAX_SAMPLED: u64 = i64::MAX as u64;

impl SpreadTable {
    /// Makes a spread for `values` exact values.
    pub(crate) fn exact(values: usize) -> Self {
        Self {
            sampled: vec![0; values],
            variance: vec![0.0; values],
        }
    }

    /// Changes the number of values: adds exact values, or removes values at the end.
    pub(crate) fn extend_to(&mut self, values: usize) {
        self.sampled.resize(values, 0);
        self.variance.resize(values, 0.0);
    }

    pub(crate) fn copy_within(&mut self, values: std::ops::Range<usize>, to: usize) {
        self.sampled.copy_within(values.clone(), to);
        self.variance.copy_within(values, to);
    }

    /// Adds another sample's spread, `other`, to the entries from position `at` on. The two samples
    /// must be independent.
    pub(crate) fn add(&mut self, at: usize, other: SampleSpread<'_>) {
        for (sum, &n) in self.sampled[at..].iter_mut().zip(other.sampled) {
            *sum = sum.saturating_add(n).min(MAX_SAMPLED);
        }
        for (sum, &variance) in self.variance[at..].iter_mut().zip(other.variance) {
            *sum = (*sum + variance).min(f64::MAX);
        }
    }

    /// Keeps the columns at these positions, in this order. `width` is the number of columns before
    /// the change.
    pub(crate) fn keep_types(&mut self, width: usize, keep: &[usize]) {
        fn kept<T: Copy>(column: &[T], width: usize, keep: &[usize]) -> Vec<T> {
            let rows = column.chunks(width);
            rows.flat_map(|row| keep.iter().map(|&k| row[k])).collect()
        }
        self.sampled = kept(&self.sampled, width, keep);
        self.variance = kept(&self.variance, width, keep);
    }
}

impl SampleSpread<'_> {
    /// Whether all values are exact.
    pub fn is_exact(&self) -> bool {
        self.sampled.iter().all(|&n| n == 0) && self.variance.iter().all(|&v| v == 0.0)
    }
}

impl Samples {
    /// Whether the table has a spread. Without one, all values count as exact.
    pub fn has_spread(&self) -> bool {
        self.spread.is_some()
    }

    /// Returns the spread of the values of sample `i`; `None` if no sample has a spread.
    #[inline]
    pub fn spread(&self, i: usize) -> Option<SampleSpread<'_>> {
        let spread = self.spread.as_ref()?;
        let values = i * self.width..(i + 1) * self.width;
        Some(SampleSpread {
            sampled: &spread.sampled[values.clone()],
            variance: &spread.variance[values],
        })
    }

    /// Sets the spread of the values of sample `i`, one entry for each sample type.
    ///
    /// # Panics
    /// When the number of entries is not the table's number of values per sample, or when a
    /// variance is negative, infinite or not a number.
    pub fn set_spread(&mut self, i: usize, sampled: &[u64], variance: &[f64]) {
        assert_eq!(sampled.len(), self.width, "one count a sample type");
        assert_eq!(variance.len(), self.width, "one variance a sample type");
        assert!(variance.iter().all(|&v| is_variance(v)), "{variance:?}");
        let values = i * self.width..(i + 1) * self.width;
        let spread = self.spread_mut();
        for (to, &n) in spread.sampled[values.clone()].iter_mut().zip(sampled) {
            *to = n.min(MAX_SAMPLED);
        }
        for (to, &v) in spread.variance[values].iter_mut().zip(variance) {
            // This makes -0 positive.
            *to = v + 0.0;
        }
    }

    /// Removes the spread of all values.
    pub fn forget_spread(&mut self) {
        self.spread = None;
    }

    /// Returns how many bytes of memory the spread takes.
    pub(crate) fn spread_memory(&self) -> u64 {
        self.spread.as_ref().map_or(0, |spread| {
            (size_of_val(&spread.sampled[..]) + size_of_val(&spread.variance[..])) as u64
        })
    }

    /// Returns the spread, which may be changed. If there is none, a spread of exact values is
    /// made.
    pub(crate) fn spread_mut(&mut self) -> &mut SpreadTable {
        let values = self.value.len();
        let spread = self
            .spread
            .get_or_insert_with(|| SpreadTable::exact(values));
        spread.extend_to(values);
        spread
    }

    /// Whether all values of sample `i` are exactly 0, so that the sample can be left out.
    pub(crate) fn is_nothing(&self, i: usize) -> bool {
        self.values(i).iter().all(|&v| v == 0) && self.spread(i).is_none_or(|s| s.is_exact())
    }

    /// Whether two tables of samples have the same spread, to the bit. A spread of exact values
    /// equals a missing spread.
    pub(crate) fn same_spread(&self, other: &Self) -> bool {
        let same = |i: usize| match (self.spread(i), other.spread(i)) {
            (Some(a), Some(b)) => {
                let bits = |v: &f64| v.to_bits();
                a.sampled == b.sampled
                    && a.variance.iter().map(bits).eq(b.variance.iter().map(bits))
            }
            (one, two) => one.or(two).is_none_or(|spread| spread.is_exact()),
        };
        self.spread.is_none() && other.spread.is_none() || (0..self.len()).all(same)
    }
}

/// Whether a number can be a variance: finite and not negative.
pub(crate) fn is_variance(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

#[cfg(test)]
mod tests {
    use crate::{
        EncodeOptions, Gzip, LabelSetIndex, Profile, ProfileBuilder, ReadOptions, decode,
        decode_with, encode, encode_samples_quickly, encode_with, merge,
    };

    const HEAP: [(&str, &str); 3] = [
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
        ("peak_space", "bytes"),
    ];

    /// A stack, with the value, number of blocks and variance of each type. A row without variances
    /// has no spread.
    type Row<'a> = (&'a str, [i64; 3], [u64; 3], &'a [f64]);

    fn profile(rows: &[Row<'_>]) -> Profile {
        let mut builder = ProfileBuilder::new(&HEAP);
        for (i, (stack, values, sampled, variance)) in rows.iter().enumerate() {
            builder.add_folded(stack, values);
            if !variance.is_empty() {
                builder.profile.samples.set_spread(i, sampled, variance);
            }
        }
        builder.finish()
    }

    fn spread(profile: &Profile, i: usize) -> Option<(Vec<u64>, Vec<f64>)> {
        let spread = profile.samples.spread(i)?;
        Some((spread.sampled.to_vec(), spread.variance.to_vec()))
    }

    fn sampled() -> Profile {
        profile(&[
            ("main;exact", [1, 2, 3], [0; 3], &[]),
            ("main;a", [4, 5, 6], [7, 1 << 40, 0], &[0.5, 1e300, 0.0]),
            ("main;b", [7, 8, 9], [1, 1, 0], &[0.0, 0.0, 0.0]),
        ])
    }

    fn bytes(profile: &Profile) -> Vec<u8> {
        let mut bytes = Vec::new();
        let plain = EncodeOptions::default().gzip(Gzip::None);
        encode_with(profile, &mut bytes, plain).unwrap();
        bytes
    }

    #[test]
    fn a_file_keeps_it() {
        let exact = profile(&[("main", [1, 2, 3], [0; 3], &[])]);
        let zeros = profile(&[("main", [1, 2, 3], [0; 3], &[0.0, -0.0, 0.0])]);
        assert_eq!(exact, zeros);
        assert_eq!(bytes(&exact), bytes(&zeros));
        assert!(!decode(&bytes(&zeros)[..]).unwrap().samples.has_spread());
        let sampled = sampled();
        let file = bytes(&sampled);
        let again = decode(&file[..]).unwrap();
        assert_eq!(again, sampled);
        assert_eq!(bytes(&again), file);
        assert_eq!(spread(&again, 0), Some((vec![0; 3], vec![0.0; 3])));
        let expected = (vec![7, 1 << 40, 0], vec![0.5, 1e300, 0.0]);
        assert_eq!(spread(&again, 1), Some(expected));
        for kept in [true, false] {
            let options = ReadOptions::default().stacks_as_written(kept);
            assert_eq!(decode_with(&file[..], options).unwrap(), sampled);
            let without = decode_with(&file[..], options.without_spread(true)).unwrap();
            assert!(!without.samples.has_spread());
            assert_ne!(without, sampled);
            let mut forgotten = sampled.clone();
            forgotten.samples.forget_spread();
            assert_eq!(without, forgotten);
        }
    }

    /// Checks that this encoder and prost write the fields of a spread with the same bytes.
    #[test]
    fn fields_are_as_prost_writes_them() {
        use prost::Message;
        let bytes = bytes(&sampled());
        let message = crate::proto::Profile::decode(&bytes[..]).unwrap();
        assert_eq!(message.sample[1].variance, [0.5, 1e300, 0.0]);
        assert_eq!(message.sample[1].sampled, [7, 1 << 40, 0]);
        assert_eq!(message.sample[0].sampled, [0; 0]);
        assert_eq!(message.sample[2].variance, [0.0; 3]);
        assert_eq!(decode(&message.encode_to_vec()[..]).unwrap(), sampled());
    }

    /// Checks that each entry of a spread may be in a field of its own, as protobuf allows.
    #[test]
    fn fields_may_be_unpacked() {
        let mut bytes = bytes(&profile(&[("main", [1, 2, 3], [0; 3], &[])]));
        let mut body = Vec::new();
        for value in [1u64, 2, 3] {
            prost::encoding::uint64::encode(2, &value, &mut body);
            prost::encoding::uint64::encode(1001, &(10 * value), &mut body);
            prost::encoding::double::encode(1002, &(value as f64 / 8.0), &mut body);
        }
        prost::encoding::bytes::encode(2, &body, &mut bytes);
        let read = decode(&bytes[..]).unwrap();
        let expected = (vec![10, 20, 30], vec![0.125, 0.25, 0.375]);
        assert_eq!(spread(&read, 1), Some(expected));
    }

    #[test]
    fn written_quickly_it_is_the_same() {
        let profile = sampled();
        let mut builder = ProfileBuilder::new(&HEAP);
        (builder.profile.location, builder.profile.line) =
            (profile.location.clone(), profile.line.clone());
        (builder.profile.function, builder.profile.strings) =
            (profile.function.clone(), profile.strings.clone());
        let mut at = 0;
        let next = |_: &mut ProfileBuilder, sample: &mut crate::QuickSample| {
            let i = at;
            at += 1;
            if i == profile.samples.len() {
                return None;
            }
            sample.newer.extend_from_slice(profile.samples.stack(i));
            sample.values.copy_from_slice(profile.samples.values(i));
            let spread = profile.samples.spread(i)?;
            if !spread.is_exact() {
                sample.sampled.copy_from_slice(spread.sampled);
                sample.variance.copy_from_slice(spread.variance);
            }
            Some(0)
        };
        let mut file = Vec::new();
        encode_samples_quickly(builder, next, &mut file).unwrap();
        assert_eq!(decode(&file[..]).unwrap(), profile);
    }

    #[test]
    fn sums_add_up_and_differences_too() {
        let one = profile(&[
            ("main;a", [4, 40, 1], [2, 2, 0], &[3.0, 30.0, 0.0]),
            ("main;b", [1, 10, 1], [1, 1, 0], &[0.5, f64::MAX, 0.0]),
        ]);
        let exact = profile(&[("main;a", [1, 1, 1], [0; 3], &[])]);
        let sum = merge(one.clone(), exact.clone()).unwrap();
        assert_eq!(spread(&sum, 0), Some((vec![2, 2, 0], vec![3.0, 30.0, 0.0])));
        let sum = merge(exact.clone(), one.clone()).unwrap();
        assert_eq!(spread(&sum, 0), Some((vec![2, 2, 0], vec![3.0, 30.0, 0.0])));
        assert!(!merge(exact.clone(), exact).unwrap().samples.has_spread());
        let mut negated = one.clone();
        negated.negate().unwrap();
        // The values are 0, but they are estimates, so the sample stays.
        let difference = merge(one, negated).unwrap();
        assert_eq!(difference.samples.values(0), [0; 3]);
        assert_eq!(
            spread(&difference, 0),
            Some((vec![4, 4, 0], vec![6.0, 60.0, 0.0]))
        );
        assert_eq!(
            spread(&difference, 1),
            Some((vec![2, 2, 0], vec![1.0, f64::MAX, 0.0]))
        );
    }

    #[test]
    fn it_goes_with_the_values() {
        let mut scaled = sampled();
        scaled.scale(&[2.0, 1.0, 0.5]).unwrap();
        let expected = (vec![7, 1 << 40, 0], vec![2.0, 1e300, 0.0]);
        assert_eq!(spread(&scaled, 1), Some(expected));
        let mut converted = sampled();
        converted.convert_unit(1, "kilobytes").unwrap();
        let variance = spread(&converted, 1).unwrap().1;
        assert_eq!(variance, [0.5, 1e300 / 1024.0 / 1024.0, 0.0]);
        converted.convert_unit(1, "bytes").unwrap();
        assert_eq!(spread(&converted, 1).unwrap().1, [0.5, 1e300, 0.0]);
        let mut scaled = sampled();
        scaled.samples.set_spread(0, &[1; 3], &[f64::MAX; 3]);
        scaled.scale(&[3.0; 3]).unwrap();
        assert_eq!(spread(&scaled, 0).unwrap().1, [f64::MAX; 3]);

        let other = sampled();
        let mut cut = sampled();
        cut.samples.retain(|values| values[0] != 1);
        assert_eq!(spread(&cut, 0), spread(&other, 1));
        assert_eq!((cut.samples.len(), spread(&cut, 1)), (2, spread(&other, 2)));
        let mut cut = sampled();
        cut.samples.rewrite(|stack, values, _, kept| {
            kept.extend_from_slice(&stack[1..]);
            values[0] != 4
        });
        assert_eq!(spread(&cut, 1), spread(&other, 2));
        let stack = cut.samples.stack(0).to_vec();
        cut.samples.push(stack, &[1, 1, 1], LabelSetIndex(0));
        assert_eq!(spread(&cut, 2), Some((vec![0; 3], vec![0.0; 3])));

        let mut two = ProfileBuilder::new(&[HEAP[2], HEAP[0]]);
        two.add_folded("main;a", &[1, 1]);
        let sum = merge(sampled(), two.finish()).unwrap();
        assert_eq!(spread(&sum, 1), Some((vec![7, 0], vec![0.5, 0.0])));
        let mut file = Vec::new();
        encode(&sum, &mut file).unwrap();
        assert_eq!(decode(&file[..]).unwrap(), sum);
    }
}

//! Computes how certain an estimate is: converts the spread of a sampled sum to a range that
//! contains the true sum.
//!
//! The sampler gives the variance of each value (Horvitz and Thompson; docs/formats/spread.md). A
//! sum of many samples is nearly normal: the range of 1.96 standard deviations to each side
//! contains the true sum in 95 of 100 cases. With few samples, this range is too narrow if the sum
//! happens to be small, because its variance is then small, too. So a score interval is used
//! instead. It tests each possible true sum with the variance that *this* true sum would have. The
//! interval consists of the true sums for which the sampled sum is plausible. Sources: E. B.
//! Wilson, "Probable inference, the law of succession, and statistical inference" (1927), for
//! counts; G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a
//! general approach" (2008), for differences (MOVER).

use heapprof_profile::{Unit, UnitFamily};

/// The uncertainty of a sampled sum: the number of sampled blocks behind the sum, and its variance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SumSpread {
    /// The number of sampled blocks behind the sum.
    pub samples: u64,
    /// The estimated variance of the sum, in its unit squared.
    pub variance: f64,
}

/// The range that contains the true value of an estimate, and the number of samples behind the
/// estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueEstimate {
    /// The least possible true value.
    pub low: i64,
    /// The largest possible true value.
    pub high: i64,
    /// The number of sampled blocks behind the value.
    pub samples: u64,
}

impl ValueEstimate {
    /// Whether the true value may be 0.
    pub fn contains_zero(&self) -> bool {
        self.low <= 0 && self.high >= 0
    }
}

/// The confidence level of ranges: how certain it is that a range contains the true value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceLevel {
    /// The number of standard deviations that a range reaches to each side.
    z: f64,
    /// Largest amount that may have been missed if nothing was sampled, in sampling periods.
    never: f64,
}

/// Minimum number of samples for which a sum is nearly normal.
const MIN_NORMAL_SAMPLES: f64 = 30.0;

impl ConfidenceLevel {
    /// The level at which 95 of 100 ranges contain the true value. In half of the other cases, the
    /// true value is above the range.
    pub const DEFAULT_LEVEL: Self = Self {
        z: 1.959_963_984_540_054,
        never: 3.688_879_454_113_936,
    };

    /// Returns the level at which all of `ranges` ranges contain their true values in at least 95
    /// of 100 cases (Bonferroni).
    pub fn shared_by(ranges: usize) -> Self {
        match ranges {
            0 | 1 => Self::DEFAULT_LEVEL,
            ranges => {
                let tail = 0.025 / ranges as f64;
                Self {
                    z: -quantile(tail),
                    never: -tail.ln(),
                }
            }
        }
    }
}

/// Returns the quantile of the standard normal distribution for this probability, which must be
/// small.
///
/// Source: Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 26.2.23. The error
/// is less than 0.00045.
fn quantile(probability: f64) -> f64 {
    let t = (-2.0 * probability.max(f64::MIN_POSITIVE).ln()).sqrt();
    let above = 2.515517 + t * (0.802853 + t * 0.010328);
    let below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    above / below - t
}

/// Returns the sampling period in bytes; `None` if the period does not count bytes of memory, or is
/// at most 1.
pub fn period_in_bytes(r#type: &str, unit: &str, period: i64) -> Option<i64> {
    let unit = Unit::parse(unit).filter(|unit| unit.family == UnitFamily::Bytes)?;
    let period = period.checked_mul(unit.factor)?;
    (r#type == "space" && period > 1).then_some(period)
}

/// The amount that one sample stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleStep {
    /// The amount, in the unit of the sum; 0 if it is unknown.
    pub each: f64,
    /// Whether `each` is the largest amount that a sample can stand for. For bytes, the period is
    /// this bound. For objects, there is no bound.
    pub is_upper_bound: bool,
}

impl SampleStep {
    /// Returns the step of a sum of bytes, from the sampling period in bytes. Without a period, the
    /// step is unknown.
    pub fn for_bytes(period: Option<i64>, unit: &str) -> Self {
        let unit = Unit::parse(unit).filter(|unit| unit.family == UnitFamily::Bytes);
        let known = period.zip(unit);
        known.map_or(Self::default(), |(period, unit)| Self {
            each: period as f64 / unit.factor as f64,
            is_upper_bound: true,
        })
    }

    /// Returns this step if it is an upper bound; otherwise the mean amount for which the samples
    /// of a sum stand.
    pub fn or_mean_of(self, spread: Option<SumSpread>, sum: i64) -> Self {
        match self.is_upper_bound {
            true => self,
            false => Self {
                each: spread.map_or(0.0, |spread| spread.mean_step(sum as f64)),
                is_upper_bound: false,
            },
        }
    }

    /// Returns the step of values that are multiplied by `factor`.
    pub fn times(self, factor: f64) -> Self {
        Self {
            each: self.each * factor.abs(),
            ..self
        }
    }
}

impl SumSpread {
    /// Returns the spread of the sum, or of the difference, of two independent sums.
    pub fn combine(self, other: Self) -> Self {
        Self {
            samples: self.samples.saturating_add(other.samples),
            variance: (self.variance + other.variance).min(f64::MAX),
        }
    }

    /// Returns the spread of a sum that is multiplied by `factor`.
    pub fn times(self, factor: f64) -> Self {
        Self {
            variance: (self.variance * factor * factor).min(f64::MAX),
            ..self
        }
    }

    /// Returns the mean amount for which one sample of a sum stands. Samples that stand for more
    /// have more weight.
    fn mean_step(self, value: f64) -> f64 {
        match value {
            0.0 => 0.0,
            value => self.variance / value.abs(),
        }
    }

    /// Returns the largest amount for which one sample of a sum may stand, which is `r` in
    /// docs/formats/spread.md.
    ///
    /// If no bound is known and all samples stand for the same amount, the result is the average
    /// amount. If the amounts differ, the result is larger, because samples that stand for even
    /// more were probably missed. The formula for the increase was found by trial
    /// (bench/spread.py).
    fn most(self, value: f64, step: SampleStep) -> f64 {
        let mean = self.mean_step(value);
        if step.is_upper_bound {
            return mean.max(step.each);
        }
        let equal = value * value / self.variance;
        mean * (1.0 + 2.0 * (self.samples as f64 / equal).max(1.0).ln())
    }

    /// Returns the range that contains the true sum.
    pub fn range(self, value: f64, step: SampleStep, confidence: ConfidenceLevel) -> (f64, f64) {
        let (low, high) = self.variance_range(value, step, confidence);
        match confidence == ConfidenceLevel::DEFAULT_LEVEL {
            true => (low, high),
            // Among many sums, some miss a block that was nearly certain to be sampled, and their
            // variance does not show that.
            false => (low, high.max(value + confidence.never * step.each)),
        }
    }

    /// Returns the range that follows from the variance alone.
    fn variance_range(
        self,
        value: f64,
        step: SampleStep,
        confidence: ConfidenceLevel,
    ) -> (f64, f64) {
        let ConfidenceLevel { z, never } = confidence;
        if self.variance <= 0.0 {
            // Blocks that were certain to be sampled say nothing about what was not sampled.
            let may_hide = match self.samples {
                0 => value == 0.0,
                _ => step.is_upper_bound,
            };
            let hidden = if may_hide { never * step.each } else { 0.0 };
            return (value, value + hidden);
        }
        let deviation = self.variance.sqrt();
        // This is the number of samples of equal weight that would have this value and variance. It
        // is larger than the real number if some samples are certain.
        let equal = value * value / self.variance;
        let n = equal.min(self.samples as f64);
        // A variance larger than that of one sample occurs only if the sum has values of both
        // signs.
        if value < 0.0 || equal < 0.999 || n == 0.0 {
            return (value - z * deviation, value + z * deviation);
        }
        // The truths t that give this value solve (value - t)² = z²·(variance + step·(t - value)).
        // The amount by which t exceeds the value consists of steps of this size, and each of them
        // adds to the variance.
        let solved = |step: f64| {
            let (middle, shift) = (value + z * z * step / 2.0, z * step / 2.0);
            let half = z * (self.variance + shift * shift).sqrt();
            (middle - half, middle + half)
        };
        let low = match n >= MIN_NORMAL_SAMPLES {
            true => value - z * deviation,
            false => solved(deviation / n.sqrt()).0,
        };
        let most = self.most(value, step);
        let high = match self.variance >= MIN_NORMAL_SAMPLES * most * most {
            true => value + z * deviation,
            false => solved(most).1,
        };
        (low, high)
    }

    /// Returns the estimate of a sum of bytes that were sampled once every `period` bytes on
    /// average.
    pub fn estimate_bytes(self, value: i64, period: i64) -> ValueEstimate {
        self.estimate(value, SampleStep::for_bytes(Some(period), "bytes"))
    }

    /// Returns the estimate of the true sum.
    pub fn estimate(self, value: i64, step: SampleStep) -> ValueEstimate {
        let (low, high) = self.range(value as f64, step, ConfidenceLevel::DEFAULT_LEVEL);
        ValueEstimate {
            // Beyond 2⁵³, rounding of floating-point numbers could leave the value itself out of
            // the range.
            low: value.min(low.floor() as i64),
            high: value.max(high.ceil() as i64),
            samples: self.samples,
        }
    }
}

/// A value with its spread. The spread is `None` if the value is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueWithSpread {
    /// The value.
    pub value: i64,
    /// The uncertainty of the value.
    pub spread: Option<SumSpread>,
}

impl ValueWithSpread {
    /// Adds two independent values. All sums of a profile's values fit in 64 bits, so this sum
    /// does, too.
    pub fn plus(self, other: Self) -> Self {
        Self {
            value: self.value.saturating_add(other.value),
            spread: match (self.spread, other.spread) {
                (Some(one), Some(other)) => Some(one.combine(other)),
                (one, other) => one.or(other),
            },
        }
    }

    /// Returns the range of the true value; `None` if the value is exact.
    pub fn estimate(self, step: SampleStep) -> Option<ValueEstimate> {
        Some(self.spread?.estimate(self.value, step))
    }
}

/// The value before or after a change, for a comparison. The spread is `None` if the value is
/// exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ComparisonSide {
    /// The value.
    pub value: f64,
    /// The uncertainty of the value.
    pub spread: Option<SumSpread>,
    /// The amount for which one sample of this value stands.
    pub step: SampleStep,
}

impl ComparisonSide {
    fn range(self, confidence: ConfidenceLevel) -> (f64, f64) {
        match self.spread {
            Some(spread) => spread.range(self.value, self.step, confidence),
            None => (self.value, self.value),
        }
    }
}

/// Returns the range of `after - factor * before`. Both values may be estimates, and they must be
/// independent.
pub fn difference(
    before: ComparisonSide,
    after: ComparisonSide,
    factor: f64,
    confidence: ConfidenceLevel,
) -> (f64, f64) {
    let delta = after.value - factor * before.value;
    let ((b_low, b_high), (a_low, a_high)) = (before.range(confidence), after.range(confidence));
    let below = (after.value - a_low).hypot(factor * (b_high - before.value));
    let above = (a_high - after.value).hypot(factor * (before.value - b_low));
    (delta - below, delta + above)
}

/// Returns the smallest growth of a value that a comparison shows. A smaller one is within the
/// noise of sampling. `after` tells how the later value was sampled. Returns `None` if both values
/// are exact, or if nothing is known of what one sample stands for.
pub fn smallest_growth(before: ComparisonSide, after: ComparisonSide) -> Option<f64> {
    if before.spread.is_none() && after.spread.is_none() {
        return None;
    }
    let is_unknown = |side: ComparisonSide| {
        let spread = side.spread.unwrap_or_default();
        side.spread.is_some() && spread.variance <= 0.0 && side.step.each <= 0.0
    };
    if is_unknown(before) || is_unknown(after) {
        return None;
    }
    // A growth is sampled as the later value is, so it adds to that value's spread.
    let shows = |growth: f64| {
        let grown = ComparisonSide {
            value: before.value + growth,
            spread: after.spread.map(|spread| SumSpread {
                samples: spread
                    .samples
                    .saturating_add((growth / after.step.each).ceil() as u64),
                variance: spread.variance + growth * after.step.each,
            }),
            ..after
        };
        difference(before, grown, 1.0, ConfidenceLevel::DEFAULT_LEVEL).0 > 0.0
    };
    let mut high = 1.0;
    while !shows(high) {
        high *= 2.0;
        if high > MAX_GROWTH {
            return None;
        }
    }
    let mut low = 0.0;
    for _ in 0..GROWTH_STEPS {
        let middle = (low + high) / 2.0;
        match shows(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(high)
}

/// Largest growth that is looked for: the largest value of a profile.
const MAX_GROWTH: f64 = i64::MAX as f64;
/// The number of times that the interval of the smallest growth is halved.
const GROWTH_STEPS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: SampleStep = SampleStep {
        each: 4096.0,
        is_upper_bound: true,
    };

    fn spread(samples: u64, variance: f64) -> SumSpread {
        SumSpread { samples, variance }
    }

    #[test]
    fn ranges() {
        // Each row is: value, samples, variance, low, high.
        let table = [
            // This value is exact.
            (1000, 0, 0.0, 1000, 1000),
            // Besides the certain amount, there may be something that was not sampled.
            (1000, 5, 0.0, 1000, 16_110),
            // Nothing was sampled: the truth is below 3.69 periods.
            (0, 0, 0.0, 0, 15110),
            // 100 samples of 4096 each: ± 19.6 %.
            (409_600, 100, 100.0 * 4096.0 * 4096.0, 329_319, 489_881),
            // 10 samples of 4096 each: 5.43 to 18.41 times 4096, Wilson's limits of a count.
            (40_960, 10, 10.0 * 4096.0 * 4096.0, 22_249, 75_406),
            // There is one sample.
            (4096, 1, 4096.0 * 4096.0, 723, 23_204),
            // There are three samples of 4096, and 10,000,000 that are certain. The range is as if
            // four of them were counted for its low end, and three for its high end.
            (10_012_288, 4, 3.0 * 4096.0 * 4096.0, 10_003_616, 10_036_132),
            // A difference of sums has values of both signs.
            (0, 8, 8.0 * 4096.0 * 4096.0, -22_707, 22_707),
            (-4096, 8, 8.0 * 4096.0 * 4096.0, -26_803, 18_611),
        ];
        for (value, samples, variance, low, high) in table {
            let found = spread(samples, variance).estimate(value, PERIOD);
            let expected = ValueEstimate { low, high, samples };
            assert_eq!(found, expected, "{value} {samples}");
        }
        assert_eq!(spread(2, 3.0).combine(spread(1, 4.0)), spread(3, 7.0));
        assert_eq!(spread(2, 3.0).times(-2.0), spread(2, 12.0));
    }

    /// Checks ranges of objects. The number of objects for which a sample may stand has no known
    /// bound. If all samples stand for the same number, a sum of many is nearly normal. If one
    /// sample stands for half of all objects, other such samples may have been missed.
    #[test]
    fn ranges_of_objects() {
        let low_and_high = |samples, variance| {
            let estimate = spread(samples, variance).estimate(1000, SampleStep::default());
            (estimate.low, estimate.high)
        };
        assert_eq!(low_and_high(100, 100.0 * 100.0), (804, 1196));
        assert_eq!(low_and_high(10, 10.0 * 10_000.0), (543, 1841));
        let (even, uneven) = (low_and_high(50, 50.0 * 400.0), low_and_high(50, 260_000.0));
        assert_eq!(even, (722, 1278));
        assert_eq!(uneven, (382, 7282));
    }

    /// Checks values that floating point cannot represent exactly.
    #[test]
    fn a_range_has_its_value() {
        for value in [i64::MAX / 2, i64::MIN / 2 + 1, (1 << 53) + 1] {
            let estimate = spread(1, 1.0).estimate(value, SampleStep::default());
            assert!(
                estimate.low <= value && estimate.high >= value,
                "{estimate:?}"
            );
        }
    }

    /// Checks that in a profile with a period a sample stands for the period, whatever the sum of
    /// the profile is.
    #[test]
    fn a_known_step_stays() {
        let of_both_signs = Some(spread(300, 1e12));
        assert_eq!(PERIOD.or_mean_of(of_both_signs, 10), PERIOD);
        let unknown = SampleStep::default().or_mean_of(of_both_signs, 1_000_000);
        assert_eq!((unknown.each, unknown.is_upper_bound), (1e6, false));
        // The value is certain, and the amount that was not sampled has no known bound.
        let estimate = spread(5, 0.0).estimate(1000, unknown);
        assert_eq!((estimate.low, estimate.high), (1000, 1000));
        assert_eq!(SampleStep::for_bytes(Some(4096), "kilobytes").each, 4.0);
        assert_eq!(
            SampleStep::for_bytes(Some(4096), "count"),
            SampleStep::default()
        );
    }

    #[test]
    fn several_ranges_share_what_may_be_wrong() {
        assert_eq!(
            ConfidenceLevel::shared_by(1),
            ConfidenceLevel::DEFAULT_LEVEL
        );
        // These are values for 0.025 / n from a table of the normal distribution.
        for (ranges, z) in [(2, 2.2414), (5, 2.5758), (100, 3.4808), (10_000, 4.5648)] {
            let found = ConfidenceLevel::shared_by(ranges).z;
            assert!((found - z).abs() < 0.0005, "{ranges} {found}");
        }
    }

    #[test]
    fn differences_have_both_sides_spread() {
        let side = |value: f64, samples, variance| ComparisonSide {
            value,
            spread: Some(spread(samples, variance)),
            step: PERIOD,
        };
        let exact = ComparisonSide {
            value: 100.0,
            ..ComparisonSide::default()
        };
        assert_eq!(
            difference(exact, exact, 1.0, ConfidenceLevel::DEFAULT_LEVEL),
            (0.0, 0.0)
        );
        // If both are normal, the deviation is the root of the sum of both variances.
        let one = side(409_600.0, 100, 100.0 * 4096.0 * 4096.0);
        let (low, high) = difference(one, one, 1.0, ConfidenceLevel::DEFAULT_LEVEL);
        let expected = 1.96 * 200f64.sqrt() * 4096.0;
        assert!((high - expected).abs() < 10.0 && (low + expected).abs() < 10.0);
        let (low, _) = difference(one, one, 1.1, ConfidenceLevel::DEFAULT_LEVEL);
        let expected = -0.1 * 409_600.0 - 1.96 * (100f64 * 2.21).sqrt() * 4096.0;
        assert!((low - expected).abs() < 10.0, "{low} {expected}");
        // Blocks that were not sampled before may have been there. Only from five samples on is a
        // function certain to be new.
        let none = side(0.0, 0, 0.0);
        for (samples, new) in [(1, false), (4, false), (5, true), (9, true)] {
            let n = samples as f64;
            let one = side(4096.0 * n, samples, n * 4096.0 * 4096.0);
            let (low, _) = difference(none, one, 1.0, ConfidenceLevel::DEFAULT_LEVEL);
            assert_eq!(low > 0.0, new, "{samples} {low}");
        }
    }

    /// Checks the growths that comparisons show: of what held nothing, of a large value, and of
    /// exact values.
    #[test]
    fn small_growths_are_noise() {
        let side = |value: f64, samples, variance| ComparisonSide {
            value,
            spread: Some(spread(samples, variance)),
            step: PERIOD,
        };
        let exact = |value| ComparisonSide {
            value,
            ..ComparisonSide::default()
        };
        let periods = |before, after| smallest_growth(before, after).map(|growth| growth / 4096.0);
        let is_about = |found: Option<f64>, expected: f64| {
            let found = found.expect("a growth");
            assert!(
                (found - expected).abs() < 0.05 * expected,
                "{found} {expected}"
            );
        };
        let none = side(0.0, 0, 0.0);
        is_about(periods(none, none), 4.8);
        // Nothing was sampled before, and all is known after.
        is_about(periods(none, exact(0.0)), 3.69);
        is_about(periods(exact(0.0), none), 1.0);
        // These are 10,000 samples on both sides: the deviation of the difference is 141.4 periods.
        let many = side(1e4 * 4096.0, 10_000, 1e4 * 4096.0 * 4096.0);
        is_about(periods(many, many), 1.96 * 141.4);
        is_about(periods(many, exact(many.value)), 1.96 * 100.0);
        assert_eq!(smallest_growth(exact(5.0), exact(9.0)), None);
        let unknown = ComparisonSide {
            step: SampleStep::default(),
            ..none
        };
        assert_eq!(smallest_growth(unknown, none), None);
    }
}

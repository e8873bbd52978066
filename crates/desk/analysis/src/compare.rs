//! Comparison of a program's runs in several variants: medians, spread, and whether a difference is
//! more than noise.
//!
//! Noise is recognized by the exact rank-sum test (Mann and Whitney, 1947), in which equal values
//! share their ranks. The test computes the probability that a random assignment of the values to
//! the two variants is at least as uneven as the real one.

/// The resources that a run used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFigures {
    /// The time from the beginning to the end, in microseconds.
    pub wall_us: i64,
    /// The time for which the program's own code used processors, in microseconds.
    pub user_us: i64,
    /// The time for which the kernel worked for the program, in microseconds.
    pub system_us: i64,
    /// The largest number of bytes that one process had in memory.
    pub peak_rss: i64,
    /// The largest number of bytes that the program itself had in memory (VmHWM).
    pub hwm: Option<i64>,
    /// The number of bytes that the program itself had in memory when it ended.
    pub end_rss: Option<i64>,
    /// The number of page faults that needed no disk.
    pub minor_faults: i64,
    /// The number of page faults that needed a disk.
    pub major_faults: i64,
    /// The number of times that a thread waited.
    pub voluntary: i64,
    /// The number of times that a thread lost its processor to another thread.
    pub involuntary: i64,
}

/// The least, the median and the largest of the values of several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSpread {
    /// The least value.
    pub least: i64,
    /// The median.
    pub median: i64,
    /// The largest value.
    pub most: i64,
}

impl RunSpread {
    /// Returns the spread of these values; `None` if there are none.
    #[must_use]
    pub fn from_values(values: &[i64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => midpoint(*sorted.get(middle.checked_sub(1)?)?, *sorted.get(middle)?),
            _ => *sorted.get(middle)?,
        };
        Some(Self {
            least: *sorted.first()?,
            median,
            most: *sorted.last()?,
        })
    }
}

fn midpoint(a: i64, b: i64) -> i64 {
    i64::try_from((i128::from(a) + i128::from(b)) / 2).unwrap_or(a)
}

/// The difference between the runs of two variants in one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunDifference {
    /// There are too few runs: even a clear difference could be chance.
    Unknown,
    /// No difference, or a difference that is within the noise or below one percent.
    None,
    /// A difference, as a share of the base variant's median: 0.1 means a tenth more.
    By(f64),
}

/// Significance level: a result counts as a difference if its probability by chance alone is below
/// this.
const SIGNIFICANCE_LEVEL: f64 = 0.01;
/// Least distance between two medians that counts as a difference, as a share of the base variant's
/// median.
const MIN_DIFFERENCE: f64 = 0.01;

/// Compares the values of one variant's runs with the values of the base variant's runs.
#[must_use]
pub fn run_difference(base: &[i64], other: &[i64]) -> RunDifference {
    let medians = RunSpread::from_values(base).zip(RunSpread::from_values(other));
    let Some((of_base, of_other)) = medians else {
        return RunDifference::Unknown;
    };
    if min_probability(base.len(), other.len()) >= SIGNIFICANCE_LEVEL {
        return RunDifference::Unknown;
    }
    if of_base.median == 0 {
        return match of_other.median {
            0 => RunDifference::None,
            _ => RunDifference::Unknown,
        };
    }
    let by = (of_other.median as f64 - of_base.median as f64) / of_base.median as f64;
    match by.abs() >= MIN_DIFFERENCE && chance(base, other) < SIGNIFICANCE_LEVEL {
        true => RunDifference::By(by),
        false => RunDifference::None,
    }
}

/// Returns the smallest probability that the rank-sum test can yield for these numbers of runs. The
/// most uneven result has this probability.
fn min_probability(base: usize, other: usize) -> f64 {
    // The most uneven results are two of all ways to choose the runs of one side.
    let ways = (1..=other).fold(1.0, |ways, i| ways * (base + i) as f64 / i as f64);
    2.0 / ways
}

/// Returns the probability that a random assignment of the values to two variants is at least as
/// uneven as the real assignment.
fn chance(base: &[i64], other: &[i64]) -> f64 {
    let mut all: Vec<i64> = base.iter().chain(other).copied().collect();
    all.sort_unstable();
    // Ranks are doubled, so that the mean of two ranks is a whole number.
    let rank = |value: i64| {
        let below = all.partition_point(|&one| one < value);
        let through = all.partition_point(|&one| one <= value);
        below + through + 1
    };
    let found: usize = other.iter().map(|&value| rank(value)).sum();
    let ranks: Vec<usize> = all.iter().map(|&value| rank(value)).collect();
    // `ways[n][s]` is the number of ways to choose `n` of the values so that their ranks add up to
    // `s`.
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0f64; most + 1]; other.len() + 1];
    ways[0][0] = 1.0;
    for &rank in &ranks {
        for count in (1..=other.len()).rev() {
            for sum in (rank..=most).rev() {
                ways[count][sum] += ways[count - 1][sum - rank];
            }
        }
    }
    let ways = &ways[other.len()];
    let mean = most as f64 * other.len() as f64 / all.len() as f64;
    let distance = (found as f64 - mean).abs() - 1e-9;
    let is_as_far = |sum: usize| (sum as f64 - mean).abs() >= distance;
    let far: f64 = (0..=most)
        .filter(|&sum| is_as_far(sum))
        .map(|sum| ways[sum])
        .sum();
    far / ways.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let spread =
            |values: &[i64]| RunSpread::from_values(values).map(|s| (s.least, s.median, s.most));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[5]), Some((5, 5, 5)));
        assert_eq!(spread(&[9, 1, 4]), Some((1, 4, 9)));
        assert_eq!(spread(&[9, 1, 4, 6]), Some((1, 5, 9)));
        assert_eq!(
            spread(&[i64::MAX, i64::MAX]),
            Some((i64::MAX, i64::MAX, i64::MAX))
        );
    }

    /// Checks probabilities against the tables of the test.
    #[test]
    fn chances_are_exact() {
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9;
        assert!(near(chance(&[1, 2, 3], &[4, 5, 6]), 2.0 / 20.0));
        assert!(near(
            chance(&[1, 2, 3, 4, 5], &[6, 7, 8, 9, 10]),
            2.0 / 252.0
        ));
        // This is U = 1 of 4 by 4 values.
        assert!(near(chance(&[1, 2, 3, 5], &[4, 6, 7, 8]), 4.0 / 70.0));
        assert!(near(chance(&[7; 5], &[7; 5]), 1.0));
        assert!(near(min_probability(5, 5), 2.0 / 252.0));
    }

    #[test]
    fn only_what_is_beyond_noise_is_a_difference() {
        let base = [100, 101, 99, 102, 98, 100, 101];
        let shifted = |by: i64| base.map(|value| value + by);
        assert_eq!(run_difference(&base, &shifted(30)), RunDifference::By(0.3));
        assert_eq!(
            run_difference(&base, &shifted(-50)),
            RunDifference::By(-0.5)
        );
        assert_eq!(run_difference(&base, &shifted(1)), RunDifference::None);
        // The difference is clear, but less than a hundredth.
        let exact = [10_000; 7];
        assert_eq!(run_difference(&exact, &[10_050; 7]), RunDifference::None);
        assert_eq!(
            run_difference(&exact, &[10_100; 7]),
            RunDifference::By(0.01)
        );
        assert_eq!(
            run_difference(&exact[..3], &[90_000; 3]),
            RunDifference::Unknown
        );
        assert_eq!(run_difference(&[], &exact), RunDifference::Unknown);
        assert_eq!(run_difference(&[0; 7], &[0; 7]), RunDifference::None);
    }

    /// Checks runs that differ by chance alone: about one pair in a hundred counts as different.
    #[test]
    fn noise_is_rarely_taken_for_a_difference() {
        let mut state = 1u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            1000 + (state >> 33) as i64 % 500
        };
        let mut reported = 0;
        for _ in 0..1000 {
            let base: Vec<i64> = (0..7).map(|_| draw()).collect();
            let other: Vec<i64> = (0..7).map(|_| draw()).collect();
            reported += i32::from(run_difference(&base, &other) != RunDifference::None);
        }
        assert!(reported <= 25, "{reported}");
    }
}

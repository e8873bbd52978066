//! How what a function holds grew over several moments: one of five words for it, and the figures
//! behind the word.
//!
//! | verdict | what it means |
//! | :--- | :--- |
//! | steady growth | a line fits well, and the later half still adds much |
//! | grows in steps | it is higher at the end, but by a few steps and not along a line |
//! | levels off | it grew, and does not any more: a cache that is full |
//! | burst, freed | it was much higher in between |
//! | no trend | none of these |

/// What a function's series is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A line fits, and goes on.
    SteadyGrowth,
    /// It grows by steps.
    GrowsInSteps,
    /// It has stopped growing.
    LevelsOff,
    /// It was higher in between.
    BurstFreed,
    /// Nothing of this.
    NoTrend,
}

impl Verdict {
    /// The verdict as reports say it.
    pub fn text(self) -> &'static str {
        match self {
            Self::SteadyGrowth => "steady growth",
            Self::GrowsInSteps => "grows in steps",
            Self::LevelsOff => "levels off",
            Self::BurstFreed => "burst, freed",
            Self::NoTrend => "no trend",
        }
    }
}

/// How a function's flat value grew.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The function's position.
    pub function: u32,
    /// What the series is called.
    pub verdict: Verdict,
    /// By how much the line through all values rises in an hour; between two moments if their times
    /// are not known.
    pub slope: f64,
    /// How well that line fits, from 0 to 1.
    pub r2: f64,
    /// In how many of the steps from one moment to the next it grew.
    pub grew: usize,
    /// How many steps there are.
    pub steps: usize,
    /// The first, the last and the largest value.
    pub first: i64,
    /// See [`first`](Self::first).
    pub last: i64,
    /// See [`first`](Self::first).
    pub largest: i64,
}

/// A line fits steady growth at least so well.
const FITS: f64 = 0.9;
/// In so many of the steps steady growth grows.
const OFTEN: f64 = 0.6;
/// So much of the largest value the later half adds to steady growth.
const STILL: f64 = 0.25;
/// What adds less of the largest value than this does not grow any more.
const FLAT: f64 = 0.05;
/// What has stopped growing is at least so high of the largest value, and was lower than so much of
/// it in its first quarter.
const HIGH: f64 = 0.8;
/// What is lower than this at the end, of the largest value, was freed.
const FREED: f64 = 0.5;
/// What grows in steps is never lower in its last quarter than it ever was in its first one, plus
/// so much of the largest value.
const STEP: f64 = 0.1;
const HOUR: f64 = 3_600e9;

/// Judges a function's values at these times, in nanoseconds. There are at least two of each.
pub(crate) fn judge(function: u32, times: &[i64], values: &[i64]) -> Growth {
    let n = values.len();
    let is_timed = times.windows(2).all(|pair| pair[0] < pair[1]);
    let at = |i: usize| match is_timed {
        true => (times[i] - times[0]) as f64 / HOUR,
        false => i as f64,
    };
    let (x, y): (Vec<f64>, Vec<f64>) = (0..n).map(|i| (at(i), values[i] as f64)).unzip();
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (mean_x, mean_y) = (mean(&x), mean(&y));
    let sum = |of: &dyn Fn(usize) -> f64| (0..n).map(of).sum::<f64>();
    let xx = sum(&|i| (x[i] - mean_x).powi(2));
    let xy = sum(&|i| (x[i] - mean_x) * (y[i] - mean_y));
    let yy = sum(&|i| (y[i] - mean_y).powi(2));
    let slope = if xx > 0.0 { xy / xx } else { 0.0 };
    let r2 = if xx > 0.0 && yy > 0.0 {
        xy * xy / (xx * yy)
    } else {
        0.0
    };
    let grew = values.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let (first, last) = (values[0], values[n - 1]);
    let largest = values.iter().copied().max().unwrap_or(0);
    let most = values.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0) as f64;
    let later = y[n - 1] - y[n / 2];
    let quarter = n.div_ceil(4);
    let least_of = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    let most_of = |of: &[f64]| of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let verdict =
        if slope > 0.0 && r2 > FITS && grew as f64 > OFTEN * (n - 1) as f64 && later > STILL * most
        {
            Verdict::SteadyGrowth
        } else if y[n - 1] < FREED * most && most > 2.0 * mean_y {
            Verdict::BurstFreed
        } else if later.abs() < FLAT * most
            && y[n - 1] > HIGH * most
            && mean(&y[..quarter]) < HIGH * mean(&y[n - quarter..])
        {
            Verdict::LevelsOff
        } else if least_of(&y[n - quarter..]) - most_of(&y[..quarter]) > STEP * most {
            Verdict::GrowsInSteps
        } else {
            Verdict::NoTrend
        };
    Growth {
        function,
        verdict,
        slope,
        r2,
        grew,
        steps: n - 1,
        first,
        last,
        largest,
    }
}

/// Puts what grows first: by verdict, and then by slope.
pub(crate) fn rank(all: &mut [Growth]) {
    all.sort_by(|a, b| {
        let by_slope = b.slope.total_cmp(&a.slope);
        a.verdict
            .cmp(&b.verdict)
            .then(by_slope)
            .then(a.function.cmp(&b.function))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, from -1 to 1.
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        }
    }

    /// The verdicts of a series with noise, in twenty seeds.
    fn verdicts(of: impl Fn(usize) -> f64, noise_of: f64) -> Vec<Verdict> {
        let times: Vec<i64> = (0..60).map(|i| 1 + i * 600_000_000_000).collect();
        let judged = (1..=20).map(|seed| {
            let mut noise = noise(seed);
            let values = (0..60).map(|i| (of(i) * (1.0 + noise_of * noise())) as i64);
            judge(1, &times, &values.collect::<Vec<_>>()).verdict
        });
        judged.collect()
    }

    #[test]
    fn planted_series_are_called_what_they_are() {
        use Verdict::{BurstFreed, GrowsInSteps, LevelsOff, NoTrend, SteadyGrowth};
        type Series<'a> = &'a dyn Fn(usize) -> f64;
        let cases: [(&str, Series<'_>, f64, Verdict); 6] = [
            (
                "a leak",
                &|i| 1e6 * (1.0 + 0.05 * i as f64),
                0.005,
                SteadyGrowth,
            ),
            (
                "a cache",
                &|i| 1e6 * (1.0 - (-(i as f64) / 6.0).exp()),
                0.005,
                LevelsOff,
            ),
            (
                "a sawtooth",
                &|i| 1e6 * (1.0 + (i % 7) as f64),
                0.01,
                NoTrend,
            ),
            (
                "steps",
                &|i| 1e6 * (1.0 + (i / 20) as f64),
                0.005,
                GrowsInSteps,
            ),
            ("noise", &|_| 1e6, 0.2, NoTrend),
            (
                "a burst",
                &|i| if (20..25).contains(&i) { 1e7 } else { 1e5 },
                0.01,
                BurstFreed,
            ),
        ];
        for (what, of, noise, wanted) in cases {
            let found = verdicts(of, noise);
            let right = found.iter().filter(|&&found| found == wanted).count();
            assert_eq!(right, 20, "{what}: {found:?}");
        }
    }

    #[test]
    fn figures_are_those_of_the_line() {
        let grown = judge(7, &[0, 3_600_000_000_000, 7_200_000_000_000], &[10, 20, 30]);
        assert_eq!((grown.function, grown.first, grown.last), (7, 10, 30));
        assert!((grown.slope - 10.0).abs() < 1e-9 && (grown.r2 - 1.0).abs() < 1e-9);
        assert_eq!((grown.grew, grown.steps, grown.largest), (2, 2, 30));
        // Without times, the slope is that of a step.
        assert!((judge(1, &[0, 0, 0], &[1, 3, 5]).slope - 2.0).abs() < 1e-9);
        // Nothing moves.
        let still = judge(1, &[1, 2, 3], &[5, 5, 5]);
        assert_eq!(
            (still.verdict, still.slope, still.r2),
            (Verdict::NoTrend, 0.0, 0.0)
        );
        let mut both = [still, grown];
        rank(&mut both);
        assert_eq!(both[0].function, 7);
    }
}

//! The growth of a function's memory over several moments: one of five verdicts, and the figures
//! behind it.
//!
//! | verdict | meaning |
//! | :--- | :--- |
//! | steady growth | a line fits well, and the later half still adds much |
//! | grows in steps | the value is higher at the end, after a few steps and not along a line |
//! | levels off | the value grew, and then stopped growing, like a full cache |
//! | burst, freed | the value was much higher in between |
//! | no trend | none of these |

/// The verdict on a function's series of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrowthVerdict {
    /// A line fits the values, and the growth goes on.
    SteadyGrowth,
    /// The values grow in steps.
    GrowsInSteps,
    /// The values have stopped growing.
    LevelsOff,
    /// The values rose to a much higher level for a short time, and fell again.
    BurstFreed,
    /// No other verdict holds.
    NoTrend,
}

impl GrowthVerdict {
    /// Returns the verdict in the words of reports.
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

impl GrowthVerdict {
    /// Whether the memory has a bound: true for values that level off, false for values that still
    /// grow, and `None` for other verdicts.
    pub fn is_bounded(self) -> Option<bool> {
        match self {
            Self::SteadyGrowth | Self::GrowsInSteps => Some(false),
            Self::LevelsOff => Some(true),
            Self::BurstFreed | Self::NoTrend => None,
        }
    }
}

/// The growth of a function's flat value.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionGrowth {
    /// The number of the function.
    pub function: u32,
    /// The verdict on the series.
    pub verdict: GrowthVerdict,
    /// The slope of the line through all values: per hour, or per step if the times are not known.
    pub slope: f64,
    /// The coefficient of determination of the line, from 0 to 1: how well the line fits the
    /// values.
    pub r2: f64,
    /// The number of steps from one moment to the next in which the value grew.
    pub grew: usize,
    /// The number of steps from one moment to the next.
    pub steps: usize,
    /// The first value.
    pub first: i64,
    /// The last value.
    pub last: i64,
    /// The largest value.
    pub largest: i64,
}

/// Least `r2` of a line that fits well enough for steady growth. With enough values, a line fits
/// even with a smaller `r2`, if its deviation is at most `MAX_NOISE_RATIO` times the noise.
const MIN_FIT: f64 = 0.9;
/// Largest deviation of the values from a line that still fits, as a multiple of the noise. The
/// noise is how much the values vary from one moment to the next.
const MAX_NOISE_RATIO: f64 = 1.6;
/// Least Kendall's tau of steady growth. Kendall's tau is the share of growing pairs of an earlier
/// and a later value, minus the share of shrinking pairs.
const MIN_KENDALL_TAU: f64 = 0.7;
/// In steady growth: largest share of steps in which the value does not change at all.
const MAX_UNCHANGED_STEPS_SHARE: f64 = 0.75;
/// Least rise of values that grow, as a multiple of the noise.
const MIN_RISE_TO_NOISE: f64 = 4.0;
/// In steady growth: least share of the rise that the later half adds.
const MIN_LATER_RISE_SHARE: f64 = 0.25;
/// In growth that has stopped: largest share of the rise that the later half adds.
const MAX_STOPPED_LATER_RISE_SHARE: f64 = 0.15;
/// In growth that has stopped: least rise, as a share of the largest value.
const MIN_STOPPED_RISE_SHARE: f64 = 0.2;
/// In growth that has stopped: least final value, as a share of the largest value.
const MIN_STOPPED_HEIGHT_SHARE: f64 = 0.8;
/// In a burst that was freed: largest final value, as a share of the largest value.
const MAX_FREED_END_SHARE: f64 = 0.5;
/// In growth by steps: least rise from the highest value of the first quarter to the lowest value
/// of the last quarter, as a share of the largest value.
const MIN_STEPS_RISE_SHARE: f64 = 0.1;
/// Least number of values that are put into groups. If there are fewer values, each value is a
/// group.
const MIN_GROUPED_VALUES: usize = 12;
const NANOS_PER_HOUR: f64 = 3_600e9;

/// Judges how a function's values grew over time. `times` has the time of each value in
/// nanoseconds. There must be at least two values.
///
/// The values of many moments are noisy, because both sampling and programs are. So the verdict
/// rests on the medians of up to 12 groups of successive values. The noise is computed from the
/// median of the steps from one value to the next, after the slope of the line through all values
/// is subtracted from them.
pub(crate) fn judge(function: u32, times: &[i64], values: &[i64]) -> FunctionGrowth {
    let n = values.len();
    let is_timed = times.windows(2).all(|pair| pair[0] < pair[1]);
    let at = |i: usize| match is_timed {
        true => times[i].saturating_sub(times[0]) as f64 / NANOS_PER_HOUR,
        false => i as f64,
    };
    let (x, y): (Vec<f64>, Vec<f64>) = (0..n).map(|i| (at(i), values[i] as f64)).unzip();
    let line = TrendLine::fit(&x, &y);
    let grew = values.windows(2).filter(|pair| pair[1] > pair[0]).count();
    FunctionGrowth {
        function,
        verdict: verdict(&x, &y, &line),
        slope: line.slope,
        r2: line.r2,
        grew,
        steps: n - 1,
        first: values[0],
        last: values[n - 1],
        largest: values.iter().copied().max().unwrap_or(0),
    }
}

/// The line that is nearest to all values (least squares).
struct TrendLine {
    slope: f64,
    r2: f64,
    /// The root mean square of the distances between the values and the line.
    deviation: f64,
}

impl TrendLine {
    fn fit(x: &[f64], y: &[f64]) -> Self {
        let n = x.len();
        let (mean_x, mean_y) = (mean(x), mean(y));
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
        let off = (yy * (1.0 - r2)).max(0.0) / n as f64;
        Self {
            slope,
            r2,
            deviation: off.sqrt(),
        }
    }
}

fn verdict(x: &[f64], y: &[f64], line: &TrendLine) -> GrowthVerdict {
    let n = y.len();
    let groups = if n < MIN_GROUPED_VALUES {
        n
    } else {
        (n / 4).clamp(6, 12)
    };
    let edge = |group: usize| group * n / groups;
    let m: Vec<f64> = (0..groups)
        .map(|group| median(y[edge(group)..edge(group + 1)].to_vec()))
        .collect();
    let steps = (1..n).map(|i| (y[i] - y[i - 1] - line.slope * (x[i] - x[i - 1])).abs());
    // The median of the steps between values with a noise of this size is 0.954 times the noise.
    let noise = median(steps.collect()) / 0.954;
    let of_group = noise * 1.25 / (n as f64 / groups as f64).sqrt();
    let most = y.iter().map(|v| v.abs()).fold(0.0, f64::max);
    let rise = m[groups - 1] - m[0];
    let later = m[groups - 1] - m[groups / 2];
    let is_clear = rise > MIN_RISE_TO_NOISE * of_group;
    let stays = y.windows(2).filter(|pair| pair[0] == pair[1]).count();
    let moves = (stays as f64) <= MAX_UNCHANGED_STEPS_SHARE * (n - 1) as f64;
    let fits =
        line.r2 > MIN_FIT || n >= MIN_GROUPED_VALUES && line.deviation <= MAX_NOISE_RATIO * noise;
    let quarter = n.div_ceil(4);
    let least_of = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    let most_of = |of: &[f64]| of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // A burst lasts for at most a third of the moments.
    let is_rare = y.iter().filter(|v| v.abs() > most / 2.0).count() * 3 <= n;
    let goes_on = kendall_tau(&m) > MIN_KENDALL_TAU && later > MIN_LATER_RISE_SHARE * rise;
    if line.slope > 0.0 && fits && is_clear && moves && goes_on {
        GrowthVerdict::SteadyGrowth
    } else if y[n - 1] < MAX_FREED_END_SHARE * most && most > 2.0 * mean(y) && is_rare {
        GrowthVerdict::BurstFreed
    } else if is_clear
        && rise > MIN_STOPPED_RISE_SHARE * most
        && later.abs() < MAX_STOPPED_LATER_RISE_SHARE * rise
        && m[groups - 1] > MIN_STOPPED_HEIGHT_SHARE * most
    {
        GrowthVerdict::LevelsOff
    } else if least_of(&y[n - quarter..]) - most_of(&y[..quarter]) > MIN_STEPS_RISE_SHARE * most {
        GrowthVerdict::GrowsInSteps
    } else {
        GrowthVerdict::NoTrend
    }
}

/// Returns Kendall's tau: the share of growing pairs of an earlier and a later value, minus the
/// share of shrinking pairs.
fn kendall_tau(of: &[f64]) -> f64 {
    let mut sum = 0.0;
    for (at, earlier) in of.iter().enumerate() {
        for later in &of[at + 1..] {
            sum += match later.total_cmp(earlier) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Less => -1.0,
            };
        }
    }
    sum / (of.len() * (of.len() - 1) / 2).max(1) as f64
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    match of.len() {
        0 => 0.0,
        n if n % 2 == 1 => of[n / 2],
        n => (of[n / 2 - 1] + of[n / 2]) / 2.0,
    }
}

/// Sorts functions by verdict, with growing functions first, and then by slope.
pub(crate) fn sort_by_verdict(all: &mut [FunctionGrowth]) {
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

    /// Returns a generator of random-looking numbers from -1 to 1.
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        }
    }

    /// Returns the verdicts on a series with noise. There are twenty verdicts, one for each seed of
    /// the noise.
    fn verdicts(of: impl Fn(usize) -> f64, noise_of: f64) -> Vec<GrowthVerdict> {
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
        use GrowthVerdict::{BurstFreed, GrowsInSteps, LevelsOff, NoTrend, SteadyGrowth};
        type SeriesShape<'a> = &'a dyn Fn(usize) -> f64;
        let cases: [(&str, SeriesShape<'_>, f64, GrowthVerdict); 12] = [
            // These are leaks that add 1 % of the heap at each moment, with 5 % noise: on top of
            // other memory, and from 0 on.
            (
                "a noisy leak",
                &|i| 1e6 * (1.0 + 0.01 * i as f64),
                0.05,
                SteadyGrowth,
            ),
            ("a new leak", &|i| 1e4 * i as f64, 0.05, SteadyGrowth),
            (
                "a noisy cache",
                &|i| 1e6 * (1.0 - (-(i as f64) / 6.0).exp()),
                0.05,
                LevelsOff,
            ),
            ("noise of 5 %", &|_| 1e6, 0.05, NoTrend),
            (
                "deploys every 15 moments",
                &|i| 1e6 * (0.3 + 0.05 * (i % 15) as f64),
                0.05,
                NoTrend,
            ),
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
            // A line fits these values, but they stay constant between the steps.
            (
                "a table that grows every 12 moments",
                &|i| 1e6 * (1.0 + (i / 12) as f64),
                0.0,
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
        // Without times, the slope is per step.
        assert!((judge(1, &[0, 0, 0], &[1, 3, 5]).slope - 2.0).abs() < 1e-9);
        // The values are constant.
        let still = judge(1, &[1, 2, 3], &[5, 5, 5]);
        assert_eq!(
            (still.verdict, still.slope, still.r2),
            (GrowthVerdict::NoTrend, 0.0, 0.0)
        );
        let mut both = [still, grown];
        sort_by_verdict(&mut both);
        assert_eq!(both[0].function, 7);
    }
}

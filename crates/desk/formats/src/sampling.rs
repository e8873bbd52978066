//! Estimates the real values from the values that a sampler counted, by the rule of tcmalloc,
//! jemalloc, Go and Google's Java agent.
//!
//! An allocation of `size` bytes is sampled with probability `1 - exp(-size/period)`. Only the
//! count and bytes of a stack are known, so its mean size is used for all its blocks.

/// Estimates the real values of one stack after the other, so that the sums of the estimates are
/// right.
///
/// A sampled count stands for a number of blocks with a fraction. Truncating the fraction stack by
/// stack can lose up to half of a program's blocks, so the fraction is carried over to the next
/// stack. Bytes are only rounded, because a sample stands for many bytes. So the estimated bytes of
/// an unchanged stack are the same in each dump.
#[derive(Clone, Debug)]
pub(crate) struct Unsampler {
    period: i64,
    as_pprof: bool,
    /// Fraction of a count that is carried over, plus 0.5. This sum is added to the next estimate
    /// before its fraction is cut off, so the 0.5 rounds the estimate.
    rest: f64,
}

impl Unsampler {
    /// Makes an unsampler for a period of `period` bytes. With `as_pprof`, fractions are truncated
    /// as in pprof.
    pub(crate) fn new(period: i64, as_pprof: bool) -> Self {
        Self {
            period,
            as_pprof,
            rest: 0.5,
        }
    }

    /// Returns the estimated count and bytes of the next stack; `None` if they do not fit in 64
    /// bits. No program had such values.
    pub(crate) fn next(&mut self, count: i64, bytes: i64) -> Option<(i64, i64)> {
        self.next_beside(count, bytes, None)
    }

    /// Returns the estimated count and bytes that the next stack allocated. `in_use` has the
    /// stack's values in use, if they were estimated before.
    ///
    /// The fractions of allocated values are carried over separately, as by [`next`](Self::next).
    /// Two rules keep the estimates consistent. If the sampled values allocated and in use are
    /// equal, the estimated counts are equal. If the sampled count allocated is not less than the
    /// sampled count in use, this also holds for the estimates.
    pub(crate) fn next_beside(
        &mut self,
        count: i64,
        bytes: i64,
        in_use: Option<&InUseValues>,
    ) -> Option<(i64, i64)> {
        if self.as_pprof || count == 0 || bytes == 0 || self.period <= 1 {
            return unsampled(count, bytes, self.period);
        }
        let factor = factor(count, bytes, self.period);
        let exact = count as f64 * factor + self.rest;
        let mut objects = whole(exact.floor())?;
        if let Some(in_use) = in_use {
            if in_use.sampled == (count, bytes) {
                objects = in_use.objects;
            } else if count > 0 && count >= in_use.sampled.0 {
                // At least the sampled blocks existed.
                objects = objects.max(in_use.objects).max(count);
            }
        }
        self.rest = exact - objects as f64;
        Some((objects, whole((bytes as f64 * factor).round())?))
    }
}

/// Values of a stack's memory in use, before and after the estimate.
pub(crate) struct InUseValues {
    /// The count and bytes as they were sampled.
    pub(crate) sampled: (i64, i64),
    /// Count that was estimated from the sampled values.
    pub(crate) objects: i64,
}

/// Estimates the real count and bytes if `count` and `bytes` were sampled every `period` bytes.
///
/// The results are truncated to whole numbers, as in pprof. Returns `None` if they do not fit in 64
/// bits; no program had such values.
pub(crate) fn unsampled(count: i64, bytes: i64, period: i64) -> Option<(i64, i64)> {
    if count == 0 || bytes == 0 {
        return Some((0, 0));
    }
    // A period of 1 means no sampling, and a period below 1 is unknown.
    if period <= 1 {
        return Some((count, bytes));
    }
    let factor = factor(count, bytes, period);
    Some((scaled(count, factor)?, scaled(bytes, factor)?))
}

/// Returns the factor that turns a sampled count and sampled bytes into estimates. Neither `count`
/// nor `bytes` may be 0, and `period` must be over 1.
pub(crate) fn factor(count: i64, bytes: i64, period: i64) -> f64 {
    let mean = bytes as f64 / count as f64;
    1.0 / (1.0 - exp(-mean / period as f64))
}

/// Returns the whole part of `value * factor`; `None` if it does not fit in 64 bits.
pub(crate) fn scaled(value: i64, factor: f64) -> Option<i64> {
    whole(value as f64 * factor)
}

/// Returns the whole part of a number; `None` if it does not fit in 64 bits.
fn whole(number: f64) -> Option<i64> {
    // 2^63 is the first number that does not fit.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (number > -LIMIT && number < LIMIT).then_some(number as i64)
}

/// Computes `e^x` with the same bits as Go's `math.Exp` on x86-64 (with fused multiply-add, as on
/// any such CPU since 2013).
///
/// glibc's `exp` differs in the last bit for some x. If sizes are small compared with the period,
/// `1 - exp(x)` sometimes turns that bit into a different count or byte, and the results would
/// differ from pprof's. The method is N. Shibata's, "Efficient evaluation methods of elementary
/// functions suitable for SIMD computation" (2010): with k the whole number nearest to x/ln 2 and
/// r = (x - k·ln 2)/16, a Taylor series gives e^r - 1, which is squared four times as
/// (1+s)² - 1 = s·(s+2).
fn exp(x: f64) -> f64 {
    // The sum of both is ln 2, to more bits than one number holds.
    const LN_2_HIGH: f64 = 0.693147180559663;
    const LN_2_LOW: f64 = 2.8235290563031577e-13;
    /// 1/n! for n from 8 to 1.
    const SERIES: [f64; 8] = [
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        1.0 / 2.0,
        1.0,
    ];
    if x > 709.782_712_893_384 {
        return f64::INFINITY;
    }
    // Below this limit the result is so small that it vanishes beside 1.
    if x < -708.0 {
        return 0.0;
    }
    let k = (x * std::f64::consts::LOG2_E).round_ties_even();
    let r = (-k).mul_add(LN_2_LOW, (-k).mul_add(LN_2_HIGH, x)) * 0.0625;
    let sum = SERIES
        .iter()
        .copied()
        .reduce(|sum, term| sum.mul_add(r, term));
    let mut s = sum.unwrap_or(1.0) * r;
    for _ in 0..3 {
        s *= s + 2.0;
    }
    let power = s.mul_add(s + 2.0, 1.0);
    power * f64::from_bits(((k as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares estimates with the values that pprof prints for these counts.
    #[test]
    fn values_of_pprof() {
        let table = [
            (1, 1024, 524_288, Some((512, 524_800))),
            (2, 2048, 524_288, Some((1025, 1_049_600))),
            (3, 3000, 524_288, Some((1574, 1_574_364))),
            (2, 3952, 524_288, Some((531, 1_050_553))),
            (2, 3952, 1, Some((2, 3952))),
            (2, 3952, 0, Some((2, 3952))),
            (0, 7, 524_288, Some((0, 0))),
            (7, 0, 524_288, Some((0, 0))),
            (-1, -1024, 524_288, Some((-512, -524_800))),
            // The mean size is 1 byte, so there would be more blocks than 64 bits hold.
            (1 << 60, 1 << 60, 1 << 20, None),
            (i64::MAX, 1, 524_288, None),
        ];
        for (count, bytes, period, expected) in table {
            let found = unsampled(count, bytes, period);
            assert_eq!(found, expected, "{count} {bytes} {period}");
        }
    }

    #[test]
    fn sums_are_right() {
        let sum = |as_pprof, stacks: &[(i64, i64)]| {
            let mut unsampler = Unsampler::new(1024, as_pprof);
            let next = |&(count, bytes): &(i64, i64)| unsampler.next(count, bytes).unwrap();
            let pairs = stacks.iter().map(next);
            pairs.fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1))
        };
        // 1.7100 blocks of 900 bytes each time.
        let hundred = [(1, 900); 100];
        assert_eq!(sum(false, &hundred), (171, 153_900));
        assert_eq!(sum(true, &hundred), (100, 153_900));
        let back = [(1, 900), (-1, -900)].repeat(50);
        assert_eq!(sum(false, &back), (0, 0));
        assert_eq!(sum(false, &[(1, 900)]), (2, 1539));
        // Every stack with bytes has blocks.
        let mut unsampler = Unsampler::new(1024, false);
        for count in (-50..50).filter(|&count| count != 0) {
            let (objects, bytes) = unsampler.next(count, count * 5000).unwrap();
            assert_eq!(
                (objects.signum(), bytes.signum()),
                (count.signum(), count.signum())
            );
        }
    }

    #[test]
    fn in_use_is_never_more_than_allocated() {
        let (mut in_use, mut allocated) =
            (Unsampler::new(1024, false), Unsampler::new(1024, false));
        let mut sums = (0, 0, 0.0);
        for i in 0..200 {
            // The carried fraction of allocated values may be any number when a stack comes that
            // freed nothing.
            let sampled = (1, 900 - i % 7 * 100);
            let more = (1 + i % 3, sampled.1 + i % 3 * 600);
            let (objects, _) = in_use.next(sampled.0, sampled.1).unwrap();
            let beside = InUseValues { sampled, objects };
            let (all, _) = allocated
                .next_beside(more.0, more.1, Some(&beside))
                .unwrap();
            assert!(all >= objects && (more != sampled || all == objects), "{i}");
            sums.0 += all;
            sums.2 += more.0 as f64 * factor(more.0, more.1, 1024);
        }
        assert!((sums.0 as f64 - sums.2).abs() <= 2.0, "{sums:?}");
    }

    #[test]
    fn close_to_the_exponential() {
        let mut x = -709.0f64;
        while x < 709.0 {
            let (ours, theirs) = (exp(x), x.exp());
            assert!((ours / theirs - 1.0).abs() < 1e-15 || x < -707.0, "{x}");
            x += 0.37;
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e300), 0.0);
        assert_eq!(exp(1e300), f64::INFINITY);
    }
}

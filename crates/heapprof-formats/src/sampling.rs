//! From what a sampler counted to what was there: the rule of tcmalloc, jemalloc, Go and Java's agent.
//!
//! An allocation of `size` bytes is sampled with probability `1 - exp(-size/period)`. All that is known of a stack
//! is its count and bytes, so its mean size stands for the sizes.

/// Count and bytes that were there, about, where `count` and `bytes` were sampled every `period` bytes.
///
/// Truncated to whole numbers, as pprof does. None when they do not fit: no program had such values.
pub(crate) fn unsampled(count: i64, bytes: i64, period: i64) -> Option<(i64, i64)> {
    if count == 0 || bytes == 0 {
        return Some((0, 0));
    }
    // A period of 1 is none, and one below it unknown.
    if period <= 1 {
        return Some((count, bytes));
    }
    let factor = factor(count, bytes, period);
    Some((scaled(count, factor)?, scaled(bytes, factor)?))
}

/// What count and bytes are to be multiplied by. Neither may be 0, and `period` is over 1.
pub(crate) fn factor(count: i64, bytes: i64, period: i64) -> f64 {
    let mean = bytes as f64 / count as f64;
    1.0 / (1.0 - exp(-mean / period as f64))
}

/// The whole part of the product; none when it does not fit.
pub(crate) fn scaled(value: i64, factor: f64) -> Option<i64> {
    let product = value as f64 * factor;
    // 2^63 itself is the first that does not fit.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (product > -LIMIT && product < LIMIT).then_some(product as i64)
}

/// `e^x`, to the bit what Go's `math.Exp` computes on x86-64 (with fused multiply-add, as any such CPU since 2013 has).
///
/// glibc's differs in the last bit for some x. Where sizes are small against the period, `1 - exp(x)` makes that bit a
/// different count or byte now and then, and our numbers would not be pprof's. The method is N. Shibata's, "Efficient
/// evaluation methods of elementary functions suitable for SIMD computation" (2010): with k the whole number nearest to
/// x/ln 2 and r = (x - k·ln 2)/16, a Taylor series for e^r - 1, squared four times as (1+s)² - 1 = s·(s+2).
fn exp(x: f64) -> f64 {
    // Together ln 2, to more bits than one number holds.
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
    // Below this it is no normal number, and nothing beside 1.
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

    /// Each pair as pprof prints it for these counts.
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
            // The mean says 1 byte each, the count that there would be more of them than 64 bits hold.
            (1 << 60, 1 << 60, 1 << 20, None),
            (i64::MAX, 1, 524_288, None),
        ];
        for (count, bytes, period, expected) in table {
            let found = unsampled(count, bytes, period);
            assert_eq!(found, expected, "{count} {bytes} {period}");
        }
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

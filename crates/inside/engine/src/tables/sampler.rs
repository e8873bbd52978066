//! Chooses the allocations that are sampled, and computes how many allocations each sample stands
//! for.
//!
//! The number of bytes until the next sample follows an exponential distribution. So an allocation
//! of s bytes is sampled with p = 1 - e^(-(s+1)/T), and a sample counts as 1/p objects of s bytes.
//! Each sample is weighted before it is added to a sum, so that stacks of mixed sizes are unbiased
//! (jemalloc, doc_internal/PROFILING_INTERNALS.md).

use heapprof_platform::arch::undisturbed;
use heapprof_platform::sys;

use crate::tables::counters::EventWeight;

/// Numbers of fraction bits. When sampling, objects are counted in units of 2^-16 and bytes in
/// units of 2^-8, so that frees cancel allocations to the bit.
pub(crate) use heapprof_abi::{BYTE_BITS, OBJECT_BITS};

pub(crate) use heapprof_profile::recording_texts::rounded;

/// The generator of a thread's random numbers: xoshiro256** (Blackman and Vigna). It is all zeros
/// until it gets a seed.
#[derive(Default)]
pub(crate) struct SamplerRandom([u64; 4]);

impl SamplerRandom {
    /// Seeds the generator from `seed` and the clock.
    pub(crate) fn seed(&mut self, seed: u64) {
        self.seed_exactly(seed ^ (sys::nanoseconds(libc::CLOCK_MONOTONIC) as u64).rotate_left(32));
    }

    fn seed_exactly(&mut self, mut x: u64) {
        for word in &mut self.0 {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            *word = z ^ z >> 31;
        }
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns the number of bytes until the next sample, `period` on average.
    pub(crate) fn interval(&mut self, period: u64) -> u64 {
        let random = self.next() >> 11;
        let mut interval = 0;
        undisturbed(&mut || interval = exponential(random, period));
        interval
    }
}

/// Returns how many objects and bytes a sampled allocation of `size` bytes stands for.
pub(crate) fn sample_weight(size: u64, period: u64) -> EventWeight {
    let mut weight = EventWeight {
        objects: 0,
        bytes: 0,
    };
    undisturbed(&mut || weight = weigh(size, period));
    weight
}

/// Returns the number of bytes until the next sample, made from 53 random bits.
#[inline(never)]
fn exponential(random: u64, period: u64) -> u64 {
    // This is in (0, 1], so it is never the logarithm of zero.
    let u = (random + 1) as f64 / (1u64 << 53) as f64;
    (-ln(u) * period as f64) as u64
}

#[inline(never)]
fn weigh(size: u64, period: u64) -> EventWeight {
    let p = probability(size, period);
    let round = |x: f64| (x + 0.5) as u64;
    EventWeight {
        objects: round((1u64 << OBJECT_BITS) as f64 / p),
        bytes: round((1u64 << BYTE_BITS) as f64 * size as f64 / p),
    }
}

/// Returns the probability with which an allocation of `size` bytes is sampled. This must be called
/// inside [`undisturbed`].
pub(crate) fn probability(size: u64, period: u64) -> f64 {
    one_minus_exp_minus((size as f64 + 1.0) / period as f64)
}

/// Returns ln x for x > 0. The calculation is written out here, because libm would be one more
/// library in every program.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m-1)/(m+1)), |argument| < 0.172
    let s = (m - 1.0) / (m + 1.0);
    let (s2, mut term, mut sum) = (s * s, s, 0.0);
    for k in 0..12 {
        sum += term / f64::from(2 * k + 1);
        term *= s2;
    }
    2.0 * sum + exponent as f64 * std::f64::consts::LN_2
}

/// Returns 1 - e^-x for x >= 0, to full precision near zero.
fn one_minus_exp_minus(x: f64) -> f64 {
    if x > 40.0 {
        return 1.0;
    }
    if x > 0.25 {
        let half = one_minus_exp_minus(x / 2.0);
        return half * (2.0 - half);
    }
    let (mut term, mut sum) = (x, 0.0);
    for k in 2..16 {
        sum += term;
        term *= -x / f64::from(k);
    }
    sum
}

/// Returns the number of fraction bits in the ledger's counts of bytes.
pub(crate) fn byte_bits(is_exact: bool) -> u32 {
    if is_exact { 0 } else { BYTE_BITS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_are_precise() {
        for i in 1..20_000 {
            let x = f64::from(i) / 777.0;
            assert!((ln(x) - x.ln()).abs() < 1e-13 * (1.0 + x.ln().abs()), "{x}");
            let expected = -(-x).exp_m1();
            assert!(
                (one_minus_exp_minus(x) - expected).abs() < 1e-14 + 1e-13 * expected,
                "{x}"
            );
        }
        assert!((ln(1.0 / (1u64 << 53) as f64) + 53.0 * std::f64::consts::LN_2).abs() < 1e-12);
    }

    #[test]
    fn intervals_have_the_mean_and_spread_of_an_exponential() {
        let (mut random, n, period) = (SamplerRandom::default(), 400_000, 524_288.0);
        random.seed_exactly(1);
        let draws: Vec<f64> = (0..n).map(|_| random.interval(524_288) as f64).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!((mean / period - 1.0).abs() < 0.006, "mean {mean}");
        assert!(
            (variance.sqrt() / period - 1.0).abs() < 0.01,
            "deviation {}",
            variance.sqrt()
        );
        // A third of the mean or less: 1 - e^(-1/3) of them.
        let share = draws.iter().filter(|d| **d <= period / 3.0).count() as f64 / f64::from(n);
        assert!((share - 0.283_469).abs() < 0.003, "{share}");
    }

    #[test]
    fn weights_are_what_the_probability_says() {
        let large = sample_weight(1 << 30, 524_288);
        assert_eq!(
            (large.objects, large.bytes),
            (1 << OBJECT_BITS, 1 << (30 + BYTE_BITS))
        );
        let small = sample_weight(16, 524_288);
        let objects = small.objects as f64 / f64::from(1 << OBJECT_BITS);
        assert!((objects - 30_841.0).abs() < 1.0, "{objects}");
        assert_eq!(sample_weight(0, 524_288).bytes, 0);
    }
}

//! The spread of a sampled stack's sums: how far the sums may be from the truth.
//!
//! An allocation that is sampled with probability p counts 1/p objects. The variance of a sum of
//! objects is estimated by the sum of (1 - p)/p² over the samples. The variance of the sum of their
//! bytes is estimated by the sum of size²·(1 - p)/p²: D. G. Horvitz and D. J. Thompson, "A
//! generalization of sampling without replacement from a finite universe" (1952). When a block is
//! freed, its term no longer counts for the memory in use. The peak has no such sum, because its
//! moment is chosen by the estimate itself.

use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_platform::arch::undisturbed;

use crate::tables::sampler;

/// The spread that one thread has noted for one stack. That thread writes it, and a thread that
/// dumps reads it. All zeros mean that there were no samples.
#[derive(Default)]
#[repr(C)]
pub(crate) struct StackSpread {
    allocated: SpreadPart,
    freed: SpreadPart,
}

#[derive(Default)]
#[repr(C)]
struct SpreadPart {
    samples: AtomicU64,
    /// The variances of objects and of bytes, each as the bits of a floating point number.
    variance: [AtomicU64; 2],
}

/// The spread of a sum: its number of samples, and the variance of its objects and of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SpreadEstimate {
    pub(crate) samples: u64,
    pub(crate) variance: [f64; 2],
}

impl SpreadPart {
    fn get(&self) -> SpreadEstimate {
        SpreadEstimate {
            samples: self.samples.load(Ordering::Relaxed),
            variance: self
                .variance
                .each_ref()
                .map(|bits| f64::from_bits(bits.load(Ordering::Relaxed))),
        }
    }

    fn set(&self, known: SpreadEstimate) {
        self.samples.store(known.samples, Ordering::Relaxed);
        for (to, variance) in self.variance.iter().zip(known.variance) {
            to.store(variance.to_bits(), Ordering::Relaxed);
        }
    }

    /// Adds a block of `size` bytes.
    fn add(&self, size: u64, period: u64) {
        undisturbed(&mut || self.set(self.get().plus(SpreadEstimate::from_sample(size, period))));
    }
}

impl SpreadEstimate {
    /// Returns the spread of one sampled block of `size` bytes.
    fn from_sample(size: u64, period: u64) -> Self {
        let p = sampler::probability(size, period);
        let objects = (1.0 - p) / (p * p);
        Self {
            samples: 1,
            variance: [objects, objects * size as f64 * size as f64],
        }
    }

    fn plus(self, other: Self) -> Self {
        let [objects, bytes] = self.variance;
        Self {
            samples: self.samples.wrapping_add(other.samples),
            variance: [objects + other.variance[0], bytes + other.variance[1]],
        }
    }

    fn minus(self, other: Self) -> Self {
        let [objects, bytes] = self.variance;
        Self {
            samples: self.samples.wrapping_sub(other.samples),
            variance: [objects - other.variance[0], bytes - other.variance[1]],
        }
    }

    /// Sets the variances to zero if no sample is left. Rounding may have left a small remainder.
    fn without_residue(self) -> Self {
        // The number is below zero if there was no memory for one of the events.
        if self.samples as i64 <= 0 {
            return Self::default();
        }
        Self {
            variance: self.variance.map(|variance| variance.max(0.0)),
            ..self
        }
    }
}

impl StackSpread {
    /// Whether no block was noted.
    pub(crate) fn is_untouched(&self) -> bool {
        let none = |part: &SpreadPart| part.samples.load(Ordering::Relaxed) == 0;
        none(&self.allocated) && none(&self.freed)
    }

    /// Adds a new sampled block of `size` bytes.
    pub(crate) fn note_allocation(&self, size: u64, period: u64) {
        self.allocated.add(size, period);
    }

    /// Adds the end of a sampled block of `size` bytes.
    pub(crate) fn note_free(&self, size: u64, period: u64) {
        self.freed.add(size, period);
    }

    /// Restarts with the spread of all threads' memory in use.
    pub(crate) fn restart_from(&self, all: &SpreadSum) {
        undisturbed(&mut || {
            let [_, in_use] = all.parts();
            self.allocated.set(in_use);
            self.freed.set(SpreadEstimate::default());
        });
    }

    /// Restarts the spread. It begins with the spread of the memory in use if `keeps_in_use` is
    /// true, otherwise with zero.
    pub(crate) fn restart(&self, keeps_in_use: bool) {
        let mut in_use = SpreadEstimate::default();
        if keeps_in_use {
            undisturbed(&mut || in_use = self.allocated.get().minus(self.freed.get()));
        }
        self.allocated.set(in_use);
        self.freed.set(SpreadEstimate::default());
    }
}

/// The spread of one stack over all threads, for the allocated and for the freed memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SpreadSum {
    allocated: SpreadEstimate,
    freed: SpreadEstimate,
}

impl SpreadSum {
    /// Adds the spread of one thread. This must be called inside [`undisturbed`].
    pub(crate) fn add(&mut self, spread: &StackSpread) {
        self.allocated = self.allocated.plus(spread.allocated.get());
        self.freed = self.freed.plus(spread.freed.get());
    }

    /// Returns the spread of the allocated memory, and the spread of the memory in use. This must
    /// be called inside [`undisturbed`].
    pub(crate) fn parts(&self) -> [SpreadEstimate; 2] {
        let in_use = self.allocated.minus(self.freed);
        [self.allocated, in_use].map(SpreadEstimate::without_residue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the spread of blocks of these sizes, in a period.
    fn known(sizes: &[u64], period: u64) -> SpreadEstimate {
        let each = sizes
            .iter()
            .map(|&size| SpreadEstimate::from_sample(size, period));
        each.fold(SpreadEstimate::default(), SpreadEstimate::plus)
    }

    #[test]
    fn a_block_s_variance_is_what_its_probability_says() {
        for (size, period) in [
            (1, 512 << 10),
            (100, 4096),
            (4096, 4096),
            (1 << 20, 512 << 10),
        ] {
            let p = 1.0 - (-(size as f64 + 1.0) / period as f64).exp();
            let objects = (1.0 - p) / (p * p);
            let expected = [objects, objects * (size * size) as f64];
            let known = known(&[size], period);
            assert_eq!(known.samples, 1);
            for (known, expected) in known.variance.iter().zip(expected) {
                assert!(
                    (known / expected - 1.0).abs() < 1e-6,
                    "{size} {period}: {known} {expected}"
                );
            }
        }
        // The sum of a block that is always sampled is no estimate.
        assert_eq!(known(&[1 << 40], 4096).variance, [0.0; 2]);
    }

    #[test]
    fn blocks_that_are_freed_leave_nothing() {
        let sizes = [7, 100, 4096, 1 << 20, 33];
        let part = |sizes: &[u64]| {
            let part = SpreadPart::default();
            part.set(known(sizes, 4096));
            part
        };
        let spread = StackSpread {
            allocated: part(&sizes),
            freed: part(&sizes[1..]),
        };
        let sum = |spread: &StackSpread| {
            let mut sum = SpreadSum::default();
            sum.add(spread);
            sum.parts()
        };
        let [allocated, in_use] = sum(&spread);
        assert_eq!(allocated, known(&sizes, 4096));
        let left = known(&sizes[..1], 4096);
        assert_eq!(in_use.samples, 1);
        assert!((in_use.variance[0] / left.variance[0] - 1.0).abs() < 1e-9);
        spread.restart(true);
        assert_eq!(sum(&spread), [in_use, in_use]);
        spread.freed.set(in_use);
        assert_eq!(sum(&spread)[1], SpreadEstimate::default());
        spread.restart(false);
        assert_eq!(sum(&spread), [SpreadEstimate::default(); 2]);
    }
}

//! The curve of the heap's size over time. The number of its moments is limited, however long the
//! recording takes.
//!
//! Two moments are at least `spacing` apart. When the curve is full, every second moment is
//! removed, and the spacing doubles. Of two moments, the one that differs more from the previous
//! remaining moment stays, so that steps and spikes of the curve are preserved.

use heapprof_profile::HeapMoment;

/// Maximum number of moments of a curve.
pub(crate) const MAX_MOMENTS: usize = heapprof_abi::moments::MAX_MOMENTS;

/// Initial time between two moments, in microseconds.
const FIRST_SPACING: i64 = 1000;

/// The moments of a recording, in order of time.
#[repr(C)]
pub(crate) struct HeapMoments {
    pub(crate) len: usize,
    spacing: i64,
    pub(crate) all: [HeapMoment; MAX_MOMENTS],
}

impl HeapMoments {
    /// Creates a curve without moments.
    pub(crate) const fn new() -> Self {
        const NONE: HeapMoment = HeapMoment {
            micros: 0,
            bytes: 0,
            objects: 0,
        };
        Self {
            len: 0,
            spacing: FIRST_SPACING,
            all: [NONE; MAX_MOMENTS],
        }
    }

    /// Forgets all moments.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.spacing = FIRST_SPACING;
    }

    /// Returns the moments so far.
    pub(crate) fn all(&self) -> &[HeapMoment] {
        &self.all[..self.len]
    }

    /// Adds a moment, if it is not earlier than the last moment. Returns the earliest time of the
    /// next moment.
    pub(crate) fn add(&mut self, moment: HeapMoment) -> i64 {
        let last = self.all().last().map_or(0, |last| last.micros);
        if moment.micros >= last {
            if self.len == MAX_MOMENTS {
                self.thin();
            }
            self.all[self.len] = moment;
            self.len += 1;
        }
        moment.micros.saturating_add(self.spacing)
    }

    fn thin(&mut self) {
        self.spacing = self.spacing.saturating_mul(2);
        // The first moment stays, because the curve begins there.
        let (mut kept, mut next) = (1, 1);
        while next + 1 < self.len {
            let before = self.all[kept - 1].bytes;
            let [a, b] = [self.all[next], self.all[next + 1]];
            let is_farther = a.bytes.abs_diff(before) > b.bytes.abs_diff(before);
            self.all[kept] = if is_farther { a } else { b };
            kept += 1;
            next += 2;
        }
        if next < self.len {
            self.all[kept] = self.all[next];
            kept += 1;
        }
        self.len = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64, bytes: i64) -> HeapMoment {
        HeapMoment {
            micros,
            bytes,
            objects: 0,
        }
    }

    #[test]
    fn a_long_recording_keeps_its_ends_and_its_teeth() {
        let mut moments = HeapMoments::new();
        let mut next = 0;
        // A saw whose teeth are ten times the spacing at the end.
        let saw = |time: i64| time % 640_000;
        for time in (0..64_000_000).step_by(500) {
            if time >= next {
                next = moments.add(at(time, saw(time)));
            }
        }
        let all = moments.all();
        assert!(
            all.len() > MAX_MOMENTS / 2 - 2 && all.len() <= MAX_MOMENTS,
            "{}",
            all.len()
        );
        assert_eq!(all[0].micros, 0);
        assert!(all.last().unwrap().micros > 63_800_000);
        assert!(all.is_sorted_by_key(|moment| moment.micros));
        assert!(all.iter().all(|moment| moment.bytes == saw(moment.micros)));
        let falls = all.windows(2).filter(|two| two[1].bytes < two[0].bytes);
        assert_eq!(falls.count(), 99);
        assert_eq!(moments.spacing, 128_000);
    }

    #[test]
    fn a_clock_that_goes_back_adds_nothing() {
        let mut moments = HeapMoments::new();
        moments.add(at(5000, 1));
        moments.add(at(4000, 2));
        assert_eq!(moments.all(), [at(5000, 1)]);
        moments.clear();
        assert!(moments.all().is_empty());
    }
}

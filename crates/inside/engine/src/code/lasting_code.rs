//! Lasting code: code that stays mapped as long as the process lives. dlclose can't remove it,
//! because dlopen has not loaded it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum number of ranges. Code in further ranges counts as code that may be unmapped.
const MAX_RANGES: usize = 256;

/// The addresses of lasting code, in ascending order. The list has no lock.
pub(crate) struct LastingCode {
    range: [(AtomicUsize, AtomicUsize); MAX_RANGES],
    /// Whether dlopen had loaded nothing when the recording began, so that all code of that moment
    /// is lasting.
    is_all: AtomicBool,
    /// Number of ranges. They are written before they are counted, and are never removed.
    len: AtomicUsize,
}

impl LastingCode {
    /// Makes a list without lasting code.
    pub(crate) const fn new() -> Self {
        Self {
            range: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MAX_RANGES],
            is_all: AtomicBool::new(false),
            len: AtomicUsize::new(0),
        }
    }

    /// Notes that dlopen has loaded nothing up to now.
    pub(crate) fn expect_all(&self) {
        self.is_all.store(true, Ordering::Relaxed);
    }

    /// Whether [`expect_all`](Self::expect_all) was called.
    pub(crate) fn expects_all(&self) -> bool {
        self.is_all.load(Ordering::Relaxed)
    }

    /// Notes all lasting code, as ranges that do not overlap. Only the first call has an effect,
    /// and one thread calls this at a time.
    pub(crate) fn note(&self, mut all: Vec<Range<usize>>) {
        if self.len.load(Ordering::Relaxed) != 0 {
            return;
        }
        all.sort_unstable_by_key(|range| range.start);
        for ((start, end), range) in self.range.iter().zip(&all) {
            start.store(range.start, Ordering::Relaxed);
            end.store(range.end, Ordering::Relaxed);
        }
        self.len.store(all.len().min(MAX_RANGES), Ordering::Release);
    }

    /// Whether `address` is in code that is never unloaded.
    pub(crate) fn holds(&self, address: usize) -> bool {
        let ranges = &self.range[..self.len.load(Ordering::Acquire)];
        // Each dlclose calls this for each rule.
        let behind = ranges.partition_point(|(start, _)| start.load(Ordering::Relaxed) <= address);
        let last = behind.checked_sub(1).map(|at| &ranges[at]);
        last.is_some_and(|(_, end)| address < end.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_noted_once() {
        let code = LastingCode::new();
        assert!(!code.holds(0));
        code.note(vec![30..40, 10..20, 40..45]);
        code.note(vec![Range { start: 50, end: 60 }]);
        let held = (0..100).filter(|&at| code.holds(at));
        assert!(held.eq((10..20).chain(30..45)));
        // Code for which there is no room may go.
        let code = LastingCode::new();
        code.note((0..1000).map(|i| 10 * i..10 * i + 1).collect());
        assert!(code.holds(0) && code.holds(10 * (MAX_RANGES - 1)));
        assert!(!code.holds(1) && !code.holds(10 * MAX_RANGES));
    }
}

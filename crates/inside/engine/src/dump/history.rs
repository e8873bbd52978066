//! The history of a recording: the moments, the time of the next moment, and the time when the heap
//! was largest.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use heapprof_platform::lock::{ForkLock, LockedValue, rank};
use heapprof_platform::table_file;
use heapprof_profile::HeapMoment;

use crate::process::EngineProcess;
use crate::tables::moments::{HeapMoments, MAX_MOMENTS};

/// The history of a recording. Times are in microseconds since the recording began.
pub(crate) struct RecordingHistory {
    pub(crate) moments: LockedValue<{ rank::MOMENTS }, HeapMoments>,
    /// Earliest time of the next moment.
    next: AtomicI64,
    /// Time at which a thread last checked the heap. The field `early` counts the checks in a row
    /// that came early.
    last_check: AtomicI64,
    early: AtomicU32,
    /// The largest size of the heap at any check, in the recording's unit. The field `peak_at` is
    /// the time of that check.
    peak: AtomicI64,
    pub(crate) peak_at: AtomicI64,
}

/// Time since the last check, in microseconds, below which a check is early. A check takes some
/// 50 ns.
const EARLY_CHECK_LIMIT: i64 = 20;
/// Time since the last check, in microseconds, above which a check is late.
const LATE_CHECK_LIMIT: i64 = 80;
/// Number of early checks in a row after which checks come less often. A short burst of allocations
/// has fewer early checks, so it does not slow the checks down.
const MAX_EARLY_CHECKS: u32 = 8;

/// A change of the pace at which the heap is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckPace {
    /// Checks are to come less often than now.
    Slower,
    /// Checks are to come as often as now.
    Unchanged,
    /// Checks are to come as often as possible, because little has happened lately.
    Quickest,
}

impl RecordingHistory {
    /// Creates a history without moments.
    pub(crate) const fn new() -> Self {
        Self {
            moments: LockedValue::new(HeapMoments::new()),
            next: AtomicI64::new(0),
            last_check: AtomicI64::new(0),
            early: AtomicU32::new(0),
            peak: AtomicI64::new(0),
            peak_at: AtomicI64::new(0),
        }
    }

    /// Restarts the history with its first moment, which is also the peak so far.
    pub(crate) fn begin(&self, process: &EngineProcess, first: HeapMoment, peak: i64) {
        let add = |moments: &mut HeapMoments| {
            moments.clear();
            let next = moments.add(first);
            publish_moments(process, moments, 0);
            next
        };
        let next = self.moments.with(process, add);
        self.next.store(next, Ordering::Relaxed);
        self.last_check.store(first.micros, Ordering::Relaxed);
        self.peak.store(peak, Ordering::Relaxed);
        self.peak_at.store(first.micros, Ordering::Relaxed);
    }

    /// Records a check at the time `micros`. `peak` is the largest size of the heap so far, in the
    /// recording's unit. Returns how the pace is to change.
    pub(crate) fn note_check(&self, micros: i64, peak: i64) -> CheckPace {
        if peak > self.peak.load(Ordering::Relaxed) {
            self.peak.store(peak, Ordering::Relaxed);
            self.peak_at.store(micros, Ordering::Relaxed);
        }
        match micros - self.last_check.swap(micros, Ordering::Relaxed) {
            ..EARLY_CHECK_LIMIT => {
                let early = self.early.load(Ordering::Relaxed) + 1;
                let is_slower = early >= MAX_EARLY_CHECKS;
                let early = if is_slower { 0 } else { early };
                self.early.store(early, Ordering::Relaxed);
                if is_slower {
                    CheckPace::Slower
                } else {
                    CheckPace::Unchanged
                }
            }
            since => {
                self.early.store(0, Ordering::Relaxed);
                if since > LATE_CHECK_LIMIT {
                    CheckPace::Quickest
                } else {
                    CheckPace::Unchanged
                }
            }
        }
    }

    /// Whether another moment is due at the time `micros`.
    #[inline]
    pub(crate) fn is_due(&self, micros: i64) -> bool {
        micros >= self.next.load(Ordering::Relaxed)
    }

    /// Adds a moment.
    pub(crate) fn add(&self, process: &EngineProcess, moment: HeapMoment) {
        let add = |moments: &mut HeapMoments| {
            let before = moments.len;
            let next = moments.add(moment);
            // With fewer moments than before, all but the first have moved.
            let from = if moments.len > before { before } else { 0 };
            publish_moments(process, moments, from);
            next
        };
        let next = self.moments.with(process, add);
        self.next.store(next, Ordering::Relaxed);
    }

    /// Returns the moments before the time `micros`.
    pub(crate) fn before(&self, process: &EngineProcess, micros: i64) -> Vec<HeapMoment> {
        let mut all = Vec::with_capacity(MAX_MOMENTS + 1);
        self.moments.with(process, |moments| {
            let before = |moment: &&HeapMoment| moment.micros < micros;
            all.extend(moments.all().iter().take_while(before));
        });
        all
    }

    /// Returns the number of bytes in use when the recording began. In a forked child, these are
    /// inherited bytes.
    pub(crate) fn first_bytes(&self, process: &EngineProcess) -> i64 {
        let first = |moments: &mut HeapMoments| moments.all().first().map(|moment| moment.bytes);
        self.moments.with(process, first).unwrap_or(0)
    }

    /// Returns the time of the check that found the heap's largest size.
    pub(crate) fn peak_at(&self) -> i64 {
        self.peak_at.load(Ordering::Relaxed)
    }

    /// Returns the lock that fork must take.
    pub(crate) fn lock(&self) -> &dyn ForkLock {
        &self.moments.lock
    }
}

/// Copies the moments from number `from` on into the saved ledger, for its readers.
fn publish_moments(process: &EngineProcess, moments: &HeapMoments, from: usize) {
    const HEAD_WORDS: usize = heapprof_abi::moments::FIRST_MOMENT / 8;
    const MOMENT_WORDS: usize = heapprof_abi::moments::LEN / 8;
    let kept = &process.pages.table_file;
    if kept.is_there() {
        kept.copy_words(
            table_file::MOMENTS_COPY,
            HEAD_WORDS + from * MOMENT_WORDS..HEAD_WORDS + moments.len * MOMENT_WORDS,
        );
        kept.copy_words(table_file::MOMENTS_COPY, 0..HEAD_WORDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_follows_the_time_between_looks() {
        let history = RecordingHistory::new();
        for micros in 1..MAX_EARLY_CHECKS {
            assert_eq!(history.note_check(micros.into(), 5), CheckPace::Unchanged);
        }
        assert_eq!(history.note_check(10, 5), CheckPace::Slower);
        assert_eq!(history.note_check(11, 5), CheckPace::Unchanged);
        assert_eq!(history.note_check(51, 5), CheckPace::Unchanged);
        assert_eq!(history.note_check(151, 7), CheckPace::Quickest);
        assert_eq!(history.peak_at(), 151);
        assert!(history.is_due(151));
    }
}

//! The schedule of reports on growing lines: when to scan for stacks that have grown, and the last
//! reported size of each stack.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use heapprof_abi::RecordingEpoch;
use heapprof_platform::lock::{ForkLock, LockedValue, rank};
use heapprof_platform::sys;

use crate::process::EngineProcess;

/// The schedule of the scans for stacks that have grown.
pub(crate) struct LineGrowthSchedule {
    /// Bytes that must be allocated between two scans; 0 if the growth of lines is not reported.
    step: AtomicU64,
    /// Number of allocated bytes at which the next scan is due.
    limit: AtomicU64,
    /// Earliest time of the next scan, in nanoseconds of the monotonic clock.
    not_before: AtomicI64,
    reported: LockedValue<{ rank::REPORTED_STACKS }, ReportedStacks>,
}

/// The reported sizes of the stacks of a recording.
struct ReportedStacks {
    epoch: RecordingEpoch,
    of_stacks: Vec<ReportedStack>,
}

/// The reported sizes of a stack, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReportedStack {
    /// Bytes in use at the last report.
    pub(crate) in_use: i64,
    /// Largest number of bytes in use at any report.
    pub(crate) most: i64,
}

impl ReportedStack {
    /// Records that `in_use` bytes were reported.
    pub(crate) fn note_report(&mut self, in_use: i64) {
        self.in_use = in_use;
        self.most = self.most.max(in_use);
    }
}

/// Factor by which the pause after a scan is longer than the scan. So scans take less than a
/// twentieth of the time.
const SCAN_TIME_DIVISOR: i64 = 20;
/// The shortest time between two scans, in nanoseconds.
const MIN_SCAN_INTERVAL: i64 = 10_000_000;

impl LineGrowthSchedule {
    /// Creates a schedule without scans.
    pub(crate) const fn new() -> Self {
        Self {
            step: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            not_before: AtomicI64::new(0),
            reported: LockedValue::new(ReportedStacks {
                epoch: RecordingEpoch::from_u64(0),
                of_stacks: Vec::new(),
            }),
        }
    }

    /// Starts the schedule for a new recording. A line is reported if it has grown by `least`
    /// bytes; if `least` is `None`, there are no scans. Returns how many bytes are allocated
    /// between two scans; `None` if there are no scans.
    pub(crate) fn begin(&self, least: Option<u64>) -> Option<u64> {
        let step = least.map(growth_step);
        self.step.store(step.unwrap_or_default(), Ordering::Relaxed);
        self.limit
            .store(step.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.not_before.store(0, Ordering::Relaxed);
        step
    }

    /// Whether the growth of lines is reported.
    pub(crate) fn is_on(&self) -> bool {
        self.step.load(Ordering::Relaxed) != 0
    }

    /// Whether a scan is due when `allocated` bytes were allocated.
    pub(crate) fn is_due(&self, allocated: u64) -> bool {
        // A scan for another purpose has set the limit even if the growth of lines is not reported.
        allocated >= self.limit.load(Ordering::Relaxed)
            && self.is_on()
            && sys::nanoseconds(libc::CLOCK_MONOTONIC) >= self.not_before.load(Ordering::Relaxed)
    }

    /// Whether another scan may run now and is needed, because the total of `allocated` bytes has
    /// grown since the last scan.
    pub(crate) fn has_news(&self, allocated: u64) -> bool {
        let step = self.step.load(Ordering::Relaxed);
        allocated.saturating_add(step) > self.limit.load(Ordering::Relaxed)
            && self.is_on()
            && sys::nanoseconds(libc::CLOCK_MONOTONIC) >= self.not_before.load(Ordering::Relaxed)
    }

    /// Records a scan that began at `began`, when `allocated` bytes were allocated.
    pub(crate) fn note_scan(&self, began: i64, allocated: u64) {
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
        let pause = (now - began)
            .saturating_mul(SCAN_TIME_DIVISOR)
            .max(MIN_SCAN_INTERVAL);
        self.not_before
            .store(now.saturating_add(pause), Ordering::Relaxed);
        let step = self.step.load(Ordering::Relaxed);
        self.limit
            .store(allocated.saturating_add(step), Ordering::Relaxed);
    }

    /// Takes the reported sizes of stacks out of the schedule, for a scan in the recording `epoch`.
    /// The caller gives them back by [`put`](Self::put). The result is empty if no stack of this
    /// recording was reported.
    pub(crate) fn take(
        &self,
        process: &EngineProcess,
        epoch: RecordingEpoch,
    ) -> Vec<ReportedStack> {
        self.reported.with(process, |reported| {
            let of_stacks = std::mem::take(&mut reported.of_stacks);
            match std::mem::replace(&mut reported.epoch, epoch) == epoch {
                true => of_stacks,
                false => Vec::new(),
            }
        })
    }

    /// Gives back the sizes that [`take`](Self::take) returned, unless another recording has begun
    /// meanwhile.
    pub(crate) fn put(
        &self,
        process: &EngineProcess,
        epoch: RecordingEpoch,
        of_stacks: Vec<ReportedStack>,
    ) {
        self.reported.with(process, |reported| {
            if reported.epoch == epoch {
                reported.of_stacks = of_stacks;
            }
        });
    }

    /// Returns the lock that fork must take.
    pub(crate) fn lock(&self) -> &dyn ForkLock {
        &self.reported.lock
    }
}

/// Returns the smallest change of a call site's stacks that is reported, in bytes. `least` is the
/// smallest growth of a line that is reported. The result is smaller than `least`, because one line
/// may have several call sites.
pub(crate) fn growth_step(least: u64) -> u64 {
    (least / 4).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_only_if_somebody_follows() {
        let following = LineGrowthSchedule::new();
        let looked_long_ago = |allocated| {
            following.note_scan(0, allocated);
            following.not_before.store(0, Ordering::Relaxed);
        };
        assert!(!following.is_due(1 << 40));
        looked_long_ago(0);
        assert!(!following.is_due(1 << 40));
        assert_eq!(following.begin(Some(4096)), Some(1024));
        assert!(!following.is_due(1023) && following.is_due(1024));
        looked_long_ago(1500);
        assert!(!following.is_due(2523) && following.is_due(2524));
        assert!(!following.has_news(1500) && following.has_news(1501));
        assert_eq!(following.begin(None), None);
        looked_long_ago(5000);
        assert!(!following.is_due(1 << 40) && !following.has_news(1 << 40));
    }
}

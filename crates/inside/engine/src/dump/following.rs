//! Following lines: when to look by how much stacks have grown, and what was told of them last.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::platform::lock::{ForkLock, LockedValue, rank};
use crate::platform::process::EngineProcess;
use crate::platform::sys;

/// What following needs from one look to the next.
pub(crate) struct LineGrowthSchedule {
    /// Bytes that must be allocated between two looks; 0 if nobody follows.
    step: AtomicU64,
    /// How much is allocated by the next look.
    limit: AtomicU64,
    /// The time before which there is no other look, in nanoseconds since some moment.
    not_before: AtomicI64,
    reported: LockedValue<{ rank::REPORTED_STACKS }, ReportedStacks>,
}

/// What was told of the stacks of a recording.
struct ReportedStacks {
    /// Which recording it is.
    epoch: u64,
    of_stacks: Vec<ReportedStack>,
}

/// What was told of a stack, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReportedStack {
    /// What was in use when it was told of last.
    pub(crate) in_use: i64,
    /// The most that was in use at such a moment.
    pub(crate) most: i64,
}

impl ReportedStack {
    /// Notes that so much was told.
    pub(crate) fn note_report(&mut self, in_use: i64) {
        self.in_use = in_use;
        self.most = self.most.max(in_use);
    }
}

/// A look takes at most one part in so many of the time.
const SCAN_TIME_DIVISOR: i64 = 20;
/// The shortest time between two looks, in nanoseconds.
const MIN_SCAN_INTERVAL: i64 = 10_000_000;

impl LineGrowthSchedule {
    /// Nobody follows.
    pub(crate) const fn new() -> Self {
        Self {
            step: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            not_before: AtomicI64::new(0),
            reported: LockedValue::new(ReportedStacks {
                epoch: 0,
                of_stacks: Vec::new(),
            }),
        }
    }

    /// Begins anew: a line counts if it has grown by `least` bytes. Returns how many bytes are
    /// allocated between two looks.
    pub(crate) fn begin(&self, least: Option<u64>) -> Option<u64> {
        let step = least.map(growth_step);
        self.step.store(step.unwrap_or_default(), Ordering::Relaxed);
        self.limit
            .store(step.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.not_before.store(0, Ordering::Relaxed);
        step
    }

    /// Whether anybody follows.
    pub(crate) fn is_on(&self) -> bool {
        self.step.load(Ordering::Relaxed) != 0
    }

    /// Whether it is time to look, when so much was allocated.
    pub(crate) fn is_due(&self, allocated: u64) -> bool {
        // A look at something else has set the limit even if nobody follows.
        allocated >= self.limit.load(Ordering::Relaxed)
            && self.is_on()
            && sys::nanoseconds(libc::CLOCK_MONOTONIC) >= self.not_before.load(Ordering::Relaxed)
    }

    /// Whether something was allocated since the last look, when so much was, and it is time for
    /// another one.
    pub(crate) fn has_news(&self, allocated: u64) -> bool {
        let step = self.step.load(Ordering::Relaxed);
        allocated.saturating_add(step) > self.limit.load(Ordering::Relaxed)
            && self.is_on()
            && sys::nanoseconds(libc::CLOCK_MONOTONIC) >= self.not_before.load(Ordering::Relaxed)
    }

    /// Notes a look that began at `began`, when so much was allocated.
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

    /// What was told of each stack of the recording `epoch`, for whoever looks.
    /// [`put`](Self::put) gives it back. It is empty if nothing was told of that recording.
    pub(crate) fn take(&self, process: &EngineProcess, epoch: u64) -> Vec<ReportedStack> {
        self.reported.with(process, |told| {
            let of_stacks = std::mem::take(&mut told.of_stacks);
            match std::mem::replace(&mut told.epoch, epoch) == epoch {
                true => of_stacks,
                false => Vec::new(),
            }
        })
    }

    /// Gives back what [`take`](Self::take) took, unless there is another recording by now.
    pub(crate) fn put(&self, process: &EngineProcess, epoch: u64, of_stacks: Vec<ReportedStack>) {
        self.reported.with(process, |told| {
            if told.epoch == epoch {
                told.of_stacks = of_stacks;
            }
        });
    }

    /// The lock that fork must hold.
    pub(crate) fn lock(&self) -> &dyn ForkLock {
        &self.reported.lock
    }
}

/// How much a place must have changed before it is told of, if a line counts with `least` bytes.
/// It is less, because one line may call in several places.
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

//! When to dump besides at the end: noticed inside an allocation, done just after it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use crate::options::Triggers;
use crate::platform::lock::Locked;
use crate::platform::sys;
use crate::reason::Reason;
use crate::tables::counters::PROCESS;
use crate::tables::sampler;

/// Threads report what they allocated and freed each time it is this much. The amount is small if a
/// small amount makes a dump.
static REPORT: AtomicU64 = AtomicU64::new(MOST_UNREPORTED);
const MOST_UNREPORTED: u64 = 1 << 20;

static TRIGGERS: Locked<Triggers> = Locked::new(Triggers {
    interval: None,
    growth: None,
    peak: false,
    peak_growth: None,
    allocated: None,
    freed: None,
});
/// What is to be done: a reason's number + 1, or [`NOTHING`].
static PENDING: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = 0;
const TERMINATED: u8 = Reason::Terminated as u8 + 1;
static WORK: OnceLock<fn(Reason)> = OnceLock::new();
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);
static ALLOCATED_LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
static FREED_LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
/// When the interval ends, in milliseconds since some moment, if no thread of ours counts the time.
static DEADLINE: AtomicI64 = AtomicI64::new(i64::MAX);
static LAST_PEAK: AtomicI64 = AtomicI64::new(0);

/// The lock that fork must hold.
pub(crate) fn lock() -> &'static crate::platform::lock::Lock {
    &TRIGGERS.lock
}

/// Whether something is to be done after this event.
#[inline(always)]
pub(crate) fn pending() -> bool {
    PENDING.load(Ordering::Relaxed) != NOTHING
}

/// How much a thread may have allocated or freed without reporting it.
#[inline(always)]
pub(crate) fn most_unreported() -> u64 {
    REPORT.load(Ordering::Relaxed)
}

/// Dumps on these triggers from now on. `work` makes a dump.
pub(crate) fn arm(triggers: Triggers, work: fn(Reason)) {
    let _ = WORK.set(work);
    TRIGGERS.with(|t| *t = triggers);
    let limits = [triggers.allocated, triggers.freed];
    let least = limits.into_iter().flatten().min().unwrap_or(u64::MAX);
    REPORT.store((least / 64).clamp(1, MOST_UNREPORTED), Ordering::Relaxed);
    LAST_PEAK.store(0, Ordering::Relaxed);
    DEADLINE.store(i64::MAX, Ordering::Relaxed);
    rearm();
}

/// Moves the limits on, after a dump.
pub(crate) fn rearm() {
    let triggers = TRIGGERS.with(|t| *t);
    let scaled = |bytes: u64| {
        i64::try_from(bytes)
            .unwrap_or(i64::MAX)
            .saturating_mul(1 << sampler::byte_bits())
    };
    let (in_use, peak) = (
        PROCESS.in_use.load(Ordering::Relaxed),
        PROCESS.peak.load(Ordering::Relaxed),
    );
    let mut alarm = i64::MAX;
    if let Some(growth) = triggers.growth {
        alarm = alarm.min(in_use.saturating_add(scaled(growth)));
    }
    if let Some(growth) = triggers.peak_growth {
        alarm = alarm.min(peak.saturating_add(scaled(growth)));
    }
    if triggers.peak {
        let last = LAST_PEAK.swap(peak, Ordering::Relaxed).max(peak);
        alarm = alarm.min(last.saturating_add((last / 10).max(scaled(64 << 10))));
    }
    PROCESS.alarm.store(alarm, Ordering::Relaxed);
    let next = |limit: Option<u64>, so_far: &AtomicU64| {
        limit.map_or(u64::MAX, |l| {
            so_far.load(Ordering::Relaxed).saturating_add(l)
        })
    };
    ALLOCATED_LIMIT.store(next(triggers.allocated, &ALLOCATED), Ordering::Relaxed);
    FREED_LIMIT.store(next(triggers.freed, &FREED), Ordering::Relaxed);
    if DEADLINE.load(Ordering::Relaxed) != i64::MAX {
        count_time_inline(&triggers);
    }
}

/// Lets allocations look at the clock, if no thread of ours can.
pub(crate) fn count_time_inline(triggers: &Triggers) {
    if let Some(interval) = triggers.interval {
        let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
        // The greatest number says that nobody counts.
        let deadline = now().saturating_add(interval).min(i64::MAX - 1);
        DEADLINE.store(deadline, Ordering::Relaxed);
    }
}

/// Ends what [`count_time_inline`] began.
pub(crate) fn stop_counting() {
    DEADLINE.store(i64::MAX, Ordering::Relaxed);
}

fn now() -> i64 {
    sys::nanoseconds(libc::CLOCK_MONOTONIC_COARSE) / 1_000_000
}

/// Asks for a dump. It is made when this thread, or another one that comes first, leaves the
/// collector.
pub(crate) fn ask(reason: Reason) {
    // Nothing else takes the place of an end. What nobody asked for does not take the place of what
    // somebody asked for.
    let stays = |pending| {
        pending == TERMINATED || pending == Reason::Signal as u8 + 1 && reason.is_automatic()
    };
    let _ = PENDING.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |pending| {
        (!stays(pending)).then_some(reason as u8 + 1)
    });
}

/// Called when the heap passed the alarm's limit.
#[cold]
pub(crate) fn alarm() {
    // There is one dump per crossing, not one for each thread that sees it.
    PROCESS.alarm.store(i64::MAX, Ordering::Relaxed);
    // Signals are blocked because a handler that ends the process dumps, and that takes this lock,
    // too.
    let mask = sys::block_signals();
    let triggers = TRIGGERS.with(|t| *t);
    sys::restore_signals(mask);
    ask(if triggers.growth.is_some() {
        Reason::Growth
    } else {
        Reason::Peak
    });
}

/// Adds what a thread allocated and freed.
#[cold]
pub(crate) fn report(unreported: &mut [u64; 2]) {
    let [allocated, freed] = std::mem::take(unreported);
    if ALLOCATED.fetch_add(allocated, Ordering::Relaxed) + allocated
        >= ALLOCATED_LIMIT.load(Ordering::Relaxed)
    {
        ALLOCATED_LIMIT.store(u64::MAX, Ordering::Relaxed);
        ask(Reason::Allocated);
    }
    if FREED.fetch_add(freed, Ordering::Relaxed) + freed >= FREED_LIMIT.load(Ordering::Relaxed) {
        FREED_LIMIT.store(u64::MAX, Ordering::Relaxed);
        ask(Reason::Freed);
    }
    let deadline = DEADLINE.load(Ordering::Relaxed);
    if deadline != i64::MAX && now() >= deadline {
        ask(Reason::Interval);
    }
}

/// Forgets what was asked for, in a forked child: it is the parent's.
pub(crate) fn forget() {
    PENDING.store(NOTHING, Ordering::Release);
}

/// Does what is pending.
#[cold]
pub(crate) fn run() {
    if let Some(reason) = PENDING.swap(NOTHING, Ordering::AcqRel).checked_sub(1)
        && let Some(work) = WORK.get()
    {
        work(Reason::from_number(reason));
    }
}

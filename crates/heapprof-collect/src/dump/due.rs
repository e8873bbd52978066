//! When to dump besides at the end: noticed inside an allocation, done just after it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use crate::dump::following::Following;
use crate::dump::live::Live;
use crate::options::Triggers;
use crate::platform::lock::{ForkLock, Locked, rank};
use crate::platform::process::Process;
use crate::platform::sys;
use crate::reason::Reason;
use crate::tables::counters::Heap;
use crate::tables::sampler;

/// What may make a dump due, and whether one is.
pub(crate) struct Due {
    /// Threads report what they allocated and freed each time it is this much. The amount is small
    /// if a small amount makes a dump.
    most_unreported: AtomicU64,
    /// The most that `most_unreported` may be.
    coarsest: AtomicU64,
    triggers: Locked<{ rank::TRIGGERS }, Triggers>,
    /// What is to be done: a reason's number + 1, or [`NOTHING`].
    pending: AtomicU8,
    dumper: OnceLock<&'static dyn Dumper>,
    allocated: AtomicU64,
    freed: AtomicU64,
    allocated_limit: AtomicU64,
    freed_limit: AtomicU64,
    /// When the interval ends, in milliseconds since some moment, if no thread of ours counts the
    /// time.
    deadline: AtomicI64,
    last_peak: AtomicI64,
    pub(crate) following: Following,
    pub(crate) live: Live,
}

/// Whoever makes the dumps that are due.
pub(crate) trait Dumper: Sync {
    /// Makes a dump.
    fn dump_due(&'static self, reason: Reason);

    /// Looks by how much lines have grown, and what code is mapped, and answers `record --live`.
    fn look_due(&'static self);
}

const MOST_UNREPORTED: u64 = 1 << 20;
/// As above, if somebody may ask for a profile at any time.
const MOST_UNREPORTED_LIVE: u64 = 64 << 10;
/// What threads may leave unreported while little happens.
const LEAST_UNREPORTED: u64 = 4 << 10;
const NOTHING: u8 = 0;
/// A look at lines or code is to be made. A dump makes one, too, so it may take this one's place.
const LOOK: u8 = u8::MAX;
const TERMINATED: u8 = Reason::Terminated as u8 + 1;

impl Due {
    /// Nothing is due, and nothing makes it so.
    pub(crate) const fn new() -> Self {
        Self {
            most_unreported: AtomicU64::new(MOST_UNREPORTED),
            coarsest: AtomicU64::new(MOST_UNREPORTED),
            triggers: Locked::new(Triggers {
                interval: None,
                growth: None,
                peak: false,
                peak_growth: None,
                allocated: None,
                freed: None,
                line_growth: None,
                live: false,
            }),
            pending: AtomicU8::new(NOTHING),
            dumper: OnceLock::new(),
            allocated: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            allocated_limit: AtomicU64::new(u64::MAX),
            freed_limit: AtomicU64::new(u64::MAX),
            deadline: AtomicI64::new(i64::MAX),
            last_peak: AtomicI64::new(0),
            following: Following::new(),
            live: Live::new(),
        }
    }

    /// The lock that fork must hold.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 2] {
        let Self {
            triggers,
            most_unreported: _,
            coarsest: _,
            pending: _,
            dumper: _,
            allocated: _,
            freed: _,
            allocated_limit: _,
            freed_limit: _,
            deadline: _,
            last_peak: _,
            following,
            live: _,
        } = self;
        [&triggers.lock, following.lock()]
    }

    /// Whether something is to be done after this event.
    #[inline(always)]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != NOTHING
    }

    /// How much a thread may have allocated or freed without reporting it.
    #[inline(always)]
    pub(crate) fn most_unreported(&self) -> u64 {
        self.most_unreported.load(Ordering::Relaxed)
    }

    /// Has threads report less often, or as often as can be.
    pub(crate) fn change_pace(&self, is_slower: bool) {
        let coarsest = self.coarsest.load(Ordering::Relaxed);
        let most = match is_slower {
            true => self.most_unreported().saturating_mul(2),
            false => LEAST_UNREPORTED,
        };
        self.most_unreported
            .store(most.min(coarsest), Ordering::Relaxed);
    }

    /// Has `dumper` make the dumps that are due on these triggers from now on.
    pub(crate) fn arm(
        &self,
        process: &Process,
        heap: &Heap,
        triggers: Triggers,
        dumper: &'static dyn Dumper,
    ) {
        let _ = self.dumper.set(dumper);
        self.triggers.with(process, |t| *t = triggers);
        let limits = [triggers.allocated, triggers.freed];
        let least = limits.into_iter().flatten().min().unwrap_or(u64::MAX);
        self.allocated.store(0, Ordering::Relaxed);
        self.freed.store(0, Ordering::Relaxed);
        let step = self.following.begin(triggers.line_growth);
        let most = (least / 64).min(step.unwrap_or(u64::MAX) / 4);
        let largest = match triggers.live {
            true => MOST_UNREPORTED_LIVE,
            false => MOST_UNREPORTED,
        };
        let most = most.clamp(1, largest);
        self.coarsest.store(most, Ordering::Relaxed);
        self.most_unreported
            .store(most.min(LEAST_UNREPORTED), Ordering::Relaxed);
        self.last_peak.store(0, Ordering::Relaxed);
        self.deadline.store(i64::MAX, Ordering::Relaxed);
        self.rearm(process, heap);
    }

    /// Moves the limits on, after a dump.
    pub(crate) fn rearm(&self, process: &Process, heap: &Heap) {
        let triggers = self.triggers.with(process, |t| *t);
        let bits = sampler::byte_bits(process.recorded.is_exact());
        let scaled = |bytes: u64| {
            i64::try_from(bytes)
                .unwrap_or(i64::MAX)
                .saturating_mul(1 << bits)
        };
        let (in_use, peak) = (heap.in_use(), heap.peak_bytes());
        let mut alarm = i64::MAX;
        if let Some(growth) = triggers.growth {
            alarm = alarm.min(in_use.saturating_add(scaled(growth)));
        }
        if let Some(growth) = triggers.peak_growth {
            alarm = alarm.min(peak.saturating_add(scaled(growth)));
        }
        if triggers.peak {
            let last = self.last_peak.swap(peak, Ordering::Relaxed).max(peak);
            alarm = alarm.min(last.saturating_add((last / 10).max(scaled(64 << 10))));
        }
        heap.set_alarm(alarm);
        for (limit, so_far, triggered) in [
            (&self.allocated_limit, &self.allocated, triggers.allocated),
            (&self.freed_limit, &self.freed, triggers.freed),
        ] {
            let next = |more| so_far.load(Ordering::Relaxed).saturating_add(more);
            limit.store(triggered.map_or(u64::MAX, next), Ordering::Relaxed);
        }
        if self.deadline.load(Ordering::Relaxed) != i64::MAX {
            self.count_time_inline(&triggers);
        }
    }

    /// Lets allocations look at the clock, if no thread of ours can.
    pub(crate) fn count_time_inline(&self, triggers: &Triggers) {
        self.live.look_inline(triggers.live);
        if let Some(interval) = triggers.interval {
            let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
            // The greatest number says that nobody counts.
            let deadline = now().saturating_add(interval).min(i64::MAX - 1);
            self.deadline.store(deadline, Ordering::Relaxed);
        }
    }

    /// Ends what [`count_time_inline`](Self::count_time_inline) began.
    pub(crate) fn stop_counting(&self) {
        self.deadline.store(i64::MAX, Ordering::Relaxed);
        self.live.look_inline(false);
    }

    /// Asks for a dump. It is made when this thread, or another one that comes first, leaves the
    /// engine.
    pub(crate) fn ask(&self, reason: Reason) {
        // Nothing else takes the place of an end. What nobody asked for does not take the place of
        // what somebody asked for.
        let stays = |pending| {
            pending == TERMINATED || pending == Reason::Signal as u8 + 1 && reason.is_automatic()
        };
        let asked = |pending| (!stays(pending)).then_some(reason as u8 + 1);
        let _ = self
            .pending
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, asked);
    }

    /// Asks for a look at lines and code, unless something else is asked for. Returns whether it
    /// did.
    pub(crate) fn ask_to_look(&self) -> bool {
        self.pending
            .compare_exchange(NOTHING, LOOK, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// How much was allocated, as far as threads have reported it.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Notes a look that began at `began`, in nanoseconds.
    pub(crate) fn looked(&self, began: i64) {
        let allocated = self.allocated.load(Ordering::Relaxed);
        self.following.looked(began, allocated);
    }

    /// Whether lines may have grown of which nothing was told: the program waits, or little
    /// happens.
    pub(crate) fn has_news_of_lines(&self) -> bool {
        let allocated = self.allocated.load(Ordering::Relaxed);
        self.following.has_news(allocated)
    }

    /// Called when the heap passed the alarm's limit.
    #[cold]
    pub(crate) fn alarm(&self, process: &Process, heap: &Heap) {
        // There is one dump per crossing, not one for each thread that sees it.
        heap.set_alarm(i64::MAX);
        // Signals are blocked because a handler that ends the process dumps, and that takes this
        // lock, too.
        let mask = process.block_signals();
        let triggers = self.triggers.with(process, |t| *t);
        sys::restore_signals(mask);
        self.ask(if triggers.growth.is_some() {
            Reason::Growth
        } else {
            Reason::Peak
        });
    }

    /// Adds what a thread allocated and freed.
    #[cold]
    pub(crate) fn report(&self, unreported: &mut [u64; 2]) {
        let [allocated, freed] = std::mem::take(unreported);
        for (bytes, so_far, limit, reason) in [
            (
                allocated,
                &self.allocated,
                &self.allocated_limit,
                Reason::Allocated,
            ),
            (freed, &self.freed, &self.freed_limit, Reason::Freed),
        ] {
            let now = so_far.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if now >= limit.load(Ordering::Relaxed) {
                limit.store(u64::MAX, Ordering::Relaxed);
                self.ask(reason);
            }
        }
        let deadline = self.deadline.load(Ordering::Relaxed);
        if deadline != i64::MAX && now() >= deadline {
            self.ask(Reason::Interval);
        }
        let allocated = self.allocated.load(Ordering::Relaxed);
        if self.following.is_due(allocated) || self.live.is_asked_inline() {
            self.ask_to_look();
        }
    }

    /// Forgets what was asked for, in a forked child: it is the parent's.
    pub(crate) fn forked(&self) {
        self.pending.store(NOTHING, Ordering::Release);
    }

    /// Does what is pending.
    #[cold]
    pub(crate) fn run(&self) {
        let pending = self.pending.swap(NOTHING, Ordering::AcqRel);
        let Some(dumper) = self.dumper.get() else {
            return;
        };
        match pending {
            NOTHING => {}
            LOOK => dumper.look_due(),
            reason => dumper.dump_due(Reason::from_number(reason - 1)),
        }
    }
}

fn now() -> i64 {
    sys::nanoseconds(libc::CLOCK_MONOTONIC_COARSE) / 1_000_000
}

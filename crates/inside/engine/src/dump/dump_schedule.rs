//! The schedule of dumps before the program's end. A dump that becomes due during an event is made
//! just after the event.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use heapprof_platform::lock::{ForkLock, LockedValue, rank};
use heapprof_platform::sys;

use crate::dump::growth_reports::LineGrowthSchedule;
use crate::dump::live::LiveRequests;
use crate::options::DumpTriggers;
use crate::process::EngineProcess;
use crate::reason::DumpReason;
use crate::tables::counters::HeapCounters;
use crate::tables::sampler;

/// The conditions that make a dump due, and the pending dump or scan.
pub(crate) struct DumpSchedule {
    /// Number of bytes that a thread may allocate or free before it reports them. It is small if a
    /// few bytes make a dump due.
    max_unreported: AtomicU64,
    /// The largest value that `max_unreported` may have.
    coarsest: AtomicU64,
    triggers: LockedValue<{ rank::TRIGGERS }, DumpTriggers>,
    /// The pending work: the number of a dump's reason + 1, `SCAN_PENDING`, or [`NOTHING_PENDING`].
    pub(crate) pending: AtomicU8,
    dumper: OnceLock<&'static dyn DueDumper>,
    allocated: AtomicU64,
    freed: AtomicU64,
    allocated_limit: AtomicU64,
    freed_limit: AtomicU64,
    /// The end of the current interval between dumps, in milliseconds of the monotonic clock; the
    /// greatest number if allocations need not check the clock.
    deadline: AtomicI64,
    last_peak: AtomicI64,
    pub(crate) following: LineGrowthSchedule,
    pub(crate) live: LiveRequests,
}

/// Makes the dumps and scans that are due.
pub(crate) trait DueDumper: Sync {
    /// Makes a dump that is due for this reason.
    fn run_due_dump(&'static self, reason: DumpReason);

    /// Scans the growth of lines and the mapped code, and answers `record --live`.
    fn run_due_scan(&'static self);
}

const MAX_UNREPORTED: u64 = 1 << 20;
/// Largest number of bytes that a thread may leave unreported if `record --live` can request a
/// profile at any time.
const MAX_UNREPORTED_LIVE: u64 = 64 << 10;
/// Number of bytes that a thread may leave unreported while the program allocates little.
const MIN_UNREPORTED: u64 = 4 << 10;
const NOTHING_PENDING: u8 = 0;
/// Value of `pending`: a scan of lines or code is to be made. A dump may replace a pending scan,
/// because a dump scans, too.
const SCAN_PENDING: u8 = u8::MAX;
const TERMINATED_PENDING: u8 = DumpReason::Terminated as u8 + 1;

impl DumpSchedule {
    /// Creates a schedule in which no dump is due or becomes due.
    pub(crate) const fn new() -> Self {
        Self {
            max_unreported: AtomicU64::new(MAX_UNREPORTED),
            coarsest: AtomicU64::new(MAX_UNREPORTED),
            triggers: LockedValue::new(DumpTriggers {
                interval: None,
                growth: None,
                peak: false,
                peak_growth: None,
                allocated: None,
                freed: None,
                line_growth: None,
                live: false,
            }),
            pending: AtomicU8::new(NOTHING_PENDING),
            dumper: OnceLock::new(),
            allocated: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            allocated_limit: AtomicU64::new(u64::MAX),
            freed_limit: AtomicU64::new(u64::MAX),
            deadline: AtomicI64::new(i64::MAX),
            last_peak: AtomicI64::new(0),
            following: LineGrowthSchedule::new(),
            live: LiveRequests::new(),
        }
    }

    /// Returns the locks that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 2] {
        let Self {
            triggers,
            max_unreported: _,
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

    /// Whether a dump or scan must be made after this event.
    #[inline(always)]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != NOTHING_PENDING
    }

    /// Returns how many bytes a thread may have allocated or freed without reporting them.
    #[inline(always)]
    pub(crate) fn max_unreported(&self) -> u64 {
        self.max_unreported.load(Ordering::Relaxed)
    }

    /// Makes threads report their allocated and freed bytes half as often if `is_slower` is true,
    /// otherwise as often as possible.
    pub(crate) fn change_pace(&self, is_slower: bool) {
        let coarsest = self.coarsest.load(Ordering::Relaxed);
        let most = match is_slower {
            true => self.max_unreported().saturating_mul(2),
            false => MIN_UNREPORTED,
        };
        self.max_unreported
            .store(most.min(coarsest), Ordering::Relaxed);
    }

    /// Starts the schedule: from now on, `dumper` makes the dumps that become due by these
    /// triggers.
    pub(crate) fn arm(
        &self,
        process: &EngineProcess,
        heap: &HeapCounters,
        triggers: DumpTriggers,
        dumper: &'static dyn DueDumper,
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
            true => MAX_UNREPORTED_LIVE,
            false => MAX_UNREPORTED,
        };
        let most = most.clamp(1, largest);
        self.coarsest.store(most, Ordering::Relaxed);
        self.max_unreported
            .store(most.min(MIN_UNREPORTED), Ordering::Relaxed);
        self.last_peak.store(0, Ordering::Relaxed);
        self.deadline.store(i64::MAX, Ordering::Relaxed);
        self.rearm(process, heap);
    }

    /// Sets the limits at which the next dumps are due, after a dump.
    pub(crate) fn rearm(&self, process: &EngineProcess, heap: &HeapCounters) {
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

    /// Makes allocations check the clock, because the engine can't have a thread for this.
    pub(crate) fn count_time_inline(&self, triggers: &DumpTriggers) {
        self.live.check_inline(triggers.live);
        if let Some(interval) = triggers.interval {
            let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
            // The greatest number means that allocations do not check the clock.
            let deadline = now().saturating_add(interval).min(i64::MAX - 1);
            self.deadline.store(deadline, Ordering::Relaxed);
        }
    }

    /// Undoes [`count_time_inline`](Self::count_time_inline): allocations do not check the clock
    /// any more.
    pub(crate) fn stop_counting(&self) {
        self.deadline.store(i64::MAX, Ordering::Relaxed);
        self.live.check_inline(false);
    }

    /// Requests a dump, which the next thread that leaves the engine makes.
    pub(crate) fn request_dump(&self, reason: DumpReason) {
        // A request for a dump at the program's end is never replaced. An automatic dump does not
        // replace a dump that a signal asked for.
        let stays = |pending| {
            pending == TERMINATED_PENDING
                || pending == DumpReason::Signal as u8 + 1 && reason.is_automatic()
        };
        let asked = |pending| (!stays(pending)).then_some(reason as u8 + 1);
        let _ = self
            .pending
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, asked);
    }

    /// Requests a scan of lines and code, unless other work is pending. Returns whether the request
    /// was accepted.
    pub(crate) fn request_scan(&self) -> bool {
        self.pending
            .compare_exchange(
                NOTHING_PENDING,
                SCAN_PENDING,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Returns how many bytes were allocated, as far as threads have reported them.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Records a scan that began at `began`, in nanoseconds.
    pub(crate) fn note_scan(&self, began: i64) {
        let allocated = self.allocated.load(Ordering::Relaxed);
        self.following.note_scan(began, allocated);
    }

    /// Whether lines may have grown since the last scan, although no event has made a scan due.
    /// This happens if the program waits or allocates little.
    pub(crate) fn has_news_of_lines(&self) -> bool {
        let allocated = self.allocated.load(Ordering::Relaxed);
        self.following.has_news(allocated)
    }

    /// Requests a dump because the heap passed the alarm's limit.
    #[cold]
    pub(crate) fn handle_alarm(&self, process: &EngineProcess, heap: &HeapCounters) {
        // There is one dump per crossing, not one for each thread that sees it.
        heap.set_alarm(i64::MAX);
        // Signals are blocked because a handler that ends the process dumps, and its dump takes
        // this lock, too.
        let mask = process.block_signals();
        let triggers = self.triggers.with(process, |t| *t);
        sys::restore_signals(mask);
        self.request_dump(if triggers.growth.is_some() {
            DumpReason::Growth
        } else {
            DumpReason::Peak
        });
    }

    /// Adds the bytes that a thread allocated and freed to the totals, and requests the dump or
    /// scan that becomes due.
    #[cold]
    pub(crate) fn report(&self, unreported: &mut [u64; 2]) {
        let [allocated, freed] = std::mem::take(unreported);
        for (bytes, so_far, limit, reason) in [
            (
                allocated,
                &self.allocated,
                &self.allocated_limit,
                DumpReason::Allocated,
            ),
            (freed, &self.freed, &self.freed_limit, DumpReason::Freed),
        ] {
            let now = so_far.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if now >= limit.load(Ordering::Relaxed) {
                limit.store(u64::MAX, Ordering::Relaxed);
                self.request_dump(reason);
            }
        }
        let deadline = self.deadline.load(Ordering::Relaxed);
        if deadline != i64::MAX && now() >= deadline {
            self.request_dump(DumpReason::Interval);
        }
        let allocated = self.allocated.load(Ordering::Relaxed);
        if self.following.is_due(allocated) || self.live.is_asked_inline() {
            self.request_scan();
        }
    }

    /// Forgets the pending request in a forked child, because it belongs to the parent.
    pub(crate) fn reset_in_child(&self) {
        self.pending.store(NOTHING_PENDING, Ordering::Release);
    }

    /// Makes the pending dump or scan.
    #[cold]
    pub(crate) fn run(&self) {
        let pending = self.pending.swap(NOTHING_PENDING, Ordering::AcqRel);
        let Some(dumper) = self.dumper.get() else {
            return;
        };
        match pending {
            NOTHING_PENDING => {}
            SCAN_PENDING => dumper.run_due_scan(),
            reason => dumper.run_due_dump(DumpReason::from_number(reason - 1)),
        }
    }
}

fn now() -> i64 {
    sys::nanoseconds(libc::CLOCK_MONOTONIC_COARSE) / 1_000_000
}

//! Counters: sums for each thread and stack, and for the whole process. The exact peak costs
//! constant time per event.
//!
//! The algorithm for the peak is that of memray's HighWaterMarkAggregator (snapshot.cpp). A counter
//! is copied aside only at its first change after the heap has begun to fall from a new maximum.

use std::sync::atomic::{self, Ordering};

use heapprof_platform::atomic::{AtomicBool, AtomicI64, AtomicU64};
use heapprof_platform::lock::{SpinLock, rank};

use crate::drop_counters::count;
use crate::process::EngineProcess;

/// Counters of one stack in one thread. That thread writes them, and a thread that dumps reads
/// them.
#[repr(C, align(64))]
pub(crate) struct StackCounters {
    pub(crate) allocated: AtomicSum,
    pub(crate) freed: AtomicSum,
    /// The memory in use at the process's last peak. It is valid if the heap has fallen from that
    /// peak, and `fall` equals the process's number of falls. If `fall` is smaller than that
    /// number, the counters have not changed since the peak.
    pub(crate) at_peak: AtomicSum,
    pub(crate) fall: atomic::AtomicU64,
}

/// The mode in which a thread has the ledger open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// The thread is the only one that has the ledger open.
    Alone,
    /// Other threads may have the ledger open, too. The heap is well below its peak, so memory in
    /// use is counted in budgets.
    Relaxed,
    /// Other threads may have the ledger open, too. The heap is near its peak, so memory in use is
    /// counted event by event.
    Strict,
    /// The thread does not have the ledger open any more. Another recording began while the ledger
    /// was closed in the middle of the event, so the event belongs to neither recording.
    Overtaken,
}

/// The outcome of counting an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountOutcome {
    /// The allocation is counted.
    Quietly,
    /// The allocation is counted, and the size in use is above the alarm's limit.
    Alarm,
    /// The allocation is not counted yet, because all threads must count event by event first.
    NotYet,
    /// The allocation is dropped, because the thread that is counting is interrupted.
    Suspended,
    /// The allocation is not counted, because its recording is over.
    Overtaken,
}

/// A sum of objects and bytes.
#[derive(Default)]
#[repr(C)]
pub(crate) struct AtomicSum {
    pub(crate) objects: atomic::AtomicU64,
    pub(crate) bytes: atomic::AtomicU64,
}

/// The sum of the temporary allocations of one stack in one thread.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct TemporarySum(pub(crate) AtomicSum);

/// Numbers of objects and bytes that an event counts, in the recording's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventWeight {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// Adds to a counter without a locked instruction, because only its owner writes it.
#[inline(always)]
pub(crate) fn add(to: &atomic::AtomicU64, n: u64) {
    let sum = to.load(Ordering::Relaxed).wrapping_add(n);
    to.store(sum, Ordering::Relaxed);
}

impl AtomicSum {
    #[inline]
    pub(crate) fn add(&self, weight: EventWeight) {
        add(&self.objects, weight.objects);
        add(&self.bytes, weight.bytes);
    }

    pub(crate) fn get(&self) -> [i64; 2] {
        [
            self.objects.load(Ordering::Relaxed) as i64,
            self.bytes.load(Ordering::Relaxed) as i64,
        ]
    }

    pub(crate) fn set(&self, [objects, bytes]: [i64; 2]) {
        self.objects.store(objects as u64, Ordering::Relaxed);
        self.bytes.store(bytes as u64, Ordering::Relaxed);
    }
}

impl CountOutcome {
    /// Whether the allocation is in the ledger.
    #[inline(always)]
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Self::Quietly | Self::Alarm)
    }
}

impl StackCounters {
    pub(crate) fn is_untouched(&self) -> bool {
        self.allocated.get() == [0, 0] && self.freed.get() == [0, 0]
    }

    pub(crate) fn in_use(&self) -> [i64; 2] {
        let (allocated, freed) = (self.allocated.get(), self.freed.get());
        [
            allocated[0].wrapping_sub(freed[0]),
            allocated[1].wrapping_sub(freed[1]),
        ]
    }

    /// Restarts the sums. They begin with the memory in use if `keeps_in_use` is true, otherwise
    /// with zero.
    pub(crate) fn restart(&self, keeps_in_use: bool) {
        self.restart_from(if keeps_in_use { self.in_use() } else { [0, 0] });
    }

    /// Restarts the sums with `in_use`, which counts as allocated and as in use.
    pub(crate) fn restart_from(&self, in_use: [i64; 2]) {
        self.allocated.set(in_use);
        self.freed.set([0, 0]);
        self.at_peak.set([0, 0]);
        self.fall.store(0, Ordering::Relaxed);
    }

    /// Copies the memory in use aside before its first change after a peak. `fall` is the process's
    /// number of falls from a peak.
    #[inline(always)]
    fn settle(&self, fall: u64) {
        if self.fall.load(Ordering::Relaxed) != fall {
            self.at_peak.set(self.in_use());
            self.fall.store(fall, Ordering::Relaxed);
        }
    }

    /// Returns the memory in use at the peak of `heap`: objects and bytes.
    pub(crate) fn peak(&self, heap: &HeapCounters) -> [i64; 2] {
        let phase = heap.phase.load(Ordering::Relaxed);
        if phase & 1 == 1 || self.fall.load(Ordering::Relaxed) != phase >> 1 {
            self.in_use()
        } else {
            self.at_peak.get()
        }
    }
}

/// The memory in use of the whole process, and its peak, in one cache line.
#[repr(C, align(64))]
pub(crate) struct HeapCounters {
    pub(crate) in_use: AtomicI64,
    pub(crate) peak: AtomicI64,
    /// The heap's phase. It is odd while the heap rises to new maxima. Half of the number, rounded
    /// down, is the number of falls from a maximum.
    pub(crate) phase: AtomicU64,
    /// The size in use above which the alarm rings.
    alarm: AtomicI64,
    /// Whether events are counted one by one, so that no thread takes a budget.
    strict: AtomicBool,
    /// Whether `in_use` is exact, because no thread has a budget. While it is not exact, there is
    /// no new peak.
    is_exact: AtomicBool,
    /// Locked by each event while events are counted one by one, because a peak consists of the
    /// values of all stacks at one moment.
    counting: SpinLock<{ rank::HEAP }>,
}

/// A thread's budget: bytes that the thread took in advance, and has not used yet.
pub(crate) struct ThreadBudget(atomic::AtomicI64);

impl ThreadBudget {
    #[inline(always)]
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&self, bytes: i64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Takes all bytes out of the budget. The budget's thread has closed the ledger.
    pub(crate) fn take(&self) -> i64 {
        let bytes = self.get();
        self.set(0);
        bytes
    }
}

/// Number of bytes that a thread takes in advance.
const BUDGET_BYTES: i64 = 16 << 10;

impl HeapCounters {
    pub(crate) const fn new() -> Self {
        Self {
            in_use: AtomicI64::new(0),
            peak: AtomicI64::new(0),
            phase: AtomicU64::new(0),
            alarm: AtomicI64::new(i64::MAX),
            strict: AtomicBool::new(true),
            is_exact: AtomicBool::new(true),
            counting: SpinLock::new(),
        }
    }

    /// Returns the bytes in use, in the recording's unit. Budgets that threads have taken count as
    /// in use.
    pub(crate) fn in_use(&self) -> i64 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns the largest number of bytes that were in use, in the recording's unit.
    pub(crate) fn peak_bytes(&self) -> i64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Makes the alarm ring when more than `above` bytes are in use. The greatest number turns the
    /// alarm off.
    pub(crate) fn set_alarm(&self, above: i64) {
        self.alarm.store(above, Ordering::Relaxed);
    }

    /// Makes threads count event by event, without new budgets. Returns whether no thread has a
    /// budget.
    pub(crate) fn be_strict(&self) -> bool {
        self.strict.store(true, Ordering::SeqCst);
        self.is_exact.load(Ordering::SeqCst)
    }

    /// Records that no thread has a budget any more.
    pub(crate) fn note_budgets_returned(&self) {
        self.is_exact.store(true, Ordering::SeqCst);
    }

    /// Returns the lock that fork must take.
    pub(crate) fn lock(&self) -> &SpinLock<{ rank::HEAP }> {
        &self.counting
    }

    /// Returns the access mode of a thread that has the ledger open together with others.
    #[inline(always)]
    pub(crate) fn shared_access(&self) -> AccessMode {
        if self.strict.load(Ordering::Relaxed) {
            AccessMode::Strict
        } else {
            AccessMode::Relaxed
        }
    }

    /// Lets threads count in budgets, when the heap is far enough below its peak.
    pub(crate) fn relax_if_low(&self, process: &EngineProcess) {
        let in_use = self.in_use.load(Ordering::Relaxed);
        let rising = self.phase.load(Ordering::Relaxed) & 1 == 1;
        let limit = self
            .peak
            .load(Ordering::Relaxed)
            .min(self.alarm.load(Ordering::Relaxed));
        if !rising && in_use + 4 * BUDGET_BYTES < limit && self.counting.acquire_in_time(process) {
            self.is_exact.store(false, Ordering::SeqCst);
            self.strict.store(false, Ordering::SeqCst);
            self.counting.release();
        }
    }

    /// Takes back the `bytes` that were left in a thread's budget.
    pub(crate) fn give_back(&self, bytes: i64) {
        if bytes != 0 {
            self.in_use.fetch_sub(bytes, Ordering::AcqRel);
        }
    }

    /// Takes `bytes` from the thread's budget. If the budget is too small, gives the thread a new
    /// one. Returns false if this might be a new peak.
    #[inline]
    fn spend(&self, kept: &ThreadBudget, bytes: i64) -> bool {
        let budget = kept.get();
        if budget >= bytes {
            kept.set(budget - bytes);
            return true;
        }
        let wanted = bytes - budget + BUDGET_BYTES;
        let now = self.in_use.fetch_add(wanted, Ordering::AcqRel) + wanted;
        let limit = self
            .peak
            .load(Ordering::Relaxed)
            .min(self.alarm.load(Ordering::Relaxed));
        if now <= limit {
            kept.set(BUDGET_BYTES);
            return true;
        }
        self.in_use.fetch_sub(wanted, Ordering::AcqRel);
        false
    }

    /// Counts an allocation. If it may be a new peak while other threads have budgets, it is not
    /// counted yet: see [`CountOutcome::NotYet`].
    #[inline(always)]
    pub(crate) fn count_allocation(
        &self,
        process: &EngineProcess,
        kept: &ThreadBudget,
        cell: &StackCounters,
        weight: EventWeight,
        access: AccessMode,
    ) -> CountOutcome {
        let bytes = weight.bytes as i64;
        match access {
            AccessMode::Alone => {
                let now = self.in_use.load(Ordering::Relaxed) + bytes;
                self.in_use.store(now, Ordering::Relaxed);
                self.rise(now, cell, weight)
            }
            AccessMode::Relaxed => {
                if !self.spend(kept, bytes) {
                    return CountOutcome::NotYet;
                }
                cell.settle(self.phase.load(Ordering::Acquire) >> 1);
                cell.allocated.add(weight);
                CountOutcome::Quietly
            }
            AccessMode::Strict => self.count_allocation_strictly(process, cell, weight),
            AccessMode::Overtaken => CountOutcome::Overtaken,
        }
    }

    #[inline(never)]
    fn count_allocation_strictly(
        &self,
        process: &EngineProcess,
        cell: &StackCounters,
        weight: EventWeight,
    ) -> CountOutcome {
        if !self.counting.acquire_in_time(process) {
            count(&process.dropped.interrupted);
            return CountOutcome::Suspended;
        }
        // Budgets that are out would make a false peak.
        let counted = if self.is_exact.load(Ordering::Acquire) {
            // A thread that is interrupted may still give a budget back.
            let bytes = weight.bytes as i64;
            let now = self.in_use.fetch_add(bytes, Ordering::AcqRel) + bytes;
            self.rise(now, cell, weight)
        } else {
            CountOutcome::NotYet
        };
        self.counting.release();
        counted
    }

    /// Counts an allocation after which `now` bytes are in use.
    #[inline(always)]
    fn rise(&self, now: i64, cell: &StackCounters, weight: EventWeight) -> CountOutcome {
        let mut phase = self.phase.load(Ordering::Relaxed);
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.store(now, Ordering::Relaxed);
            phase |= 1;
            self.phase.store(phase, Ordering::Relaxed);
        }
        cell.settle(phase >> 1);
        cell.allocated.add(weight);
        if now > self.alarm.load(Ordering::Relaxed) {
            CountOutcome::Alarm
        } else {
            CountOutcome::Quietly
        }
    }

    /// Counts a free.
    #[inline(always)]
    pub(crate) fn count_free(
        &self,
        process: &EngineProcess,
        kept: &ThreadBudget,
        cell: &StackCounters,
        weight: EventWeight,
        access: AccessMode,
    ) {
        let bytes = weight.bytes as i64;
        match access {
            AccessMode::Alone => {
                let now = self.in_use.load(Ordering::Relaxed) - bytes;
                self.in_use.store(now, Ordering::Relaxed);
                self.fall(cell, weight);
            }
            // There is no new peak while there are budgets.
            AccessMode::Relaxed => {
                let budget = kept.get() + bytes;
                if budget > 2 * BUDGET_BYTES {
                    self.in_use
                        .fetch_sub(budget - BUDGET_BYTES, Ordering::AcqRel);
                    kept.set(BUDGET_BYTES);
                } else {
                    kept.set(budget);
                }
                cell.settle(self.phase.load(Ordering::Acquire) >> 1);
                cell.freed.add(weight);
            }
            AccessMode::Strict => self.count_free_strictly(process, cell, weight),
            // An event that was overtaken counts nothing any more.
            AccessMode::Overtaken => {}
        }
    }

    #[inline(never)]
    fn count_free_strictly(
        &self,
        process: &EngineProcess,
        cell: &StackCounters,
        weight: EventWeight,
    ) {
        match self.counting.acquire_at_once() {
            true => self.count_free_locked(cell, weight),
            // The slow way is a single call, so that the quick way keeps no register for it.
            false => self.count_free_late(process, cell, weight),
        }
    }

    #[cold]
    #[inline(never)]
    fn count_free_late(&self, process: &EngineProcess, cell: &StackCounters, weight: EventWeight) {
        match self.counting.acquire_in_time(process) {
            true => self.count_free_locked(cell, weight),
            false => count(&process.dropped.interrupted),
        }
    }

    /// Counts a free, and releases the lock.
    #[inline(always)]
    fn count_free_locked(&self, cell: &StackCounters, weight: EventWeight) {
        // Other threads may still give budgets back.
        self.in_use.fetch_sub(weight.bytes as i64, Ordering::AcqRel);
        self.fall(cell, weight);
        self.counting.release();
    }

    #[inline(always)]
    fn fall(&self, cell: &StackCounters, weight: EventWeight) {
        let mut phase = self.phase.load(Ordering::Relaxed);
        if phase & 1 == 1 {
            phase += 1;
            self.phase.store(phase, Ordering::Relaxed);
        }
        cell.settle(phase >> 1);
        cell.freed.add(weight);
    }

    /// Restarts the peak from the memory in use now. The stacks' counters were restarted before.
    pub(crate) fn restart(&self, in_use: i64) {
        self.in_use.store(in_use, Ordering::Relaxed);
        self.peak.store(in_use, Ordering::Relaxed);
        self.phase.store(1, Ordering::Release);
    }
}

/// Maximum number of events between the allocation and the free of a temporary block.
pub(crate) const TEMPORARY_EVENTS: usize = 8;

/// The last few events of a thread, by which temporary allocations are recognized.
#[derive(Default)]
pub(crate) struct RecentAllocations {
    address: [usize; TEMPORARY_EVENTS],
    /// For each address, the lower 32 bits of its sixteenth part. All of them are compared at once.
    brief: [u32; TEMPORARY_EVENTS],
    next: usize,
}

impl RecentAllocations {
    /// Records an event. `address` is the address of an allocated block, or 0 for any other event.
    #[inline(always)]
    pub(crate) fn note(&mut self, address: usize) {
        self.address[self.next % TEMPORARY_EVENTS] = address;
        self.brief[self.next % TEMPORARY_EVENTS] = (address >> 4) as u32;
        self.next = self.next.wrapping_add(1);
    }

    /// Records a free. Returns whether the freed block was among the last few events.
    #[inline(always)]
    pub(crate) fn note_free(&mut self, address: usize) -> bool {
        let brief = (address >> 4) as u32;
        let found = self
            .brief
            .iter()
            .fold(false, |found, &b| found | (b == brief));
        let found = found && self.address.contains(&address);
        self.note(0);
        found
    }
}

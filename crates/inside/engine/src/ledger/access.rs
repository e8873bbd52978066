//! Opens the ledger for a thread, alone or together with other threads.
//!
//! The ledger consists of the counters and the table of blocks in use. A thread opens it for an
//! event (an allocation or a free), and closes it after the event.
//!
//! The only thread of a process needs no locked instruction. glibc has a flag for such a process.
//! The only thread itself clears the flag, before it starts a second thread.
//!
//! If threads shared one number for the size in use, every event on every core would write to one
//! cache line. So threads take bytes in advance, a budget, as long as the size with all budgets
//! stays below the known peak. Then no event can be a new peak. If an event might be a new peak,
//! its thread makes the kernel run a barrier on every core (membarrier), waits until no thread is
//! in the middle of an event, and takes all budgets back. Then the size is exact again.
//!
//! Parts of the live table have owners ([`PartOwner`]). An owner checks with a plain load that it
//! still owns a part. A thread that takes a part from its owner also makes the kernel run the
//! barrier, and waits until the owner is not in the middle of an event.

use std::sync::atomic::{Ordering, compiler_fence};

use heapprof_platform::atomic::{AtomicBool, AtomicPtr};
use heapprof_platform::lock::{ForkLock, FutexLock, LockGuard, WaitPolicy, rank};
use heapprof_platform::sys;
use heapprof_platform::weak::single_threaded;

use crate::process::EngineProcess;
use crate::tables::counters::{AccessMode, CountOutcome, EventWeight, HeapCounters, StackCounters};
use crate::thread::state::{ThreadState, ThreadStates};

/// Number of a thread's events between two checks of the heap's size. The check shows whether the
/// heap is far enough below its peak for budgets.
const BUDGET_CHECK_INTERVAL: u32 = 1024;

/// The shared state by which threads open the ledger: the size in use, and the means to take
/// budgets back.
pub(crate) struct LedgerAccess {
    pub(crate) heap: HeapCounters,
    /// Locked while budgets are taken back, and while a resource is taken from its owner.
    changing: FutexLock<{ rank::OWNERS }>,
    has_barrier: AtomicBool,
}

/// The guard of the lock under which budgets and owners change.
pub(crate) type ChangeGuard<'a> = LockGuard<'a, { rank::OWNERS }>;

/// The ledger, open for one event of a thread. It closes when this is dropped.
///
/// While the ledger is open, the thread calls no function of the program, and waits for short locks
/// only. The ledger may be closed in the middle of the event, and opened again in another access
/// mode. Then [`OpenLedger::is_overtaken`] says whether another recording has begun.
pub(crate) struct OpenLedger<'a> {
    process: &'a EngineProcess,
    holder: LedgerHolder<'a>,
    access: AccessMode,
}

/// The thread that has the ledger open. A cold function gets this value and the access mode by
/// value, and returns the access mode. So the rest of an event needs neither of them in memory.
#[derive(Clone, Copy)]
pub(crate) struct LedgerHolder<'a> {
    shared: &'a LedgerAccess,
    state: &'a ThreadState,
}

impl LedgerAccess {
    /// Creates the state before any event: nothing is in use, and no thread has the ledger open.
    pub(crate) const fn new() -> Self {
        Self {
            heap: HeapCounters::new(),
            changing: FutexLock::new(),
            has_barrier: AtomicBool::new(false),
        }
    }

    /// Determines whether the kernel can run barriers on all cores.
    pub(crate) fn prepare(&self) {
        let has_barrier = sys::register_barrier();
        self.has_barrier.store(has_barrier, Ordering::Release);
    }

    /// Returns the lock that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 1] {
        let Self {
            heap: _,
            changing,
            has_barrier: _,
        } = self;
        [changing]
    }

    /// Waits until no other thread changes budgets and owners, and locks them.
    pub(crate) fn lock_changes(&self, process: &EngineProcess) -> ChangeGuard<'_> {
        self.changing.lock(process)
    }

    /// Opens the ledger for one event of the thread's recording. Returns `None` if another
    /// recording has begun meanwhile.
    #[inline(always)]
    pub(crate) fn open<'a>(
        &'a self,
        process: &'a EngineProcess,
        state: &'a ThreadState,
    ) -> Option<OpenLedger<'a>> {
        debug_assert!(std::ptr::eq(process, state.process()));
        let access = self.access(process, state)?;
        let holder = LedgerHolder {
            shared: self,
            state,
        };
        Some(OpenLedger {
            process,
            holder,
            access,
        })
    }

    /// Opens the ledger, and returns the access mode; `None` if another recording has begun
    /// meanwhile.
    #[inline(always)]
    fn access(&self, process: &EngineProcess, state: &ThreadState) -> Option<AccessMode> {
        loop {
            state.inside.store(true, Ordering::Relaxed);
            // The kernel's barrier makes this order hold on the processor too.
            compiler_fence(Ordering::SeqCst);
            // No recording begins from here to `close`: it would wait for this thread.
            if state.epoch.get() == process.recorded.gate() {
                break;
            }
            close(state);
            if !wait_for_gate(process, state) {
                return None;
            }
        }
        if single_threaded() {
            return Some(AccessMode::Alone);
        }
        let events = state.shared_events.get() + 1;
        state.shared_events.set(events);
        if events >= BUDGET_CHECK_INTERVAL {
            state.shared_events.set(0);
            // No budgets are given out while another thread relies on the exact size.
            if self.has_barrier.load(Ordering::Relaxed)
                && let Some(_changing) = self.changing.try_lock()
            {
                self.heap.relax_if_low(process);
            }
        }
        Some(self.heap.shared_access())
    }

    /// Runs `work` while no thread has the ledger open. This does not wait for threads that are
    /// interrupted while they have it open.
    pub(crate) fn run_at_rest(
        &self,
        process: &EngineProcess,
        threads: &ThreadStates,
        work: impl FnOnce(),
    ) {
        if single_threaded() {
            return work();
        }
        process.recorded.pause();
        wait_for_all(threads);
        work();
        process.recorded.resume();
    }

    /// Takes all budgets back: for fork, for a new recording, and near the peak.
    pub(crate) fn collect_budgets(&self, threads: &ThreadStates, _changing: &ChangeGuard<'_>) {
        self.collect_budgets_for_fork(threads);
    }

    /// Does the work of [`collect_budgets`](Self::collect_budgets) for a caller without a guard:
    /// fork, which has taken all locks.
    pub(crate) fn collect_budgets_for_fork(&self, threads: &ThreadStates) {
        if self.heap.be_strict() {
            // No budget was given out since all were taken back.
            return;
        }
        barrier();
        // A thread that opens the ledger from here on takes no budget.
        for state in threads.all() {
            // A thread that is interrupted in its event keeps its budget.
            if wait_for(state) {
                self.heap.give_back(state.budget.take());
            }
        }
        self.heap.note_budgets_returned();
    }
}

/// Waits while the ledger must stay closed. Returns false if another recording has begun meanwhile.
#[cold]
fn wait_for_gate(process: &EngineProcess, state: &ThreadState) -> bool {
    let recorded = &process.recorded;
    let since = sys::nanoseconds(libc::CLOCK_MONOTONIC);
    while state.epoch.get() == recorded.epoch() {
        if !recorded.is_paused() {
            return true;
        }
        let waited = sys::nanoseconds(libc::CLOCK_MONOTONIC) - since;
        if waited > process.wait_timeout() || process.is_abandoned() {
            // The thread that paused the ledger is interrupted, or in another process.
            recorded.resume();
        }
        sys::nap();
    }
    false
}

/// Marks that the thread does not have the ledger open.
#[inline(always)]
fn close(state: &ThreadState) {
    compiler_fence(Ordering::SeqCst);
    state.inside.store(false, Ordering::Release);
}

impl Drop for OpenLedger<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        close(self.holder.state);
    }
}

impl<'a> OpenLedger<'a> {
    /// Whether another recording began while the ledger was closed in the middle of the event. Such
    /// an event belongs to neither recording.
    #[inline(always)]
    pub(crate) fn is_overtaken(&self) -> bool {
        self.access == AccessMode::Overtaken
    }

    /// Returns the process whose ledger this is.
    #[inline(always)]
    pub(crate) fn process(&self) -> &'a EngineProcess {
        self.process
    }

    /// Whether this thread is the `owner` of a resource. If so, it may use the resource as long as
    /// it has the ledger open.
    #[inline(always)]
    pub(crate) fn owns(&self, owner: &PartOwner) -> bool {
        owner.is_owned_by(self.holder)
    }

    /// Runs `work`, which may close the ledger and open it in another mode. The arguments of `work`
    /// are the thread that has the ledger open, and the access mode. Its result has the new access
    /// mode.
    #[inline(always)]
    pub(crate) fn reopen_for<R>(
        &mut self,
        work: impl FnOnce(LedgerHolder<'a>, AccessMode) -> (R, AccessMode),
    ) -> R {
        let (result, access) = work(self.holder, self.access);
        self.access = access;
        result
    }

    /// Counts an allocation.
    #[inline(always)]
    pub(crate) fn count_allocation(
        &mut self,
        cell: &StackCounters,
        weight: EventWeight,
    ) -> CountOutcome {
        let (process, LedgerHolder { shared, state }) = (self.process, self.holder);
        loop {
            match shared
                .heap
                .count_allocation(process, &state.budget, cell, weight, self.access)
            {
                CountOutcome::NotYet => self.access = self.holder.be_strict(),
                counted => return counted,
            }
            if self.is_overtaken() {
                return CountOutcome::Overtaken;
            }
        }
    }

    /// Counts a free.
    #[inline(always)]
    pub(crate) fn count_free(&self, cell: &StackCounters, weight: EventWeight) {
        let (process, LedgerHolder { shared, state }) = (self.process, self.holder);
        shared
            .heap
            .count_free(process, &state.budget, cell, weight, self.access);
    }
}

impl<'a> LedgerHolder<'a> {
    /// Returns the process whose ledger this is.
    pub(crate) fn process(self) -> &'static EngineProcess {
        self.state.process()
    }

    /// Runs `work` with the ledger closed, and opens the ledger again. Returns the result of `work`
    /// and the new access mode.
    fn run_while_closed<R>(self, work: impl FnOnce() -> R) -> (R, AccessMode) {
        close(self.state);
        let result = work();
        let access = self.shared.access(self.process(), self.state);
        (result, access.unwrap_or(AccessMode::Overtaken))
    }

    /// Takes the lock under which budgets and owners change. Returns `None` if another thread keeps
    /// the lock for too long, because it is interrupted.
    fn lock_changes_in_time(self) -> Option<ChangeGuard<'a>> {
        self.shared.changing.lock_in_time(self.process())
    }

    /// Makes all threads count the memory in use event by event, so that the size in use is exact.
    #[cold]
    fn be_strict(self) -> AccessMode {
        let strictly = || {
            // If the thread that has the lock is interrupted, it is about to do the same.
            if let Some(changing) = self.lock_changes_in_time() {
                self.shared.collect_budgets(self.state.threads(), &changing);
            } else {
                self.shared.heap.be_strict();
                self.shared.heap.note_budgets_returned();
            }
        };
        self.run_while_closed(strictly).1
    }
}

/// Runs a barrier on all cores. Afterwards, the earlier stores of this thread are visible to all
/// other threads, and their earlier stores are visible to this thread.
fn barrier() {
    if !sys::barrier() {
        // A filter of system calls denies the barrier now. Stores reach the other cores much sooner
        // than these naps end.
        (0..20).for_each(|_| sys::nap());
    }
}

/// The owner of a resource that threads would otherwise lock: no thread, one thread (by its state),
/// or all threads.
pub(crate) struct PartOwner(AtomicPtr<ThreadState>);

const NO_OWNER: *mut ThreadState = std::ptr::null_mut();
const SHARED_OWNER: *mut ThreadState = std::ptr::without_provenance_mut(1);
/// Flag bit in [`PartOwner`], which is set while another thread takes the resource from its owner.
const MOVING_FLAG: usize = 2;

/// The outcome of a thread's claim to own a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    /// The thread owns the resource.
    Own,
    /// The owner was changing, so the caller must check again.
    Changed,
    /// The owner keeps the resource. A signal handler has interrupted the owner's event and waits,
    /// perhaps for this thread.
    Refused,
    /// Another recording has begun, so the event's ledger no longer exists.
    Overtaken,
}

impl PartOwner {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(NO_OWNER))
    }

    /// Whether a thread owns the resource. If so, it may use the resource as long as it has the
    /// ledger open.
    #[inline(always)]
    fn is_owned_by(&self, holder: LedgerHolder<'_>) -> bool {
        std::ptr::eq(self.0.load(Ordering::Relaxed), holder.state)
    }

    /// Whether the resource is shared, so that all threads use it under its lock.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.0.load(Ordering::Acquire) == SHARED_OWNER
    }

    /// Makes the thread the resource's owner, if there is no owner. Otherwise the resource becomes
    /// shared.
    #[cold]
    pub(crate) fn claim(
        &self,
        holder: LedgerHolder<'_>,
        mut access: AccessMode,
    ) -> (ClaimOutcome, AccessMode) {
        let now = self.0.load(Ordering::Acquire);
        if now == NO_OWNER {
            // Without barriers the resource could not be taken back.
            let has_barrier = holder.shared.has_barrier.load(Ordering::Relaxed);
            let owner = if has_barrier {
                std::ptr::from_ref(holder.state).cast_mut()
            } else {
                SHARED_OWNER
            };
            return match self.change(NO_OWNER, owner) && has_barrier {
                true => (ClaimOutcome::Own, access),
                false => (ClaimOutcome::Changed, access),
            };
        }
        let mut left = true;
        if now != SHARED_OWNER && !self.is_owned_by(holder) {
            // A thread that takes a resource waits for its owner, so no thread must have to wait
            // for this one.
            (left, access) = holder.run_while_closed(|| {
                let Some(_changing) = holder.lock_changes_in_time() else {
                    return false;
                };
                let Some(owner) = self.begin_to_move() else {
                    return true;
                };
                barrier();
                let left = wait_for(owner);
                self.end_move(left);
                left
            });
        }
        let claim = match (self.is_owned_by(holder), left) {
            _ if access == AccessMode::Overtaken => ClaimOutcome::Overtaken,
            (true, _) => ClaimOutcome::Own,
            (false, true) => ClaimOutcome::Changed,
            (false, false) => ClaimOutcome::Refused,
        };
        (claim, access)
    }

    fn change(&self, from: *mut ThreadState, to: *mut ThreadState) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Begins to take the resource from its owner. Returns the owner, which may still be using the
    /// resource; `None` if no thread owns it. The caller has taken the lock of [`LedgerAccess`], so
    /// no other thread takes the resource meanwhile.
    fn begin_to_move(&self) -> Option<&'static ThreadState> {
        let now = self.0.load(Ordering::Acquire);
        let is_state = now != NO_OWNER && now != SHARED_OWNER && now.addr() & MOVING_FLAG == 0;
        if !is_state || !self.change(now, now.map_addr(|at| at | MOVING_FLAG)) {
            return None;
        }
        // SAFETY: a pointer that is neither constant, and not moving, is a thread's state. No state
        // is freed while a part has it as its owner.
        Some(unsafe { &*now })
    }

    /// Ends a move that [`begin_to_move`](Self::begin_to_move) began. If the owner `left` the
    /// resource, it is shared from then on. Otherwise the owner keeps it.
    fn end_move(&self, left: bool) {
        let now = self.0.load(Ordering::Acquire);
        if now.addr() & MOVING_FLAG != 0 {
            let owner = now.map_addr(|at| at & !MOVING_FLAG);
            self.0
                .store(if left { SHARED_OWNER } else { owner }, Ordering::Release);
        }
    }

    /// Removes the owner. The caller has taken the resource's lock, and no other thread owns the
    /// resource.
    pub(crate) fn disown(&self) {
        self.0.store(NO_OWNER, Ordering::Release);
    }
}

/// Makes resources shared, whichever threads own them. Returns false if an owner keeps its
/// resource. The caller must not have the ledger open.
pub(crate) fn share<'a>(
    threads: &ThreadStates,
    owners: impl Iterator<Item = &'a PartOwner> + Clone,
    _changing: &ChangeGuard<'_>,
) -> bool {
    share_for_fork(threads, owners)
}

/// Does the work of [`share`] for a caller without a guard: fork, which has taken all locks.
pub(crate) fn share_for_fork<'a>(
    threads: &ThreadStates,
    owners: impl Iterator<Item = &'a PartOwner> + Clone,
) -> bool {
    let mut moving = 0;
    for owner in owners.clone() {
        // A resource without an owner may be claimed just now.
        while !owner.is_shared() {
            if owner.begin_to_move().is_some() {
                moving += 1;
                break;
            }
            owner.change(NO_OWNER, SHARED_OWNER);
        }
    }
    let mut left = true;
    if moving != 0 {
        left = wait_for_all(threads);
    }
    owners.for_each(|owner| owner.end_move(left));
    left
}

/// Waits until every thread that has the ledger open has closed it. Returns false if a thread keeps
/// it open.
pub(crate) fn wait_for_all(threads: &ThreadStates) -> bool {
    barrier();
    // This waits for all threads, also after one that keeps it open.
    threads.all().filter(|state| !wait_for(state)).count() == 0
}

/// Waits until a thread does not have the ledger open. Returns false if this takes too long. Then a
/// signal handler must have interrupted the thread.
fn wait_for(state: &ThreadState) -> bool {
    if state.is_own() {
        // This thread is here, not inside: a signal handler jumped out of its event.
        return true;
    }
    let process = state.process();
    let mut tries = 0u32;
    let mut since = 0;
    while state.inside.load(Ordering::Acquire) {
        tries = tries.saturating_add(1);
        match tries {
            // The other thread may be one that this one keeps from running.
            512.. => {
                let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
                if since == 0 {
                    since = now;
                } else if now - since > process.wait_timeout() {
                    process.note_timeout();
                    return false;
                }
                if process.is_abandoned() {
                    return false;
                }
                sys::nap();
            }
            _ if tries.is_multiple_of(64) => sys::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
    true
}

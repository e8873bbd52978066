//! How a thread has the books open: for itself, or with others.
//!
//! The books are the counters and the table of blocks in use. A thread opens them for an event (an
//! allocation or a free), and closes them after it.
//!
//! The only thread of a process needs no locked instruction. glibc says while the thread is alone,
//! and stops saying so in that same thread, before a second one starts.
//!
//! If threads shared one number for the size in use, every event on every core would write to that
//! cache line. So threads take bytes in advance, a budget, as long as the size with all budgets
//! stays below the known peak. No event can then be a new peak. When one might be, the thread that
//! sees it has the kernel run a barrier on every core (membarrier), waits until nobody is in the
//! middle of an event, and takes all budgets back. The size is exact again then.
//!
//! Parts of the live table have owners ([`PartOwner`]). An owner checks with a plain load that a
//! part is still its own. A thread that takes a part from its owner has that barrier run, too, and
//! waits until the owner is not in the middle of an event.

use std::sync::atomic::{Ordering, compiler_fence};

use crate::atomic::{AtomicBool, AtomicPtr};
use crate::platform::lock::{ForkLock, FutexLock, LockGuard, rank};
use crate::platform::process::EngineProcess;
use crate::platform::sys;
use crate::platform::weak::single_threaded;
use crate::tables::counters::{AccessMode, CountOutcome, EventWeight, HeapCounters, StackCounters};
use crate::thread::state::{ThreadState, ThreadStates};

/// Events of a thread between two looks at whether the heap is low enough for budgets.
const BUDGET_CHECK_INTERVAL: u32 = 1024;

/// What threads share to have the books open: the size in use, and how it is taken back.
pub(crate) struct LedgerAccess {
    pub(crate) heap: HeapCounters,
    /// Held while budgets are taken back, and while something is taken from its owner.
    changing: FutexLock<{ rank::OWNERS }>,
    has_barrier: AtomicBool,
}

/// The lock under which budgets and owners change.
pub(crate) type ChangeGuard<'a> = LockGuard<'a, { rank::OWNERS }>;

/// The books, open for one event of a thread. They close when this is dropped.
///
/// Meanwhile the thread calls nothing of the program's, and waits for short locks only. The books
/// may be closed and opened again in the middle, in another way: [`OpenLedger::is_overtaken`] says
/// if they are another recording's by then.
pub(crate) struct OpenLedger<'a> {
    process: &'a EngineProcess,
    holder: LedgerHolder<'a>,
    access: AccessMode,
}

/// Whoever has the books open. What is cold is given this and the access by value, and gives the
/// access back, so that the rest of an event needs nothing of them in memory.
#[derive(Clone, Copy)]
pub(crate) struct LedgerHolder<'a> {
    shared: &'a LedgerAccess,
    state: &'a ThreadState,
}

impl LedgerAccess {
    /// Nothing is in use, and no thread has the books open.
    pub(crate) const fn new() -> Self {
        Self {
            heap: HeapCounters::new(),
            changing: FutexLock::new(),
            has_barrier: AtomicBool::new(false),
        }
    }

    /// Asks the kernel whether it can run barriers for us.
    pub(crate) fn prepare(&self) {
        let has_barrier = sys::register_barrier();
        self.has_barrier.store(has_barrier, Ordering::Release);
    }

    /// The lock that fork must hold.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 1] {
        let Self {
            heap: _,
            changing,
            has_barrier: _,
        } = self;
        [changing]
    }

    /// Waits until nobody else changes budgets and owners.
    pub(crate) fn lock_changes(&self, process: &EngineProcess) -> ChangeGuard<'_> {
        self.changing.lock(process)
    }

    /// Opens the books for one event of the thread's recording. `None` if another recording has
    /// begun since.
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

    /// Opens the books, and says in which way.
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
            // No budgets are given out while somebody counts on the size being exact.
            if self.has_barrier.load(Ordering::Relaxed)
                && let Some(_changing) = self.changing.try_lock()
            {
                self.heap.relax_if_low(process);
            }
        }
        Some(self.heap.shared_access())
    }

    /// Runs `work` while no thread has the books open, except threads that are held up with them
    /// open.
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

    /// As [`collect_budgets`](Self::collect_budgets), for fork, which holds all locks.
    pub(crate) fn collect_budgets_for_fork(&self, threads: &ThreadStates) {
        if self.heap.be_strict() {
            // No budget was given out since all were taken back.
            return;
        }
        barrier();
        // A thread that comes from here on takes no budget.
        for state in threads.all() {
            // A thread that is held up in its event keeps its budget.
            if wait_for(state) {
                self.heap.give_back(state.budget.take());
            }
        }
        self.heap.note_budgets_returned();
    }
}

/// Waits while the books are to stay closed. Returns false if they are another recording's by then.
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
            // Whoever paused them is held up, or in another process.
            recorded.resume();
        }
        sys::nap();
    }
    false
}

/// Says that the thread does not have the books open.
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
    /// Whether another recording began while the books were closed in the middle of the event. The
    /// event belongs to neither then.
    #[inline(always)]
    pub(crate) fn is_overtaken(&self) -> bool {
        self.access == AccessMode::Overtaken
    }

    /// The process whose books these are.
    #[inline(always)]
    pub(crate) fn process(&self) -> &'a EngineProcess {
        self.process
    }

    /// Whether the thread may use what this owns for as long as it has the books open.
    #[inline(always)]
    pub(crate) fn owns(&self, owner: &PartOwner) -> bool {
        owner.is_owned_by(self.holder)
    }

    /// Runs `work`, which may open the books in another way: it is given who has them open and how,
    /// and gives back how they are open then.
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
    /// The process whose books these are.
    pub(crate) fn process(self) -> &'static EngineProcess {
        self.state.process()
    }

    /// Runs `work` with the books closed, and opens them again. Returns how they are open then.
    fn run_while_closed<R>(self, work: impl FnOnce() -> R) -> (R, AccessMode) {
        close(self.state);
        let result = work();
        let access = self.shared.access(self.process(), self.state);
        (result, access.unwrap_or(AccessMode::Overtaken))
    }

    /// Takes the lock under which budgets and owners change, unless its holder is held up.
    fn lock_changes_in_time(self) -> Option<ChangeGuard<'a>> {
        self.shared.changing.lock_in_time(self.process())
    }

    /// Makes everybody count what is in use event by event, so that it is known exactly.
    #[cold]
    fn be_strict(self) -> AccessMode {
        let strictly = || {
            // If the lock's holder is held up, it is about to do the same.
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

/// Makes this thread's stores visible to all other threads, and theirs to this one, in program
/// order.
fn barrier() {
    if !sys::barrier() {
        // A filter of system calls denies the barrier now. Stores reach the other cores much sooner
        // than these naps end.
        (0..20).for_each(|_| sys::nap());
    }
}

/// The owner of a resource that threads would otherwise lock: nobody, a thread (by its state), or
/// everybody.
pub(crate) struct PartOwner(AtomicPtr<ThreadState>);

const NO_OWNER: *mut ThreadState = std::ptr::null_mut();
const SHARED_OWNER: *mut ThreadState = std::ptr::without_provenance_mut(1);
/// Added to the address of the owner's state while the resource is being taken from that thread.
const MOVING_FLAG: usize = 2;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    /// It is the thread's own.
    Own,
    /// It was changing hands: look again.
    Changed,
    /// Its owner keeps it: a signal handler that interrupted the owner's event waits for something,
    /// perhaps for this thread.
    Refused,
    /// The books are another recording's by now.
    Overtaken,
}

impl PartOwner {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(NO_OWNER))
    }

    /// Whether the thread may use it as its own for as long as it has the books open.
    #[inline(always)]
    fn is_owned_by(&self, holder: LedgerHolder<'_>) -> bool {
        std::ptr::eq(self.0.load(Ordering::Relaxed), holder.state)
    }

    /// Whether it is used under its lock.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.0.load(Ordering::Acquire) == SHARED_OWNER
    }

    /// Makes it the thread's own if it is nobody's, and otherwise everybody's.
    #[cold]
    pub(crate) fn claim(
        &self,
        holder: LedgerHolder<'_>,
        mut access: AccessMode,
    ) -> (ClaimOutcome, AccessMode) {
        let now = self.0.load(Ordering::Acquire);
        if now == NO_OWNER {
            // Without barriers it could not be taken back.
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
            // Whoever takes something waits for its owner, so nobody must have to wait for this
            // thread.
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

    /// Begins to take it from the thread that owns it, if one does. Returns that thread, which may
    /// still be using it. The caller holds the lock of [`LedgerAccess`], so nobody else takes
    /// it meanwhile.
    fn begin_to_move(&self) -> Option<&'static ThreadState> {
        let now = self.0.load(Ordering::Acquire);
        let is_state = now != NO_OWNER && now != SHARED_OWNER && now.addr() & MOVING_FLAG == 0;
        if !is_state || !self.change(now, now.map_addr(|at| at | MOVING_FLAG)) {
            return None;
        }
        // SAFETY: a pointer that is neither constant, and not moving, is a thread's state. No
        // state is freed that a part has for its owner.
        Some(unsafe { &*now })
    }

    /// Ends what [`begin_to_move`](Self::begin_to_move) began: the owner left it, or keeps it.
    fn end_move(&self, left: bool) {
        let now = self.0.load(Ordering::Acquire);
        if now.addr() & MOVING_FLAG != 0 {
            let owner = now.map_addr(|at| at & !MOVING_FLAG);
            self.0
                .store(if left { SHARED_OWNER } else { owner }, Ordering::Release);
        }
    }

    /// Makes it nobody's. The caller holds its lock, and no other thread owns it.
    pub(crate) fn disown(&self) {
        self.0.store(NO_OWNER, Ordering::Release);
    }
}

/// Makes all of these everybody's, whoever owns them. Returns false if an owner keeps what it has.
/// The caller does not have the books open.
pub(crate) fn share<'a>(
    threads: &ThreadStates,
    owners: impl Iterator<Item = &'a PartOwner> + Clone,
    _changing: &ChangeGuard<'_>,
) -> bool {
    share_for_fork(threads, owners)
}

/// As [`share`], for fork, which holds all locks.
pub(crate) fn share_for_fork<'a>(
    threads: &ThreadStates,
    owners: impl Iterator<Item = &'a PartOwner> + Clone,
) -> bool {
    let mut moving = 0;
    for owner in owners.clone() {
        // One that is nobody's may be claimed just now.
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

/// Waits until every thread that has the books open has closed them. Returns false if one keeps
/// them open.
pub(crate) fn wait_for_all(threads: &ThreadStates) -> bool {
    barrier();
    // This waits for all threads, also after one that keeps them open.
    threads.all().filter(|state| !wait_for(state)).count() == 0
}

/// Waits until a thread does not have the books open. Returns false if that takes so long that the
/// thread must be held up by something else.
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

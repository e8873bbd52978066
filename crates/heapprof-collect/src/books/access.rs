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
//! Parts of the live table have owners ([`Owner`]). An owner checks with a plain load that a part
//! is still its own. A thread that takes a part from its owner has that barrier run, too, and waits
//! until the owner is not in the middle of an event.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence};

use crate::mode;
use crate::platform::lock::{self, Lock};
use crate::platform::sys;
use crate::platform::weak::single_threaded;
use crate::tables::counters::{Access, Counted, PROCESS, StackCounters, Weight};
use crate::thread::state::{self, ThreadState};

/// Held while budgets are taken back, and while something is taken from its owner.
static CHANGING: Lock = Lock::new();
static HAS_BARRIER: AtomicBool = AtomicBool::new(false);
/// Events of a thread between two looks at whether the heap is low enough for budgets.
const PATIENCE: u32 = 1024;

/// Asks the kernel whether it can run barriers for us.
pub(crate) fn prepare() {
    HAS_BARRIER.store(sys::register_barrier(), Ordering::Release);
}

/// The lock that fork must hold.
pub(crate) fn lock() -> &'static Lock {
    &CHANGING
}

/// Opens the books for one event of the thread's recording. `None` if another recording has begun
/// since.
///
/// Between this and [`close`] the thread calls nothing of the program's, and waits for short locks
/// only.
#[inline(always)]
pub(crate) fn open(state: &ThreadState) -> Option<Access> {
    loop {
        state.inside.store(true, Ordering::Relaxed);
        // The kernel's barrier makes this order hold on the processor too.
        compiler_fence(Ordering::SeqCst);
        // No recording begins from here to `close`: it would wait for this thread.
        if state.recording.get() == mode::gate() {
            break;
        }
        close(state);
        if !waited_for_gate(state) {
            return None;
        }
    }
    if single_threaded() {
        return Some(Access::Alone);
    }
    let events = state.shared_events.get() + 1;
    state.shared_events.set(events);
    if events >= PATIENCE {
        state.shared_events.set(0);
        // No budgets are given out while somebody counts on the size being exact.
        if HAS_BARRIER.load(Ordering::Relaxed)
            && let Some(_changing) = CHANGING.try_lock()
        {
            PROCESS.relax_if_low();
        }
    }
    Some(PROCESS.shared_access())
}

/// Waits while the books are to stay closed. Returns false if they are another recording's by then.
#[cold]
fn waited_for_gate(state: &ThreadState) -> bool {
    let since = sys::nanoseconds(libc::CLOCK_MONOTONIC);
    while state.recording.get() == mode::recording() {
        if !mode::is_paused() {
            return true;
        }
        if sys::nanoseconds(libc::CLOCK_MONOTONIC) - since > lock::patience()
            || lock::is_abandoned()
        {
            // Whoever paused them is held up, or in another process.
            mode::resume();
        }
        sys::nap();
    }
    false
}

/// Runs `work` while no thread has the books open, except threads that are held up with them open.
pub(crate) fn at_rest(work: impl FnOnce()) {
    if single_threaded() {
        return work();
    }
    mode::pause();
    wait_for_all();
    work();
    mode::resume();
}

/// Closes the books.
#[inline(always)]
pub(crate) fn close(state: &ThreadState) {
    compiler_fence(Ordering::SeqCst);
    state.inside.store(false, Ordering::Release);
}

/// Opens the books again in the middle of an event.
fn reopen(state: &ThreadState) -> Access {
    open(state).unwrap_or(Access::Overtaken)
}

/// Makes everybody count what is in use event by event, so that it is known exactly. The caller has
/// the books open. They are closed meanwhile.
#[cold]
fn be_strict(state: &ThreadState) -> Access {
    close(state);
    // If the lock's holder is held up, it is about to do the same.
    if let Some(_changing) = CHANGING.lock_in_time() {
        collect_budgets();
    } else {
        PROCESS.be_strict();
        PROCESS.budgets_are_in();
    }
    reopen(state)
}

/// Counts an allocation. The books are open. They may have to be opened in another way, and
/// `access` says so then.
#[inline(always)]
pub(crate) fn allocated(
    state: &ThreadState,
    cell: &StackCounters,
    weight: Weight,
    access: &mut Access,
) -> Counted {
    loop {
        match PROCESS.allocated(&state.budget, cell, weight, *access) {
            Counted::NotYet => *access = be_strict(state),
            counted => return counted,
        }
        if *access == Access::Overtaken {
            return Counted::Overtaken;
        }
    }
}

/// Takes all budgets back: for fork, for a new recording, and near the peak. The caller holds
/// [`lock()`].
pub(crate) fn collect_budgets() {
    if PROCESS.be_strict() {
        // No budget was given out since all were taken back.
        return;
    }
    barrier();
    for state in state::all() {
        // A thread that is held up in its event keeps its budget.
        if wait_for(state) {
            PROCESS.give_back(state.budget.replace(0));
        }
    }
    PROCESS.budgets_are_in();
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
pub(crate) struct Owner(AtomicPtr<ThreadState>);

const NOBODY: *mut ThreadState = std::ptr::null_mut();
const EVERYBODY: *mut ThreadState = std::ptr::without_provenance_mut(1);
/// Added to the address of the owner's state while the resource is being taken from that thread,
/// under [`CHANGING`].
const MOVING: usize = 2;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
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

impl Owner {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(NOBODY))
    }

    /// Whether the thread may use it as its own until it closes the books, which are open.
    #[inline(always)]
    pub(crate) fn is(&self, state: &ThreadState) -> bool {
        std::ptr::eq(self.0.load(Ordering::Relaxed), state)
    }

    /// Whether it is used under its lock.
    #[inline]
    pub(crate) fn is_everybody(&self) -> bool {
        self.0.load(Ordering::Acquire) == EVERYBODY
    }

    /// Makes it the thread's own if it is nobody's, and otherwise everybody's. The books are open,
    /// and may be closed meanwhile.
    #[cold]
    pub(crate) fn claim(&self, state: &ThreadState, access: &mut Access) -> Claim {
        let now = self.0.load(Ordering::Acquire);
        if now == NOBODY {
            // Without barriers it could not be taken back.
            let has_barrier = HAS_BARRIER.load(Ordering::Relaxed);
            let owner = if has_barrier {
                std::ptr::from_ref(state).cast_mut()
            } else {
                EVERYBODY
            };
            if self.change(NOBODY, owner) && has_barrier {
                return Claim::Own;
            }
            return Claim::Changed;
        }
        let mut left = true;
        if now != EVERYBODY && !std::ptr::eq(now, state) {
            // Whoever takes something waits for its owner, so nobody must have to wait for this
            // thread.
            close(state);
            match CHANGING.lock_in_time() {
                None => left = false,
                Some(_changing) => {
                    if let Some(owner) = self.begin_to_move() {
                        barrier();
                        left = wait_for(owner);
                        self.end_move(left);
                    }
                }
            }
            *access = reopen(state);
        }
        match (self.is(state), left) {
            _ if *access == Access::Overtaken => Claim::Overtaken,
            (true, _) => Claim::Own,
            (false, true) => Claim::Changed,
            (false, false) => Claim::Refused,
        }
    }

    fn change(&self, from: *mut ThreadState, to: *mut ThreadState) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Begins to take it from the thread that owns it, if one does. Returns that thread, which may
    /// still be using it. The caller holds [`CHANGING`], so nobody else takes it meanwhile.
    fn begin_to_move(&self) -> Option<&'static ThreadState> {
        let now = self.0.load(Ordering::Acquire);
        let is_state = now != NOBODY && now != EVERYBODY && now.addr() & MOVING == 0;
        if !is_state || !self.change(now, now.map_addr(|at| at | MOVING)) {
            return None;
        }
        // SAFETY: a pointer that is neither constant, and not moving, is a thread's state. States
        // are never freed.
        Some(unsafe { &*now })
    }

    /// Ends what [`begin_to_move`](Self::begin_to_move) began: the owner left it, or keeps it.
    fn end_move(&self, left: bool) {
        let now = self.0.load(Ordering::Acquire);
        if now.addr() & MOVING != 0 {
            let owner = now.map_addr(|at| at & !MOVING);
            self.0
                .store(if left { EVERYBODY } else { owner }, Ordering::Release);
        }
    }

    /// Makes it nobody's. The caller holds its lock, and no other thread owns it.
    pub(crate) fn disown(&self) {
        self.0.store(NOBODY, Ordering::Release);
    }
}

/// Makes all of these everybody's, whoever owns them. Returns false if an owner keeps what it has.
/// The caller holds [`lock()`], and does not have the books open.
pub(crate) fn share<'a>(owners: impl Iterator<Item = &'a Owner> + Clone) -> bool {
    let mut moving = 0;
    for owner in owners.clone() {
        // One that is nobody's may be claimed just now.
        while !owner.is_everybody() {
            if owner.begin_to_move().is_some() {
                moving += 1;
                break;
            }
            owner.change(NOBODY, EVERYBODY);
        }
    }
    let mut left = true;
    if moving != 0 {
        left = wait_for_all();
    }
    owners.for_each(|owner| owner.end_move(left));
    left
}

/// Waits until every thread that has the books open has closed them. Returns false if one keeps
/// them open.
pub(crate) fn wait_for_all() -> bool {
    barrier();
    // This waits for all threads, also after one that keeps them open.
    state::all().filter(|state| !wait_for(state)).count() == 0
}

/// Waits until a thread does not have the books open. Returns false if that takes so long that the
/// thread must be held up by something else.
fn wait_for(state: &ThreadState) -> bool {
    if std::ptr::eq(state, state::own()) {
        // This thread is here, not inside: a signal handler jumped out of its event.
        return true;
    }
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
                } else if now - since > lock::patience() {
                    lock::note_waited_in_vain();
                    return false;
                }
                if lock::is_abandoned() {
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

//! How a thread has the books open: for itself, or with others.
//!
//! The process's only thread needs no locked instruction: glibc says when it is alone, and stops saying so in that
//! thread, before a second one starts.
//!
//! Shared, the heap's size in use would be one cache line that every event of every core writes. So threads take
//! bytes in advance, a budget, as long as all budgets together stay below the known peak: then no event can
//! be a new one. When one might be, the thread that sees it has the kernel run a barrier on every core
//! (membarrier), waits until nobody is in the middle of an event, and takes all budgets back: the size is exact again.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use crate::engine::PROCESS;
use crate::lock::Lock;
use crate::sys;
use crate::thread::{self, ThreadState};
use crate::weak::single_threaded;

/// Held while budgets are taken back.
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

/// How a thread has the books open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// For itself.
    Alone,
    /// With others, and the heap well below its peak: what is in use is counted in budgets.
    Relaxed,
    /// With others, near the peak: what is in use is counted event by event.
    Strict,
}

/// Opens the books for one event.
///
/// Between this and [`close`] the thread calls nothing of the program's, and waits for short locks only.
#[inline(always)]
pub(crate) fn open(state: &ThreadState) -> Access {
    state.inside.store(true, Ordering::Relaxed);
    // The kernel's barrier makes this order hold on the processor too.
    compiler_fence(Ordering::SeqCst);
    if single_threaded() {
        return Access::Alone;
    }
    let events = state.shared_events.get() + 1;
    state.shared_events.set(events);
    if events >= PATIENCE {
        state.shared_events.set(0);
        if HAS_BARRIER.load(Ordering::Relaxed) {
            PROCESS.relax_if_low();
        }
    }
    PROCESS.shared_access()
}

/// Closes the books.
#[inline(always)]
pub(crate) fn close(state: &ThreadState) {
    compiler_fence(Ordering::SeqCst);
    state.inside.store(false, Ordering::Release);
}

/// From now on what is in use is counted event by event, and known exactly. The caller has the books open.
#[cold]
pub(crate) fn be_strict(state: &ThreadState) -> Access {
    close(state);
    {
        let _changing = CHANGING.lock();
        collect_budgets();
    }
    open(state)
}

/// Takes all budgets back, for fork and for a new recording. The caller holds [`lock`].
pub(crate) fn collect_budgets() {
    PROCESS.strict.store(true, Ordering::SeqCst);
    if !HAS_BARRIER.load(Ordering::Relaxed) {
        // None was given out.
        return;
    }
    sys::barrier();
    for state in thread::all() {
        wait_for(state);
        PROCESS.give_back(state.budget.replace(0));
    }
}

/// This thread's state, if it has one.
fn own() -> *const ThreadState {
    // SAFETY: the block is this thread's own.
    unsafe { (*crate::tls::current()).state }
}

fn wait_for(state: &ThreadState) {
    if std::ptr::eq(state, own()) {
        // This thread is here, not inside: a signal handler jumped out of its event.
        return;
    }
    let mut tries = 0u32;
    while state.inside.load(Ordering::Acquire) {
        tries = tries.saturating_add(1);
        match tries {
            // The other thread may be one that this one keeps from running.
            512.. => sys::nap(),
            _ if tries.is_multiple_of(64) => sys::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}

//! Who keeps the books alone: as long as one thread makes all events, it needs no locked instruction.
//!
//! The owner marks itself inside, looks whether it still is the owner, and works; plain loads and stores. Another
//! thread that has an event takes the ownership away, has the kernel run a barrier on every core (membarrier),
//! and waits until the owner is not inside. So the rare side pays for both. Without an owner the books are
//! shared, under locks; a thread that goes a thousand events without meeting another becomes the owner.
//!
//! Shared, the heap's size in use would be one cache line that every event of every core writes. So threads take
//! bytes in advance, a budget, as long as all budgets together stay below the known peak: then no event can
//! be a new one. When one might be, all budgets are taken back the same way, and the size is exact again.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence};

use crate::engine::PROCESS;
use crate::lock::Lock;
use crate::sys;
use crate::thread::{self, ThreadState};
use crate::weak::single_threaded;

static OWNER: AtomicPtr<ThreadState> = AtomicPtr::new(std::ptr::null_mut());
/// Who last had a thousand shared events.
static LAST: AtomicPtr<ThreadState> = AtomicPtr::new(std::ptr::null_mut());
/// Held while the ownership changes hands.
static CHANGING: Lock = Lock::new();
static CAN_OWN: AtomicBool = AtomicBool::new(false);
const PATIENCE: u32 = 1024;

/// Asks the kernel whether it can run barriers for us.
pub(crate) fn prepare() {
    CAN_OWN.store(sys::register_barrier(), Ordering::Release);
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
    if std::ptr::eq(OWNER.load(Ordering::Relaxed), state) {
        Access::Alone
    } else {
        open_shared(state)
    }
}

/// Closes the books.
#[inline(always)]
pub(crate) fn close(state: &ThreadState) {
    compiler_fence(Ordering::SeqCst);
    state.inside.store(false, Ordering::Release);
}

#[inline]
fn open_shared(state: &ThreadState) -> Access {
    let alone = state.shared_events.get() + 1;
    if OWNER.load(Ordering::Relaxed).is_null() && alone < PATIENCE {
        state.shared_events.set(alone);
        return PROCESS.shared_access();
    }
    change(state)
}

/// The rare cases: somebody else owns the books, or this thread may come to own them.
#[cold]
fn change(state: &ThreadState) -> Access {
    let this = std::ptr::from_ref(state).cast_mut();
    loop {
        if single_threaded() {
            // Nobody else is there to be asked; but later threads must be able to take it away.
            if CAN_OWN.load(Ordering::Relaxed) {
                OWNER.store(this, Ordering::Relaxed);
            }
            return Access::Alone;
        }
        if OWNER.load(Ordering::Acquire).is_null() {
            if !CAN_OWN.load(Ordering::Relaxed) {
                state.shared_events.set(0);
                return Access::Strict;
            }
            let alone = state.shared_events.get() + 1;
            state.shared_events.set(alone % PATIENCE);
            if alone < PATIENCE {
                return PROCESS.shared_access();
            }
            if LAST.swap(this, Ordering::Relaxed) != this {
                PROCESS.relax_if_low();
                return PROCESS.shared_access();
            }
        }
        close(state);
        let changing = CHANGING.lock();
        let owner = OWNER.load(Ordering::Acquire);
        if owner.is_null() {
            OWNER.store(this, Ordering::SeqCst);
            collect_budgets();
        } else if owner != this {
            OWNER.store(std::ptr::null_mut(), Ordering::SeqCst);
            sys::barrier();
            // SAFETY: states are never freed.
            wait_for(unsafe { &*owner });
            LAST.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
        drop(changing);
        state.inside.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if std::ptr::eq(OWNER.load(Ordering::Relaxed), state) {
            return Access::Alone;
        }
    }
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

/// Waits until no thread is in the middle of an event of before, and takes back what they had in advance.
fn collect_budgets() {
    PROCESS.strict.store(true, Ordering::SeqCst);
    sys::barrier();
    for state in thread::all() {
        wait_for(state);
        PROCESS.give_back(state.budget.replace(0));
    }
}

/// Takes the ownership from whoever has it, so that locks mean something. The caller holds [`lock`].
pub(crate) fn share() {
    let owner = OWNER.swap(std::ptr::null_mut(), Ordering::SeqCst);
    if CAN_OWN.load(Ordering::Relaxed) {
        collect_budgets();
    }
    // SAFETY: states are never freed.
    if let Some(owner) = unsafe { owner.as_ref() } {
        wait_for(owner);
    }
}

fn wait_for(state: &ThreadState) {
    let mut tries = 0u32;
    while state.inside.load(Ordering::Acquire) {
        tries += 1;
        if tries.is_multiple_of(64) {
            sys::yield_now()
        } else {
            std::hint::spin_loop()
        }
    }
}

/// After fork: nobody else is inside.
pub(crate) fn forget_other_threads() {
    for state in thread::all() {
        state.inside.store(false, Ordering::Relaxed);
    }
}

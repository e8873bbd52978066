//! The slot in the thread-local storage of the compiler. It is for tests in an interpreter or in
//! the threads of a model, and for processors without a folder in `arch/`, where it never runs.

use std::cell::UnsafeCell;

use super::ThreadSlot;

const NEW: ThreadSlot = ThreadSlot {
    countdown: 0,
    state: std::ptr::null(),
    busy: 0,
    lent: 0,
    frees: 0,
    held: 0,
    epoch: 0,
    engine: std::ptr::null(),
    works_for: 0,
    forking: false,
    ranks: 0,
    thread: 0,
    call_countdown: 0,
    call_slot: 0,
    call_return: 0,
    inner_calls: 0,
};

#[cfg(not(shuttle))]
thread_local! {
    static SLOT: UnsafeCell<ThreadSlot> = const { UnsafeCell::new(NEW) };
}
#[cfg(shuttle)]
shuttle::thread_local! {
    static SLOT: UnsafeCell<ThreadSlot> = UnsafeCell::new(NEW);
}

/// Returns this thread's slot.
#[inline(always)]
pub(super) fn current() -> *mut ThreadSlot {
    SLOT.with(|slot| slot.get())
}

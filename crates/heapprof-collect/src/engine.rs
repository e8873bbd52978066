//! A thread's way into the collector and out of it, and the tables that all threads share.

use std::sync::atomic::{Ordering, compiler_fence};

use crate::live::LiveTable;
use crate::mode::{self, Mode};
use crate::stacks::Stacks;
use crate::sys;
use crate::thread::{self, ThreadState};
use crate::tls::{self, QUIET, ThreadSlot};
use crate::trigger;

pub(crate) static STACKS: Stacks = Stacks::new();
pub(crate) static LIVE: LiveTable = LiveTable::new();

/// Keeps this thread inside the collector (apart) from now on, until [`end_apart`].
pub(crate) fn hold_apart() {
    // SAFETY: the block is this thread's own.
    unsafe {
        let block = tls::current();
        (*block).held = (*block).countdown;
        (*block).forking = true;
        enter(block);
    }
}

/// Seeds the random numbers anew in a forked child, between [`hold_apart`] and [`end_apart`].
/// Otherwise the child would draw what its parent and its siblings draw, and their errors would add
/// up.
pub(crate) fn draw_anew() {
    // SAFETY: the block is this thread's own, and in no event.
    unsafe {
        let block = tls::current();
        if let Some(state) = thread::of(block).as_ref() {
            let random = &mut state.own().random;
            random.seed((sys::process_id() as u64) << 32 | sys::thread_id() as u64);
            if mode::now() == Mode::Sampled {
                // A new interval is as good as what was left of the last one: what is left does not
                // depend on how much has passed.
                (*block).held = random.interval(mode::period());
            }
        }
    }
}

/// Whether this thread is between [`hold_apart`] and [`end_apart`].
pub(crate) fn is_held() -> bool {
    // SAFETY: the block is this thread's own.
    unsafe { (*tls::current()).forking }
}

/// Ends what [`hold_apart`] began.
pub(crate) fn end_apart() {
    // SAFETY: the block is this thread's own.
    unsafe {
        let block = tls::current();
        (*block).countdown = (*block).held;
        (*block).forking = false;
        (*block).busy = 0;
    }
    if trigger::pending() {
        trigger::run();
    }
}

/// Takes `size` bytes and one more off the countdown. Returns whether it ran out, so that
/// [`allocate`](crate::event::allocate) must be told.
#[inline(always)]
pub fn charge(size: usize) -> bool {
    let block = tls::current();
    // SAFETY: the block is this thread's own.
    unsafe {
        let (left, ran_out) = (*block)
            .countdown
            .overflowing_sub((size as u64).saturating_add(1));
        (*block).countdown = left;
        ran_out
    }
}

/// This thread's tables; null when there is no memory for them.
#[inline]
pub(crate) unsafe fn state_of(block: *mut ThreadSlot) -> *const ThreadState {
    // SAFETY: the block is this thread's own.
    unsafe {
        if (*block).state.is_null() {
            first_event(block);
        }
        thread::of(block)
    }
}

/// This thread's tables for a free. A thread without tables borrows some for it: it may have no
/// other event, and if it has ended, its end is not announced again.
#[inline]
pub(crate) unsafe fn state_to_free(block: *mut ThreadSlot) -> *const ThreadState {
    const MOST_BORROWED: u16 = 1000;
    // SAFETY: the block is this thread's own.
    unsafe {
        if (*block).state.is_null() {
            if (*block).frees < MOST_BORROWED {
                (*block).frees += 1;
                (*block).lent |= tls::BORROWED;
            }
            first_event(block);
        }
        thread::of(block)
    }
}

#[cold]
unsafe fn first_event(block: *mut ThreadSlot) {
    // SAFETY: the block is this thread's own. `busy` keeps what libc allocates here out of the
    // books.
    unsafe {
        let busy = std::mem::replace(&mut (*block).busy, 1);
        (*block).state = ThreadState::acquire().cast();
        // The block of a thread whose end is not noticed is not kept: it may be gone.
        if (*block).lent == 0 && !(*block).state.is_null() && thread::watch_end(block) {
            thread::know(block);
        }
        (*block).busy = busy;
    }
}

#[inline(always)]
pub(crate) unsafe fn enter(block: *mut ThreadSlot) {
    // SAFETY: the block is this thread's own.
    unsafe {
        (*block).busy = 1;
        (*block).countdown = QUIET;
    }
    compiler_fence(Ordering::SeqCst);
}

#[inline(always)]
pub(crate) unsafe fn leave(block: *mut ThreadSlot, countdown: u64) {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: the block is this thread's own.
    unsafe {
        // The thread is still busy. A handler that comes in between must not find a state that is
        // another thread's by then.
        if (*block).lent != 0 {
            release_late(block);
        }
        (*block).countdown = countdown;
        (*block).busy = 0;
    }
    if trigger::pending() {
        trigger::run();
    }
}

/// Ends an event of a thread that has a state only for one event at a time.
///
/// # Safety
/// The block is this thread's own, and busy.
#[cold]
pub(crate) unsafe fn release_late(block: *mut ThreadSlot) {
    // SAFETY: the block is this thread's own.
    unsafe {
        (*block).lent &= tls::ENDED;
        if let Some(state) = thread::of(block).as_ref() {
            (*block).state = std::ptr::null();
            state.release();
        }
    }
}

/// Whether this is the thread's first countdown in this recording, which this notes. Such a
/// countdown runs out without choosing an allocation.
pub(crate) fn begins(block: *mut ThreadSlot) -> bool {
    let recording = mode::recording();
    // SAFETY: the block is this thread's own.
    unsafe { std::mem::replace(&mut (*block).recording, recording) != recording }
}

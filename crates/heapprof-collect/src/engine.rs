//! A thread's way into the collector and out of it, and the tables that all threads share.

use std::sync::atomic::{Ordering, compiler_fence};

use crate::live::LiveTable;
use crate::mode::{self, Mode};
use crate::stacks::Stacks;
use crate::sys;
use crate::thread::{self, ThreadState};
use crate::tls::{self, Block, QUIET};
use crate::trigger;

pub(crate) static STACKS: Stacks = Stacks::new();
pub(crate) static LIVE: LiveTable = LiveTable::new();

/// From now on this thread is inside the collector, until [`end_apart`].
pub(crate) fn hold_apart() {
    // SAFETY: the block is this thread's own.
    unsafe {
        let block = tls::current();
        (*block).held = (*block).countdown;
        (*block).forking = true;
        enter(block);
    }
}

/// In a forked child, between [`hold_apart`] and [`end_apart`]: what is drawn from here on is not
/// what its parent and its brothers draw, whose errors would add up.
pub(crate) fn draw_anew() {
    // SAFETY: the block is this thread's own, and in no event.
    unsafe {
        let block = tls::current();
        if let Some(state) = thread::of(block).as_ref() {
            let random = &mut state.own().random;
            random.seed((sys::process_id() as u64) << 32 | sys::thread_id() as u64);
            if mode::now() == Mode::Sampled {
                // As good as what was left of the last one: it does not depend on how much has
                // passed.
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

/// Takes `size` bytes off the countdown; whether it ran out, so that
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
pub(crate) unsafe fn state_of(block: *mut Block) -> *const ThreadState {
    // SAFETY: the block is this thread's own.
    unsafe {
        if (*block).state.is_null() {
            first_event(block);
        }
        thread::of(block)
    }
}

/// The same for a free, for which a thread without tables borrows some: it need not have another
/// event, nor will its end be announced if it is over.
#[inline]
pub(crate) unsafe fn state_to_free(block: *mut Block) -> *const ThreadState {
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
unsafe fn first_event(block: *mut Block) {
    // SAFETY: the block is this thread's own; busy keeps what libc allocates here out.
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
pub(crate) unsafe fn enter(block: *mut Block) {
    // SAFETY: the block is this thread's own.
    unsafe {
        (*block).busy = 1;
        (*block).countdown = QUIET;
    }
    compiler_fence(Ordering::SeqCst);
}

#[inline(always)]
pub(crate) unsafe fn leave(block: *mut Block, countdown: u64) {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: the block is this thread's own.
    unsafe {
        // Still busy: a handler that comes in between must find no state that is another thread's
        // by then.
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

/// Ends an event of a thread that has a state for one event at a time.
///
/// # Safety
/// The block is this thread's own, and busy.
#[cold]
pub(crate) unsafe fn release_late(block: *mut Block) {
    // SAFETY: the block is this thread's own.
    unsafe {
        (*block).lent &= tls::ENDED;
        if let Some(state) = thread::of(block).as_ref() {
            (*block).state = std::ptr::null();
            state.release();
        }
    }
}

/// Whether this is the thread's first countdown of this recording: it ran out for no allocation's
/// sake.
pub(crate) fn begins(block: *mut Block) -> bool {
    let recording = mode::recording();
    // SAFETY: the block is this thread's own.
    unsafe { std::mem::replace(&mut (*block).recording, recording) != recording }
}

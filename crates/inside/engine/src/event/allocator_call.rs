//! Calls of an allocator that is linked into the program. Only the outermost call of a thread
//! counts: an allocator's functions call each other, and perhaps malloc.
//!
//! A call may never end: a signal handler or an exception may jump out of it. A later call finds
//! that out by its place on the stack, if that is not below the place of the call that was left.
//! Else it looks, now and then, whether that call is among its callers.

use std::sync::atomic::{Ordering, compiler_fence};

use heapprof_abi::FrameAddress;
use heapprof_platform::tls::{self, INSIDE_ALLOCATOR, QUIET_COUNTDOWN, ThreadSlot};

use crate::engine::Engine;
use crate::event::EngineEvents;
use crate::stack::call_site::CallSite;
use crate::stack::walk::{CheckedMemory, FrameCursor, WalkMemory as _};

/// Number of inner calls after which a call looks for the outer one on the stack. An allocator that
/// is asked once calls itself a few times.
const UNCHECKED_INNER_CALLS: u32 = 64;
/// Number of inner calls after which the outer call counts as left if the callers can't be found.
const MAX_INNER_CALLS: u32 = 16 * UNCHECKED_INNER_CALLS;
/// Maximum number of callers among which the outer call is looked for.
const MAX_CALLERS: usize = 64;

impl EngineEvents {
    /// Begins a call of an allocator's function, which returns to `caller`. Returns false if the
    /// call is inside another one, or inside the engine. Else the thread's allocations are not
    /// recorded until [`end_call`](Self::end_call).
    #[inline]
    pub fn begin_call(self, frame: CallSite, caller: usize) -> bool {
        let Self(engine) = self;
        let thread = tls::current();
        // SAFETY: the slot is this thread's own.
        unsafe {
            match (*thread).busy {
                0 => {
                    // A signal handler may come at each of these steps, with a call of its own. It
                    // finds the place of this call when it finds the thread inside an allocator.
                    (*thread).call_countdown = (*thread).countdown;
                    ((*thread).call_slot, (*thread).call_return) = (frame.slot, caller);
                    compiler_fence(Ordering::SeqCst);
                    (*thread).busy = INSIDE_ALLOCATOR;
                    compiler_fence(Ordering::SeqCst);
                    (*thread).countdown = QUIET_COUNTDOWN;
                }
                INSIDE_ALLOCATOR
                    if frame.slot >= (*thread).call_slot || was_left(engine, thread, frame) => {}
                _ => return false,
            }
            ((*thread).call_slot, (*thread).call_return) = (frame.slot, caller);
            (*thread).inner_calls = 0;
        }
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// Ends a call that [`begin_call`](Self::begin_call) began.
    #[inline]
    pub fn end_call(self) {
        let Self(engine) = self;
        let thread = tls::current();
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the slot is this thread's own.
        unsafe {
            // A handler may have come between, whose call on another stack ended before. This call
            // may have made the thread quiet afterwards.
            if (*thread).busy != INSIDE_ALLOCATOR {
                if (*thread).busy == 0 {
                    (*thread).countdown = (*thread).countdown.min((*thread).call_countdown);
                }
                return;
            }
            (*thread).countdown = (*thread).call_countdown;
            compiler_fence(Ordering::SeqCst);
            (*thread).busy = 0;
        }
        if engine.dumping.due.is_pending() {
            engine.dumping.due.run();
        }
    }
}

/// Whether the thread's call of the allocator was left without an end, as far as that is looked at.
/// `frame` is the call site of a call below it on the stack.
///
/// # Safety
/// The slot is this thread's own.
unsafe fn was_left(engine: &'static Engine, thread: *mut ThreadSlot, frame: CallSite) -> bool {
    // SAFETY: the caller's contract.
    let (outer, caller, count) = unsafe {
        (*thread).inner_calls = (*thread).inner_calls.wrapping_add(1);
        let outer = ((*thread).call_slot, (*thread).call_return);
        (outer.0, outer.1, (*thread).inner_calls)
    };
    if !count.is_multiple_of(UNCHECKED_INNER_CALLS) {
        return false;
    }
    let is_there = engine.with_reentrancy_guard(|| is_above(engine, frame, outer, caller));
    // No allocator calls itself that often for one request.
    is_there.map_or(count >= MAX_INNER_CALLS, |is_there| !is_there)
}

/// Whether a call that returns to `caller`, and whose return address is at `outer`, is among the
/// callers of `frame`; `None` if the callers can't be found.
fn is_above(engine: &Engine, frame: CallSite, outer: usize, caller: usize) -> Option<bool> {
    let unwinder = engine.unwinder();
    let pc = CheckedMemory.read(frame.slot)?;
    let mut cursor = FrameCursor {
        slot: frame.slot,
        bp: frame.bp,
        pc: FrameAddress::from_return_address(pc as u64),
    };
    for _ in 0..MAX_CALLERS {
        let rule = unwinder.rule(cursor.pc);
        cursor = unwinder.step(&mut CheckedMemory, cursor, rule)?;
        if cursor.slot >= outer {
            let expected = FrameAddress::from_return_address(caller as u64);
            return Some(cursor.slot == outer && cursor.pc == expected);
        }
    }
    None
}

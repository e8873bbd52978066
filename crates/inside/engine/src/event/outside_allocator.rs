//! Work of the engine below a call of an allocator, as if the thread were outside it.

use std::sync::atomic::{Ordering, compiler_fence};

use heapprof_platform::tls::ThreadSlot;

/// What a thread keeps of the call of an allocator that it is inside.
struct SavedCall {
    countdown: u64,
    slot: usize,
    caller: usize,
}

impl SavedCall {
    /// # Safety
    /// The slot is this thread's own.
    unsafe fn from_thread(thread: *mut ThreadSlot) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            Self {
                countdown: (*thread).call_countdown,
                slot: (*thread).call_slot,
                caller: (*thread).call_return,
            }
        }
    }

    /// # Safety
    /// The slot is this thread's own.
    unsafe fn restore(&self, thread: *mut ThreadSlot) {
        // SAFETY: the caller's contract.
        unsafe {
            (*thread).call_countdown = self.countdown;
            ((*thread).call_slot, (*thread).call_return) = (self.slot, self.caller);
        }
        compiler_fence(Ordering::SeqCst);
    }
}

/// Runs `work` as if the thread were not inside an allocator. A signal handler may come meanwhile,
/// with a call that counts as the outermost one.
///
/// # Safety
/// The slot is this thread's own, and the thread is inside an allocator.
pub(super) unsafe fn outside_allocator<R>(slot: *mut ThreadSlot, work: impl FnOnce() -> R) -> R {
    // SAFETY: the caller's contract.
    unsafe {
        let (busy, countdown) = ((*slot).busy, (*slot).countdown);
        let call = SavedCall::from_thread(slot);
        (*slot).busy = 0;
        compiler_fence(Ordering::SeqCst);
        let result = work();
        compiler_fence(Ordering::SeqCst);
        // A handler finds the outer call once the thread is inside it again. One that comes just
        // before changes these fields once more.
        call.restore(slot);
        (*slot).busy = busy;
        compiler_fence(Ordering::SeqCst);
        (*slot).countdown = countdown;
        call.restore(slot);
        result
    }
}

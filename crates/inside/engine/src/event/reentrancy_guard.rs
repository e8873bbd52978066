//! The reentrancy guard. Threads of the program take it for the engine's own work, so that the
//! engine's allocations are not recorded.

use heapprof_platform::sys;
use heapprof_platform::tls::{self, QUIET_COUNTDOWN};

use crate::engine::Engine;
use crate::event::entry;

impl Engine {
    /// Runs `work` with the reentrancy guard taken, so that the thread's allocations meanwhile are
    /// not recorded.
    pub(crate) fn with_reentrancy_guard<R>(&self, work: impl FnOnce() -> R) -> R {
        let slot = tls::current();
        // A signal handler may come here in the middle of an event, which may have locks. A thread
        // that was not inside has none: a handler may have jumped out of an event.
        // SAFETY: the slot is this thread's own.
        let (busy, countdown, ranks) = unsafe {
            let ranks = std::mem::take(&mut (*slot).ranks);
            ((*slot).busy, (*slot).countdown, ranks)
        };
        let epoch = self.process.recorded.epoch();
        // SAFETY: as above.
        unsafe {
            (*slot).busy = tls::INSIDE_ENGINE;
            (*slot).countdown = QUIET_COUNTDOWN;
        }
        let result = work();
        let same = epoch == self.process.recorded.epoch();
        // SAFETY: as above.
        unsafe {
            (*slot).busy = busy;
            (*slot).ranks = if busy == 0 { 0 } else { ranks };
            // A recording that began meanwhile begins for this thread, too.
            (*slot).countdown = if same || busy != 0 { countdown } else { 0 };
        }
        if busy == 0 && self.dumping.due.is_pending() {
            self.dumping.due.run();
        }
        result
    }

    /// Runs `work` with the reentrancy guard taken and signals blocked. This is for work that takes
    /// locks which a dump needs, too. A signal handler that ends the process makes a dump, so it
    /// must not interrupt the work.
    pub(crate) fn with_guard_and_signals_blocked<R>(&self, work: impl FnOnce() -> R) -> R {
        if self.process.shares_tables() {
            entry::separate_late(self);
        }
        let mask = self.process.block_signals();
        let result = self.with_reentrancy_guard(work);
        sys::restore_signals(mask);
        result
    }
}

/// Whether this thread is inside an engine.
#[inline]
pub fn is_inside_engine() -> bool {
    // SAFETY: the slot is this thread's own.
    unsafe { (*tls::current()).busy == tls::INSIDE_ENGINE }
}

/// Whether this thread is in a call of an allocator, as
/// [`EngineEvents::begin_call`](crate::EngineEvents::begin_call) began it.
#[inline]
pub fn is_inside_allocator() -> bool {
    // SAFETY: the slot is this thread's own.
    unsafe { (*tls::current()).busy == tls::INSIDE_ALLOCATOR }
}

//! The collector's own work in the program's threads: what it allocates is not recorded.

use crate::platform::sys;
use crate::platform::tls::{self, QUIET};
use crate::{mode, trigger};

/// Runs `work` as the collector's own. The thread is apart from the program meanwhile: what it
/// allocates is not recorded.
pub fn apart<R>(work: impl FnOnce() -> R) -> R {
    let block = tls::current();
    // SAFETY: the block is this thread's own.
    unsafe {
        let (busy, countdown) = ((*block).busy, (*block).countdown);
        let recording = mode::recording();
        (*block).busy = 1;
        (*block).countdown = QUIET;
        let result = work();
        (*block).busy = busy;
        let same = recording == mode::recording();
        // A recording that began meanwhile begins for this thread too.
        (*block).countdown = if same || busy != 0 { countdown } else { 0 };
        if busy == 0 && trigger::pending() {
            trigger::run();
        }
        result
    }
}

/// As [`apart`], with signals blocked. It is for work that takes locks that a dump needs, too: a
/// signal handler that ends the process dumps, and must not come in between.
pub fn guarded<R>(work: impl FnOnce() -> R) -> R {
    let mask = sys::block_signals();
    let result = apart(work);
    sys::restore_signals(mask);
    result
}

/// Whether this thread is inside the collector.
pub fn is_apart() -> bool {
    // SAFETY: the block is this thread's own.
    unsafe { (*tls::current()).busy != 0 }
}

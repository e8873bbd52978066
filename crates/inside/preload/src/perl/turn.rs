//! A turn that threads take one after the other, without waiting for long.

use std::sync::atomic::{AtomicI32, Ordering};

use heapprof_engine::sys;

/// A turn. A child that was forked while another thread had it takes it over, because there it has
/// no such thread.
pub(super) struct TurnLock {
    /// The process that has a thread that has it; 0 if nobody has.
    holder: AtomicI32,
}

/// So often a thread tries. A turn is short.
const MAX_ATTEMPTS: u32 = 10_000;

impl TurnLock {
    pub(super) const fn new() -> Self {
        Self {
            holder: AtomicI32::new(0),
        }
    }

    /// Does `work` in this thread's turn. Returns `None` if another thread keeps it.
    pub(super) fn with<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let us = sys::process_id();
        for _ in 0..MAX_ATTEMPTS {
            let holder = self.holder.load(Ordering::Relaxed);
            if holder == us {
                std::hint::spin_loop();
                continue;
            }
            let took =
                self.holder
                    .compare_exchange(holder, us, Ordering::Acquire, Ordering::Relaxed);
            if took.is_ok() {
                let done = work();
                self.holder.store(0, Ordering::Release);
                return Some(done);
            }
        }
        None
    }
}

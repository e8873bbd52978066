//! A lock that a thread tries to take only for a short time.

use std::sync::atomic::{AtomicI32, Ordering};

use heapprof_platform::sys;

/// A lock that a thread tries to take only for a short time. If a fork happens while another thread
/// has the lock, the lock counts as free in the forked child, where that thread does not exist.
pub(super) struct TurnLock {
    /// Id of the process in which a thread has the lock; 0 if no thread has it.
    holder: AtomicI32,
}

/// Maximum number of attempts to take the lock. They are enough, because no thread keeps the lock
/// for long.
const MAX_ATTEMPTS: u32 = 10_000;

impl TurnLock {
    pub(super) const fn new() -> Self {
        Self {
            holder: AtomicI32::new(0),
        }
    }

    /// Runs `work` with the lock taken. Returns `None` if another thread keeps it locked.
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

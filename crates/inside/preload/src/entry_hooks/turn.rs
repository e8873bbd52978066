//! Whose turn it is: that of a thread that searches objects, or that of one that forks.
//!
//! musl's fork takes the loader's lock after its handlers have taken the engine's locks. A thread
//! that searches an object has the loader's lock, and needs the engine's locks for its memory. So
//! the fork's handler waits for the end of the search first, and a search does not wait for a fork.

use std::sync::atomic::{AtomicI32, Ordering};

use heapprof_platform::{sys, weak};

/// Longest time that a search waits for a fork, in nanoseconds. glibc's fork does not wait for the
/// loader.
const MAX_FORK_WAIT: i64 = 1_000_000_000;

/// The thread that has the turn; 0 if there is none.
pub(super) struct SearchTurn(AtomicI32);

impl SearchTurn {
    pub(super) const fn new() -> Self {
        Self(AtomicI32::new(0))
    }

    fn take(&self) -> bool {
        let own = sys::thread_id();
        let taken = self
            .0
            .compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Takes the turn for a search. Returns false if another thread forks, or has left the turn at
    /// a fork.
    pub(super) fn begin_search(&self) -> bool {
        let since = sys::nanoseconds(libc::CLOCK_MONOTONIC);
        loop {
            if self.take() {
                return true;
            }
            let waited = sys::nanoseconds(libc::CLOCK_MONOTONIC) - since;
            if !weak::is_glibc() || waited > MAX_FORK_WAIT {
                return false;
            }
            sys::nap();
        }
    }

    /// Takes the turn for a fork, and waits for the end of a search. A thread that forks in a
    /// handler of a fork has the turn already.
    pub(super) fn begin_fork(&self) {
        while self.0.load(Ordering::Relaxed) != sys::thread_id() && !self.take() {
            sys::nap();
        }
    }

    /// Gives the turn back, in the parent and in a forked child.
    pub(super) fn end(&self) {
        self.0.store(0, Ordering::Release);
    }
}

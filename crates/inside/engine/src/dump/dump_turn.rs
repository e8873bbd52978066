//! The turn to dump, which one thread has at a time. If a signal requests a dump during another
//! thread's turn, its handler leaves a note for that thread.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use heapprof_platform::lock::{ForkLock, FutexLock, LockGuard, rank};

use crate::process::EngineProcess;
use crate::reason::DumpReason;

/// The turn to dump, which one thread has at a time.
pub(crate) struct DumpTurn {
    /// Locked while a dump is made.
    dumping: FutexLock<{ rank::DUMPING }>,
    /// Whether a signal requested a dump while another thread was dumping.
    noted: AtomicBool,
}

/// A thread's turn, which ends when this is dropped.
pub(crate) type DumpTurnGuard<'a> = LockGuard<'a, { rank::DUMPING }>;

impl DumpTurn {
    /// Creates a turn that no thread has.
    pub(crate) const fn new() -> Self {
        Self {
            dumping: FutexLock::new(),
            noted: AtomicBool::new(false),
        }
    }

    /// Takes the turn for a dump. Only the last dump of a program image waits for the turn. If
    /// another thread forks meanwhile, the dump waits for at most `patience` nanoseconds.
    pub(crate) fn take(
        &self,
        process: &EngineProcess,
        reason: DumpReason,
        patience: i64,
    ) -> Option<DumpTurnGuard<'_>> {
        match reason.is_last() {
            true => self.dumping.lock_past_fork(process, patience),
            false => self.dumping.try_lock(),
        }
    }

    /// Leaves a note that a signal requested a dump. The thread that is dumping then makes another
    /// dump. The caller must call [`follow_up`](Self::follow_up) next.
    pub(crate) fn note(&self) {
        self.noted.store(true, Ordering::Relaxed);
    }

    /// Makes the dump that was requested by a [`note`](Self::note). A thread calls this after each
    /// turn, and after each note that it has left. If another thread has the turn, that thread
    /// makes the dump afterwards. `make` returns whether it could dump.
    pub(crate) fn follow_up(&self, make: impl Fn() -> bool) {
        loop {
            // A thread gives its turn back before it reads the note, and writes a note before it
            // tries to take the turn.
            fence(Ordering::SeqCst);
            if !self.noted.load(Ordering::Relaxed) {
                return;
            }
            let Some(_turn) = self.dumping.try_lock() else {
                return;
            };
            if self.noted.swap(false, Ordering::Relaxed) && !make() {
                return;
            }
        }
    }

    /// Forgets the parent's notes, in a forked child.
    pub(crate) fn reset_in_child(&self) {
        self.noted.store(false, Ordering::Relaxed);
    }

    /// Returns the lock that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 1] {
        let Self { dumping, noted: _ } = self;
        [dumping]
    }
}

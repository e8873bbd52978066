//! Whose turn it is to dump: one thread's at a time. A signal's handler that comes in another
//! thread's turn leaves a note.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::platform::lock::{ForkLock, FutexLock, LockGuard, rank};
use crate::platform::process::EngineProcess;
use crate::reason::DumpReason;

/// The turn.
pub(crate) struct DumpTurn {
    /// Held while a dump is made.
    dumping: FutexLock<{ rank::DUMPING }>,
    /// Whether a signal asked for a dump in the middle of another thread's.
    noted: AtomicBool,
}

/// A thread's turn, until it is dropped.
pub(crate) type DumpTurnGuard<'a> = LockGuard<'a, { rank::DUMPING }>;

impl DumpTurn {
    /// It is nobody's turn.
    pub(crate) const fn new() -> Self {
        Self {
            dumping: FutexLock::new(),
            noted: AtomicBool::new(false),
        }
    }

    /// The turn for a dump. A thread that ends the program waits for its turn. It waits for a
    /// thread that forks for at most `patience` nanoseconds. Any other thread does not wait.
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

    /// Asks whoever dumps now for a signal's dump afterwards. The caller goes on with
    /// [`follow_up`](Self::follow_up).
    pub(crate) fn note(&self) {
        self.noted.store(true, Ordering::Relaxed);
    }

    /// Makes the dump that was noted. It is called after a turn, and after a
    /// [`note`](Self::note). If it is another thread's turn, that thread comes here afterwards.
    /// `make` tells whether it could.
    pub(crate) fn follow_up(&self, make: impl Fn() -> bool) {
        loop {
            // A thread gives its turn back before it looks for a note, and writes a note before it
            // looks for a turn.
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

    /// The lock that fork must hold.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 1] {
        let Self { dumping, noted: _ } = self;
        [dumping]
    }
}

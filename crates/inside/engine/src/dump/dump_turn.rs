//! The turn to dump, which one thread has at a time. A signal handler that runs during another
//! thread's turn leaves a note.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use heapprof_platform::lock::{ForkLock, FutexLock, LockGuard, rank};

use crate::process::EngineProcess;
use crate::reason::DumpReason;

/// The turn to dump, which one thread has at a time.
pub(crate) struct DumpTurn {
    /// Locked while a dump is made.
    dumping: FutexLock<{ rank::DUMPING }>,
    /// Whether a signal asked for a dump while another thread was making one.
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

    /// Takes the turn for a dump. A thread whose dump is the last one of the program image waits
    /// for the turn, but while another thread forks, it waits at most `patience` nanoseconds. For
    /// any other dump, this does not wait.
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

    /// Leaves a note for the thread that dumps now: it makes another dump afterwards, which a
    /// signal requested. The caller then calls [`follow_up`](Self::follow_up).
    pub(crate) fn note(&self) {
        self.noted.store(true, Ordering::Relaxed);
    }

    /// Makes the dump that was noted. A thread calls this after its turn, and after a
    /// [`note`](Self::note). If another thread has the turn, that thread makes the dump afterwards.
    /// `make` returns whether it could dump.
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

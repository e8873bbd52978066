//! What is known of the thread of ours that makes a dump each interval.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use crate::platform::sys;

/// The clock: a thread of ours, or none.
pub(crate) struct IntervalClock {
    /// The interval, in milliseconds; 0 if no clock runs.
    pub(crate) interval: AtomicU32,
    /// Which clock thread is the current one. The others end. The threads wait on this word.
    pub(crate) round: AtomicU32,
    /// The last one's `pthread_t`, until somebody takes it to wait for its end.
    thread: AtomicUsize,
    /// The kernel's numbers of that thread and of the last one that made a dump for it: libc takes
    /// a thread for ended a little before the kernel does.
    pub(crate) numbers: [AtomicI32; 2],
    /// How many threads are about to wait for the clock's end.
    pub(crate) ending: AtomicU32,
    /// Whether there can be no threads yet.
    pub(crate) is_suspended: AtomicBool,
}

/// Which of [`IntervalClock::numbers`] is the clock's.
pub(crate) const CLOCK_THREAD: usize = 0;
/// Which of [`IntervalClock::numbers`] is that of the thread that dumps for it.
pub(crate) const DUMPER_THREAD: usize = 1;

impl IntervalClock {
    /// No clock runs.
    pub(crate) const fn new() -> Self {
        Self {
            interval: AtomicU32::new(0),
            round: AtomicU32::new(0),
            thread: AtomicUsize::new(0),
            numbers: [const { AtomicI32::new(0) }; 2],
            ending: AtomicU32::new(0),
            is_suspended: AtomicBool::new(false),
        }
    }

    /// Tells the clock to end, if one runs. It is still there when this returns.
    pub(crate) fn stop(&self) {
        if self.interval.load(Ordering::SeqCst) != 0 {
            self.end_round();
        }
    }

    /// Tells every clock's thread to end, also one that began while another thread ended the clock.
    pub(crate) fn end_round(&self) {
        self.interval.store(0, Ordering::SeqCst);
        self.round.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&self.round);
    }

    /// Says which thread the clock is.
    pub(crate) fn set_thread(&self, thread: usize) {
        self.thread.store(thread, Ordering::SeqCst);
    }

    /// The clock's thread, for whoever is the first to ask.
    pub(crate) fn take_thread(&self) -> Option<usize> {
        let thread = self.thread.swap(0, Ordering::SeqCst);
        (thread != 0).then_some(thread)
    }

    /// Whether there is nothing to wait for: no clock, and nobody who ends one.
    pub(crate) fn is_gone(&self) -> bool {
        self.thread.load(Ordering::Acquire) == 0 && self.ending.load(Ordering::Acquire) == 0
    }

    /// Forgets the parent's clock, in a forked child. Returns whether one ran.
    pub(crate) fn reset_in_child(&self) -> bool {
        self.thread.store(0, Ordering::Relaxed);
        self.numbers
            .iter()
            .for_each(|n| n.store(0, Ordering::Relaxed));
        self.ending.store(0, Ordering::Relaxed);
        self.interval.swap(0, Ordering::Relaxed) != 0
    }
}

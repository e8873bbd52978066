//! The state of the interval clock: a thread of the engine that makes a dump at each interval.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use heapprof_platform::sys;

/// The interval clock: a thread of the engine that makes a dump at each interval. The thread may
/// not exist.
pub(crate) struct IntervalClock {
    /// The time between two dumps of the clock, in milliseconds; 0 if no clock runs.
    pub(crate) interval: AtomicU32,
    /// Number of the current round. A clock thread ends when its round is over. All clock threads
    /// wait on this word.
    pub(crate) round: AtomicU32,
    /// The `pthread_t` of the last clock thread. It is 0 if there is no such thread, or if another
    /// thread has taken the value to wait for the clock's end.
    thread: AtomicUsize,
    /// The kernel's ids of the clock thread, and of the last thread that made a dump for it. They
    /// are needed because libc reports the end of a thread a little before the kernel does.
    pub(crate) numbers: [AtomicI32; 2],
    /// Number of threads that wait for the clock's end, or are about to.
    pub(crate) ending: AtomicU32,
    /// Whether the clock must wait, because the process can't have further threads yet.
    pub(crate) is_suspended: AtomicBool,
}

/// Index of the clock thread in [`IntervalClock::numbers`].
pub(crate) const CLOCK_THREAD: usize = 0;
/// Index of the thread that dumps for the clock in [`IntervalClock::numbers`].
pub(crate) const DUMPER_THREAD: usize = 1;

impl IntervalClock {
    /// Creates a clock that does not run.
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

    /// Requests the end of the clock thread, if it runs. The thread may still exist when this
    /// returns.
    pub(crate) fn stop(&self) {
        if self.interval.load(Ordering::SeqCst) != 0 {
            self.end_round();
        }
    }

    /// Requests the end of every clock thread, even of a thread that began while another thread
    /// ended the clock.
    pub(crate) fn end_round(&self) {
        self.interval.store(0, Ordering::SeqCst);
        self.round.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&self.round);
    }

    /// Stores the `pthread_t` of the clock thread.
    pub(crate) fn set_thread(&self, thread: usize) {
        self.thread.store(thread, Ordering::SeqCst);
    }

    /// Takes the `pthread_t` of the clock thread. Only the first caller gets it.
    pub(crate) fn take_thread(&self) -> Option<usize> {
        let thread = self.thread.swap(0, Ordering::SeqCst);
        (thread != 0).then_some(thread)
    }

    /// Whether there is no clock thread, and no thread that ends a clock thread.
    pub(crate) fn is_gone(&self) -> bool {
        self.thread.load(Ordering::Acquire) == 0 && self.ending.load(Ordering::Acquire) == 0
    }

    /// Forgets the parent's clock, in a forked child. Returns whether the clock ran.
    pub(crate) fn reset_in_child(&self) -> bool {
        self.thread.store(0, Ordering::Relaxed);
        self.numbers
            .iter()
            .for_each(|n| n.store(0, Ordering::Relaxed));
        self.ending.store(0, Ordering::Relaxed);
        self.interval.swap(0, Ordering::Relaxed) != 0
    }
}

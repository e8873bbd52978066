//! A lock that allocates nothing and calls no function of libc. A waiting thread sleeps in the
//! kernel's futex.
//!
//! An event of the program waits for a lock only for a limited time. The thread that has the lock
//! may be interrupted by a signal handler, and this handler may itself wait for the event's thread.
//! Once a thread has given up, all threads wait for a shorter time.
//!
//! Each lock has a rank in its type. A thread takes locks in the order of their ranks, because
//! otherwise two threads could wait for each other. A debug build asserts this. Fork takes all
//! locks in that order.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use crate::atomic::AtomicU32;
use crate::{sys, tls};

/// The ranks of all locks, outermost first.
pub mod rank {
    /// Rank of the lock that a thread has while it dumps.
    pub const DUMPING: u8 = 0;
    /// Rank of the lock for the recording's options.
    pub const OPTIONS: u8 = 1;
    /// Rank of the lock for the names of dumps.
    pub const NAMING: u8 = 2;
    /// Rank of the lock that a thread has while it begins a recording.
    pub const STARTING: u8 = 3;
    /// Rank of the lock for the triggers of dumps.
    pub const TRIGGERS: u8 = 4;
    /// Rank of the lock for the sizes of stacks that were reported last.
    pub const REPORTED_STACKS: u8 = 5;
    /// Rank of the lock for the heap's history.
    pub const MOMENTS: u8 = 6;
    /// Rank of the lock for the unwind rules.
    pub const RULES: u8 = 7;
    /// Rank of the lock for the mappings that the program made.
    pub const REGIONS: u8 = 8;
    /// Rank of the lock for budgets, and for the owners of the live table's parts.
    pub const OWNERS: u8 = 9;
    /// Rank of the lock for the slots of other threads.
    pub const SLOTS: u8 = 10;
    /// Rank of the lock for the options with which the program is to start a recording.
    pub const DEFAULT_OPTIONS: u8 = 11;
    /// Rank of the lock for the known mappings.
    pub const KNOWN_MAPPINGS: u8 = 12;
    /// Rank of the lock for the closed mappings.
    pub const CLOSED_MAPPINGS: u8 = 13;
    /// Rank of the lock for the loaded objects.
    pub const MODULES: u8 = 14;
    /// Rank of the lock for the table that finds interpreter frames by their texts.
    pub const SCRIPT_FRAMES: u8 = 15;
    /// Rank of the lock for the memory with the texts of interpreter frames.
    pub const SCRIPT_TEXTS: u8 = 16;
    /// Rank of the lock for the table that finds stacks by their hash.
    pub const STACKS: u8 = 17;
    /// Rank of the lock for the memory with the stacks.
    pub const STACK_MEMORY: u8 = 18;
    /// Rank of the lock for the arena from which the engine itself allocates.
    pub const ARENA: u8 = 19;
    /// Rank of the locks for the parts of the live table.
    pub const PARTS: u8 = 20;
    /// Rank of the lock for the number of bytes in use.
    pub const HEAP: u8 = 21;
    /// Number of ranks.
    pub const COUNT: u8 = 22;
}

/// A lock that contains no data.
pub struct FutexLock<const RANK: u8>(AtomicU32);

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;

/// The state of a process that decides how long a thread waits for a lock.
pub trait WaitPolicy {
    /// Whether every lock counts as free. True in a copy of the process, where the threads that had
    /// locks do not exist.
    fn is_abandoned(&self) -> bool;
    /// Whether a thread has taken the locks for a fork.
    fn is_forking(&self) -> bool;
    /// Returns the longest time that an event may wait for a lock, in nanoseconds.
    fn wait_timeout(&self) -> i64;
    /// Notes that a thread has given up waiting after the time
    /// [`wait_timeout`](Self::wait_timeout).
    fn note_timeout(&self);
}

/// A lock that fork takes.
pub trait ForkLock {
    /// Returns the lock's rank.
    fn rank(&self) -> u8;
    /// Takes the lock. Gives up if another thread has the lock for longer than
    /// [`wait_timeout`](WaitPolicy::wait_timeout), but waits without a limit for the lock of rank
    /// [`rank::DUMPING`]. Returns whether the lock was taken.
    fn acquire_for_fork(&self, process: &dyn WaitPolicy) -> bool;
    /// Releases the lock that [`acquire_for_fork`](Self::acquire_for_fork) took.
    fn release_after_fork(&self);
}

/// Asserts that the thread may wait for a lock of this rank, because it has no lock of this rank or
/// of a higher rank.
#[inline(always)]
fn assert_may_enter(rank: u8) {
    if cfg!(debug_assertions) {
        let held = tls::ranks();
        assert!(held >> rank == 0, "lock {rank} is taken inside {held:#b}");
    }
}

/// Notes that the thread has taken a lock.
#[inline(always)]
fn note_entered(rank: u8) {
    if cfg!(debug_assertions) {
        tls::set_ranks(tls::ranks() | 1 << rank);
    }
}

/// Notes that the thread has released a lock.
#[inline(always)]
fn note_left(rank: u8) {
    if cfg!(debug_assertions) {
        tls::set_ranks(tls::ranks() & !(1 << rank));
    }
}

/// Sleeps until a lock's word is released. It may also return earlier.
fn sleep(word: &AtomicU32) {
    #[cfg(not(shuttle))]
    sys::futex_wait(word, CONTENDED);
    #[cfg(shuttle)]
    let _ = (word, sys::yield_now());
}

/// Wakes one thread that sleeps on a word.
fn wake(word: &AtomicU32) {
    #[cfg(not(shuttle))]
    sys::futex_wake(word);
    #[cfg(shuttle)]
    let _ = word;
}

/// Takes a lock's word, if it is free. Returns whether it was taken.
#[inline(always)]
fn take_word(word: &AtomicU32) -> bool {
    word.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Takes a lock's word, if it is free. Returns whether it was taken. This is for a waiting thread.
/// Unlike [`take_word`], it only reads the word while the lock is taken, which does not disturb the
/// owner of the lock.
fn take_word_if_free(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == UNLOCKED && take_word(word)
}

impl<const RANK: u8> FutexLock<RANK> {
    /// Makes an unlocked lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(UNLOCKED))
    }

    /// Makes the guard of a lock that was taken just now.
    #[inline(always)]
    fn guard(&self) -> LockGuard<'_, RANK> {
        note_entered(RANK);
        LockGuard(self)
    }

    /// Takes the lock, and waits until it is free.
    #[inline]
    pub fn lock(&self, process: &impl WaitPolicy) -> LockGuard<'_, RANK> {
        assert_may_enter(RANK);
        if !take_word(&self.0) {
            self.wait(process);
        }
        self.guard()
    }

    /// Takes the lock, if it is free now.
    pub fn try_lock(&self) -> Option<LockGuard<'_, RANK>> {
        // The guard is made only if the lock was free: a guard that is dropped releases the lock,
        // whichever thread has it.
        take_word(&self.0).then(|| self.guard())
    }

    #[cold]
    fn wait(&self, process: &dyn WaitPolicy) {
        for _ in 0..100 {
            if take_word_if_free(&self.0) {
                return;
            }
            std::hint::spin_loop();
        }
        while !process.is_abandoned() && self.0.swap(CONTENDED, Ordering::Acquire) != UNLOCKED {
            sleep(&self.0);
        }
    }

    /// Takes the lock, unless another thread has it for longer than
    /// [`wait_timeout`](WaitPolicy::wait_timeout).
    #[inline]
    pub fn lock_in_time(&self, process: &impl WaitPolicy) -> Option<LockGuard<'_, RANK>> {
        assert_may_enter(RANK);
        (take_word(&self.0) || wait_a_while(&self.0, process)).then(|| self.guard())
    }

    /// Takes the lock, and waits until it is free. If a thread has taken it for a fork, this waits
    /// for at most `patience` nanoseconds, and then returns `None`. The limit prevents a deadlock:
    /// the thread that forks may wait for malloc's own lock, which this thread may have, because a
    /// signal interrupted its malloc.
    pub fn lock_past_fork(
        &self,
        process: &impl WaitPolicy,
        patience: i64,
    ) -> Option<LockGuard<'_, RANK>> {
        assert_may_enter(RANK);
        let mut since = None;
        while !take_word_if_free(&self.0) && !process.is_abandoned() {
            if process.is_forking() {
                let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
                if now - *since.get_or_insert(now) >= patience {
                    return None;
                }
            } else {
                since = None;
            }
            sys::nap();
        }
        Some(self.guard())
    }

    #[inline]
    fn release(&self) {
        note_left(RANK);
        if self.0.swap(UNLOCKED, Ordering::Release) == CONTENDED {
            wake(&self.0);
        }
    }
}

impl<const RANK: u8> ForkLock for FutexLock<RANK> {
    fn rank(&self) -> u8 {
        RANK
    }

    fn acquire_for_fork(&self, process: &dyn WaitPolicy) -> bool {
        assert_may_enter(RANK);
        // A thread that dumps is not suspended in a signal handler, because it has blocked its
        // signals. But it may take long.
        if RANK == rank::DUMPING {
            if !take_word(&self.0) {
                self.wait(process);
            }
            std::mem::forget(self.guard());
            return true;
        }
        let taken = take_word(&self.0) || wait_for(&self.0, process, || true);
        if taken {
            note_entered(RANK);
        }
        taken
    }

    fn release_after_fork(&self) {
        self.release();
    }
}

/// A taken [`FutexLock`], which is released when this value is dropped.
pub struct LockGuard<'a, const RANK: u8>(&'a FutexLock<RANK>);

impl<const RANK: u8> Drop for LockGuard<'_, RANK> {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Waits for a lock's word, and takes it. Returns false after the time
/// [`wait_timeout`](WaitPolicy::wait_timeout). While a thread forks, this waits for longer, because
/// that thread has all locks.
#[cold]
fn wait_a_while(word: &AtomicU32, process: &dyn WaitPolicy) -> bool {
    wait_for(word, process, || !process.is_forking())
}

/// Waits for a lock's word, and takes it. This first spins, then yields, then sleeps, so that the
/// thread that has the lock can run, whatever its priority. Returns false if it gave up.
fn wait_for(word: &AtomicU32, process: &dyn WaitPolicy, may_give_up: impl Fn() -> bool) -> bool {
    let since = sys::nanoseconds(libc::CLOCK_MONOTONIC);
    for tries in 0u64.. {
        match tries {
            0..64 => std::hint::spin_loop(),
            64..512 => sys::yield_now(),
            _ => {
                let waited = sys::nanoseconds(libc::CLOCK_MONOTONIC) - since;
                if waited > process.wait_timeout() && may_give_up() {
                    process.note_timeout();
                    return false;
                }
                if process.is_abandoned() {
                    return false;
                }
                sys::nap();
            }
        }
        if take_word_if_free(word) {
            return true;
        }
    }
    false
}

/// A lock that is taken for only a few loads and stores. Its release is a plain store. A thread has
/// only one lock of a rank at a time, except during a fork, which takes all locks.
pub struct SpinLock<const RANK: u8>(AtomicU32);

impl<const RANK: u8> SpinLock<RANK> {
    /// Makes an unlocked lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(UNLOCKED))
    }

    /// Takes the lock, unless another thread has it for longer than
    /// [`wait_timeout`](WaitPolicy::wait_timeout). Returns whether it was taken.
    #[inline]
    pub fn acquire_in_time(&self, process: &impl WaitPolicy) -> bool {
        assert_may_enter(RANK);
        let taken = take_word(&self.0) || wait_a_while(&self.0, process);
        if taken {
            note_entered(RANK);
        }
        taken
    }

    /// Takes the lock, if it is free now. Returns whether it was taken.
    #[inline(always)]
    pub fn acquire_at_once(&self) -> bool {
        assert_may_enter(RANK);
        let taken = take_word(&self.0);
        if taken {
            note_entered(RANK);
        }
        taken
    }

    /// Releases the lock.
    #[inline]
    pub fn release(&self) {
        note_left(RANK);
        self.0.store(UNLOCKED, Ordering::Release);
    }

    /// Takes the lock for fork, which also takes other locks of this rank. Gives up if another
    /// thread has the lock for longer than [`wait_timeout`](WaitPolicy::wait_timeout). Returns
    /// whether it was taken.
    pub fn acquire_for_fork(&self, process: &dyn WaitPolicy) -> bool {
        take_word(&self.0) || wait_for(&self.0, process, || true)
    }

    /// Releases the lock that [`acquire_for_fork`](Self::acquire_for_fork) took.
    pub fn release_after_fork(&self) {
        self.0.store(UNLOCKED, Ordering::Release);
    }
}

/// A value behind a [`FutexLock`].
pub struct LockedValue<const RANK: u8, T> {
    /// The lock, which fork takes too.
    pub lock: FutexLock<RANK>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the thread that has the lock.
unsafe impl<const RANK: u8, T: Send> Sync for LockedValue<RANK, T> {}

impl<const RANK: u8, T> LockedValue<RANK, T> {
    /// Makes an unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            lock: FutexLock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the address of the value.
    pub const fn value_place(&self) -> *mut T {
        self.value.get()
    }

    /// Runs `use_it` with the value while the lock is taken.
    pub fn with<R>(&self, process: &impl WaitPolicy, use_it: impl FnOnce(&mut T) -> R) -> R {
        let _guard = self.lock.lock(process);
        // SAFETY: the guard makes this the only reference.
        use_it(unsafe { &mut *self.value.get() })
    }

    /// Runs `use_it` with the value while the lock is taken, if the lock is free now.
    pub fn with_at_once<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _guard = self.lock.try_lock()?;
        // SAFETY: the guard makes this the only reference.
        Some(use_it(unsafe { &mut *self.value.get() }))
    }

    /// Runs `use_it` with the value while the lock is taken, unless another thread has the lock for
    /// longer than [`wait_timeout`](WaitPolicy::wait_timeout).
    pub fn with_in_time<R>(
        &self,
        process: &impl WaitPolicy,
        use_it: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let _guard = self.lock.lock_in_time(process)?;
        // SAFETY: the guard makes this the only reference.
        Some(use_it(unsafe { &mut *self.value.get() }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A policy for tests: a thread waits for a lock for at most a second.
    pub(crate) struct TestProcess;

    impl WaitPolicy for TestProcess {
        fn is_abandoned(&self) -> bool {
            false
        }

        fn is_forking(&self) -> bool {
            false
        }

        fn wait_timeout(&self) -> i64 {
            1_000_000_000
        }

        fn note_timeout(&self) {}
    }

    #[test]
    fn trying_in_vain_leaves_the_lock_to_its_holder() {
        let lock = FutexLock::<{ rank::OPTIONS }>::new();
        let held = lock.lock(&TestProcess);
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock 1 is taken inside 0b100")]
    fn an_outer_lock_is_not_taken_inside_an_inner_one() {
        let (inner, outer) = (
            FutexLock::<{ rank::NAMING }>::new(),
            FutexLock::<{ rank::OPTIONS }>::new(),
        );
        let _inner = inner.lock(&TestProcess);
        let _outer = outer.lock(&TestProcess);
    }
}

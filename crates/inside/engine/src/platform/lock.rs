//! A lock that allocates nothing and calls nothing of libc: waiting is a futex.
//!
//! An event of the program waits only for a while. A signal handler may have interrupted the holder
//! of what it needs, and may wait in turn, perhaps for this thread. Once a thread has given up, all
//! threads wait less.
//!
//! Each lock has a rank in its type. A thread takes locks in the order of their ranks, or two
//! threads could wait for each other. A debug build asserts it. Fork takes all locks in that order.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use crate::atomic::AtomicU32;
use crate::platform::process::EngineProcess;
use crate::platform::{sys, tls};

/// The ranks of all locks, outermost first.
pub(crate) mod rank {
    /// Whose turn it is to dump.
    pub(crate) const DUMPING: u8 = 0;
    /// The options of the recording.
    pub(crate) const OPTIONS: u8 = 1;
    /// The names of dumps.
    pub(crate) const NAMING: u8 = 2;
    /// The beginning of a recording.
    pub(crate) const STARTING: u8 = 3;
    /// The triggers of dumps.
    pub(crate) const TRIGGERS: u8 = 4;
    /// What was told of stacks that are followed.
    pub(crate) const REPORTED_STACKS: u8 = 5;
    /// The moments of the heap's history.
    pub(crate) const MOMENTS: u8 = 6;
    /// The rules of unwinding.
    pub(crate) const RULES: u8 = 7;
    /// The program's own mappings.
    pub(crate) const REGIONS: u8 = 8;
    /// The budgets, and the owners of the live table's parts.
    pub(crate) const OWNERS: u8 = 9;
    /// The slots of other threads.
    pub(crate) const SLOTS: u8 = 10;
    /// The options of a recording that the program is to start.
    pub(crate) const DEFAULT_OPTIONS: u8 = 11;
    /// The mappings that are known.
    pub(crate) const KNOWN_MAPPINGS: u8 = 12;
    /// The mappings that are closed.
    pub(crate) const CLOSED_MAPPINGS: u8 = 13;
    /// The loaded objects.
    pub(crate) const MODULES: u8 = 14;
    /// The frames of interpreters by their texts.
    pub(crate) const SCRIPT_FRAMES: u8 = 15;
    /// The memory of those texts.
    pub(crate) const SCRIPT_TEXTS: u8 = 16;
    /// The stacks by their hash.
    pub(crate) const STACKS: u8 = 17;
    /// The memory of the stacks.
    pub(crate) const STACK_MEMORY: u8 = 18;
    /// What the engine itself allocates from.
    pub(crate) const ARENA: u8 = 19;
    /// The parts of the live table.
    pub(crate) const PARTS: u8 = 20;
    /// The size in use.
    pub(crate) const HEAP: u8 = 21;
    /// How many ranks there are.
    #[cfg(test)]
    pub(crate) const COUNT: u8 = 22;
}

/// A lock without data of its own.
pub(crate) struct FutexLock<const RANK: u8>(AtomicU32);

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;

/// A lock as fork sees it: one among others.
pub(crate) trait ForkLock {
    /// The lock's rank.
    fn rank(&self) -> u8;
    /// Takes the lock, unless it is held for longer than
    /// [`wait_timeout`](EngineProcess::wait_timeout) says.
    fn acquire_for_fork(&self, process: &EngineProcess) -> bool;
    /// Gives back what [`acquire_for_fork`](Self::acquire_for_fork) took.
    fn release_after_fork(&self);
}

/// Asserts that the thread may wait for a lock of this rank: it has none of this rank or a higher
/// one.
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

/// Notes that the thread gives a lock back.
#[inline(always)]
fn note_left(rank: u8) {
    if cfg!(debug_assertions) {
        tls::set_ranks(tls::ranks() & !(1 << rank));
    }
}

/// Sleeps until an awaited word is given back, or for no reason at all.
fn sleep(word: &AtomicU32) {
    #[cfg(not(all(test, shuttle)))]
    sys::futex_wait(word, CONTENDED);
    #[cfg(all(test, shuttle))]
    let _ = (word, sys::yield_now());
}

/// Wakes one thread that sleeps on a word.
fn wake(word: &AtomicU32) {
    #[cfg(not(all(test, shuttle)))]
    sys::futex_wake(word);
    #[cfg(all(test, shuttle))]
    let _ = word;
}

/// Takes a word, if it is free. Returns whether it was.
#[inline(always)]
fn take_word(word: &AtomicU32) -> bool {
    word.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// As [`take_word`], for waiters: it does not disturb the holder while the word is not free.
fn take_word_if_free(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == UNLOCKED && take_word(word)
}

impl<const RANK: u8> FutexLock<RANK> {
    /// A lock that nobody holds.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(UNLOCKED))
    }

    /// The guard of a lock that was taken just now.
    #[inline(always)]
    fn guard(&self) -> LockGuard<'_, RANK> {
        note_entered(RANK);
        LockGuard(self)
    }

    /// Waits until nobody else holds it.
    #[inline]
    pub(crate) fn lock(&self, process: &EngineProcess) -> LockGuard<'_, RANK> {
        assert_may_enter(RANK);
        if !take_word(&self.0) {
            self.wait(process);
        }
        self.guard()
    }

    /// The lock, if nobody holds it now.
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, RANK>> {
        // The guard is made only if the lock was free: a guard that is dropped gives the lock back,
        // whoever holds it.
        take_word(&self.0).then(|| self.guard())
    }

    #[cold]
    fn wait(&self, process: &EngineProcess) {
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

    /// The lock, unless it is held for longer than [`wait_timeout`](EngineProcess::wait_timeout)
    /// says.
    #[inline]
    pub(crate) fn lock_in_time(&self, process: &EngineProcess) -> Option<LockGuard<'_, RANK>> {
        assert_may_enter(RANK);
        (take_word(&self.0) || wait_a_while(&self.0, process)).then(|| self.guard())
    }

    /// The lock, unless a thread that forks holds it for longer than `wait_timeout` (nanoseconds).
    /// That thread may wait for malloc's own lock, and this thread may hold that, if a signal came
    /// in the middle of malloc.
    pub(crate) fn lock_past_fork(
        &self,
        process: &EngineProcess,
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

    fn acquire_for_fork(&self, process: &EngineProcess) -> bool {
        // A thread that dumps is not held up, because it has its signals blocked. But it may take
        // long.
        if RANK == rank::DUMPING {
            std::mem::forget(self.lock(process));
            return true;
        }
        assert_may_enter(RANK);
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

/// Holds a [`FutexLock`] until dropped.
pub(crate) struct LockGuard<'a, const RANK: u8>(&'a FutexLock<RANK>);

impl<const RANK: u8> Drop for LockGuard<'_, RANK> {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Waits for a word for a while, and longer while a thread forks, because that thread holds all
/// locks.
#[cold]
fn wait_a_while(word: &AtomicU32, process: &EngineProcess) -> bool {
    wait_for(word, process, || !process.is_forking())
}

/// Waits for a word. Whoever holds it may not be running, so this first spins, then makes way, then
/// sleeps (for threads of other priorities).
fn wait_for(word: &AtomicU32, process: &EngineProcess, may_give_up: impl Fn() -> bool) -> bool {
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

/// A lock for a few loads and stores: giving it back is a plain store. A thread holds one at a time
/// of those that have the same rank, except that fork takes all.
pub(crate) struct SpinLock<const RANK: u8>(AtomicU32);

impl<const RANK: u8> SpinLock<RANK> {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(UNLOCKED))
    }

    /// Takes the lock, unless it is held for longer than
    /// [`wait_timeout`](EngineProcess::wait_timeout) says.
    #[inline]
    pub(crate) fn acquire_in_time(&self, process: &EngineProcess) -> bool {
        assert_may_enter(RANK);
        let taken = take_word(&self.0) || wait_a_while(&self.0, process);
        if taken {
            note_entered(RANK);
        }
        taken
    }

    /// Takes the lock, if nobody holds it.
    #[inline(always)]
    pub(crate) fn acquire_at_once(&self) -> bool {
        assert_may_enter(RANK);
        let taken = take_word(&self.0);
        if taken {
            note_entered(RANK);
        }
        taken
    }

    #[inline]
    pub(crate) fn release(&self) {
        note_left(RANK);
        self.0.store(UNLOCKED, Ordering::Release);
    }

    /// Takes the lock for fork, with others of its rank, unless it is held for longer than
    /// [`wait_timeout`](EngineProcess::wait_timeout) says.
    pub(crate) fn acquire_for_fork(&self, process: &EngineProcess) -> bool {
        take_word(&self.0) || wait_for(&self.0, process, || true)
    }

    /// Gives back what [`acquire_for_fork`](Self::acquire_for_fork) took.
    pub(crate) fn release_after_fork(&self) {
        self.0.store(UNLOCKED, Ordering::Release);
    }
}

/// A value behind a [`FutexLock`].
pub(crate) struct LockedValue<const RANK: u8, T> {
    /// The lock, which fork takes too.
    pub(crate) lock: FutexLock<RANK>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by whoever holds the lock.
unsafe impl<const RANK: u8, T: Send> Sync for LockedValue<RANK, T> {}

impl<const RANK: u8, T> LockedValue<RANK, T> {
    /// `value`, not locked.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            lock: FutexLock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Where the value is.
    pub(crate) const fn value_place(&self) -> *mut T {
        self.value.get()
    }

    /// Runs `use_it` with the value while holding the lock.
    pub(crate) fn with<R>(&self, process: &EngineProcess, use_it: impl FnOnce(&mut T) -> R) -> R {
        let _guard = self.lock.lock(process);
        // SAFETY: the guard makes this the only reference.
        use_it(unsafe { &mut *self.value.get() })
    }

    /// As [`with`](Self::with), if nobody holds the lock now.
    pub(crate) fn with_at_once<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _guard = self.lock.try_lock()?;
        // SAFETY: as above.
        Some(use_it(unsafe { &mut *self.value.get() }))
    }

    /// As [`with`](Self::with), unless the lock is held for longer than
    /// [`wait_timeout`](EngineProcess::wait_timeout) says.
    pub(crate) fn with_in_time<R>(
        &self,
        process: &EngineProcess,
        use_it: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let _guard = self.lock.lock_in_time(process)?;
        // SAFETY: as above.
        Some(use_it(unsafe { &mut *self.value.get() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::pages::PageSource;

    #[test]
    fn trying_in_vain_leaves_the_lock_to_its_holder() {
        let process = EngineProcess::new(PageSource::from_kernel());
        let lock = FutexLock::<{ rank::OPTIONS }>::new();
        let held = lock.lock(&process);
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn who_waited_in_vain_waits_less_the_next_time() {
        let process = EngineProcess::new(PageSource::from_kernel());
        let lock = FutexLock::<{ rank::OPTIONS }>::new();
        let held = lock.lock(&process);
        let now = || sys::nanoseconds(libc::CLOCK_MONOTONIC);
        let (begin, patience_then) = (now(), process.wait_timeout());
        let other = || lock.lock_in_time(&process).is_none();
        assert!(std::thread::scope(|scope| scope
            .spawn(other)
            .join()
            .unwrap()));
        assert!(now() - begin >= patience_then && process.wait_timeout() < patience_then);
        drop(held);
        assert!(lock.lock_in_time(&process).is_some());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock 1 is taken inside 0b100")]
    fn an_outer_lock_is_not_taken_inside_an_inner_one() {
        let process = EngineProcess::new(PageSource::from_kernel());
        let (inner, outer) = (
            FutexLock::<{ rank::NAMING }>::new(),
            FutexLock::<{ rank::OPTIONS }>::new(),
        );
        let _inner = inner.lock(&process);
        let _outer = outer.lock(&process);
    }
}

//! A lock that allocates nothing and calls nothing of libc: waiting is a futex.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// A lock without data of its own.
pub(crate) struct Lock(AtomicU32);

const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// Takes a free word; whether it was free.
#[inline(always)]
fn take(word: &AtomicU32) -> bool {
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// As [`take`], for waiters: without disturbing the holder while it is not.
fn take_if_free(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == FREE && take(word)
}

impl Lock {
    /// A lock that nobody holds.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Waits until nobody else holds it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_> {
        self.acquire();
        Guard(self)
    }

    /// The lock, if nobody holds it now.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_>> {
        // Made only when it holds: a guard that is dropped gives the lock back, whosever it is.
        take(&self.0).then(|| Guard(self))
    }

    /// Takes the lock without a guard; [`release`](Self::release) gives it back.
    #[inline]
    pub(crate) fn acquire(&self) {
        if !take(&self.0) {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..100 {
            if take_if_free(&self.0) {
                return;
            }
            std::hint::spin_loop();
        }
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            sys::futex_wait(&self.0, AWAITED);
        }
    }

    /// Gives back what [`acquire`](Self::acquire) took.
    #[inline]
    pub(crate) fn release(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            sys::futex_wake(&self.0);
        }
    }
}

/// Holds a [`Lock`] until dropped.
pub(crate) struct Guard<'a>(&'a Lock);

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A lock for a few loads and stores: giving it back is a plain store.
pub(crate) struct Spin(AtomicU32);

impl Spin {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    pub(crate) fn acquire(&self) {
        while !self.acquire_in_time() {}
    }

    /// Takes the lock unless that takes seconds: its holder may have been interrupted by a signal handler that waits,
    /// perhaps for this thread.
    #[inline]
    pub(crate) fn acquire_in_time(&self) -> bool {
        take(&self.0) || self.wait()
    }

    /// Whoever holds it may not be running: first spin, then make way, then sleep (for threads of other priorities).
    #[cold]
    fn wait(&self) -> bool {
        const NAPS: u32 = 20_000;
        for tries in 0..NAPS {
            match tries {
                0..64 => std::hint::spin_loop(),
                64..512 => sys::yield_now(),
                _ => sys::nap(),
            }
            if take_if_free(&self.0) {
                return true;
            }
        }
        false
    }

    #[inline]
    pub(crate) fn release(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// A value behind a [`Lock`].
pub(crate) struct Locked<T> {
    /// The lock, which fork takes too.
    pub(crate) lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by whoever holds the lock.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// `value`, not locked.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            lock: Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `use_it` with the value while holding the lock.
    pub(crate) fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        let _guard = self.lock.lock();
        // SAFETY: the guard makes this the only reference.
        use_it(unsafe { &mut *self.value.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trying_in_vain_leaves_the_lock_to_its_holder() {
        let lock = Lock::new();
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}

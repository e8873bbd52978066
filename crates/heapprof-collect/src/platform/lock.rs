//! A lock that allocates nothing and calls nothing of libc: waiting is a futex.
//!
//! An event of the program waits only for a while. A signal handler may have interrupted the holder
//! of what it needs, and may wait in turn, perhaps for this thread. Once a thread has given up, all
//! threads wait less.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::mode;
use crate::platform::sys;

/// A lock without data of its own.
pub(crate) struct Lock(AtomicU32);

const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// Whether a thread forks. It holds all locks meanwhile, for as long as the kernel takes to copy
/// the process.
static FORKING: AtomicBool = AtomicBool::new(false);
/// Whether this process was forked while threads that it does not have may have held locks. It does
/// not record any more.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Says that the locks are held by fork, or no longer.
pub(crate) fn set_forking(forking: bool) {
    FORKING.store(forking, Ordering::SeqCst);
}

/// Whether a thread that forks holds the locks.
pub(crate) fn is_forking() -> bool {
    FORKING.load(Ordering::SeqCst)
}

/// Called in a child that has one thread. From now on every lock is as good as free.
pub(crate) fn abandon() {
    ABANDONED.store(true, Ordering::SeqCst);
}

/// Whether [`abandon`] was called, or should have been, because this child was made without fork's
/// handlers. This makes up for it then.
pub(crate) fn is_abandoned() -> bool {
    if orphan::is() && !ABANDONED.load(Ordering::Relaxed) {
        mode::stop();
        abandon();
    }
    ABANDONED.load(Ordering::Relaxed)
}

/// How often somebody waited in vain.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);

/// How long an event may wait for another one, in nanoseconds. It gets shorter with each wait in
/// vain: a program that held an event up will do it again.
pub(crate) fn patience() -> i64 {
    const FIRST: i64 = 2_000_000_000;
    const LAST: i64 = 20_000_000;
    let in_vain = IN_VAIN.load(Ordering::Relaxed);
    (FIRST >> in_vain.saturating_mul(2).min(62)).max(LAST)
}

/// Says that somebody waited for as long as [`patience`] says.
pub(crate) fn note_waited_in_vain() {
    let _ = IN_VAIN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(1));
}

/// Takes a word, if it is free. Returns whether it was.
#[inline(always)]
fn take(word: &AtomicU32) -> bool {
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// As [`take`], for waiters: it does not disturb the holder while the word is not free.
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
        // The guard is made only if the lock was free: a guard that is dropped gives the lock back,
        // whoever holds it.
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
        while !is_abandoned() && self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            sys::futex_wait(&self.0, AWAITED);
        }
    }

    /// The lock, unless it is held for longer than [`patience`] says.
    #[inline]
    pub(crate) fn lock_in_time(&self) -> Option<Guard<'_>> {
        (take(&self.0) || wait_a_while(&self.0)).then(|| Guard(self))
    }

    /// The lock, unless a thread that forks holds it for longer than `patience` (nanoseconds). That
    /// thread may wait for malloc's own lock, and this thread may hold that, if a signal came in
    /// the middle of malloc.
    pub(crate) fn lock_past_fork(&self, patience: i64) -> Option<Guard<'_>> {
        let mut since = None;
        while !take_if_free(&self.0) && !is_abandoned() {
            if is_forking() {
                let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
                if now - *since.get_or_insert(now) >= patience {
                    return None;
                }
            } else {
                since = None;
            }
            sys::nap();
        }
        Some(Guard(self))
    }

    /// Takes the lock for fork, unless it is held for longer than [`patience`] says.
    pub(crate) fn acquire_for_fork(&self) -> bool {
        take(&self.0) || wait_for(&self.0, || true)
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

/// Waits for a word for a while, and longer while a thread forks, because that thread holds all
/// locks.
#[cold]
fn wait_a_while(word: &AtomicU32) -> bool {
    wait_for(word, || !FORKING.load(Ordering::Relaxed))
}

/// Waits for a word. Whoever holds it may not be running, so this first spins, then makes way, then
/// sleeps (for threads of other priorities).
fn wait_for(word: &AtomicU32, may_give_up: impl Fn() -> bool) -> bool {
    let since = sys::nanoseconds(libc::CLOCK_MONOTONIC);
    for tries in 0u64.. {
        match tries {
            0..64 => std::hint::spin_loop(),
            64..512 => sys::yield_now(),
            _ => {
                let waited = sys::nanoseconds(libc::CLOCK_MONOTONIC) - since;
                if waited > patience() && may_give_up() {
                    note_waited_in_vain();
                    return false;
                }
                if is_abandoned() {
                    return false;
                }
                sys::nap();
            }
        }
        if take_if_free(word) {
            return true;
        }
    }
    false
}

/// A lock for a few loads and stores: giving it back is a plain store.
pub(crate) struct Spin(AtomicU32);

impl Spin {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes the lock, unless it is held for longer than [`patience`] says.
    #[inline]
    pub(crate) fn acquire_in_time(&self) -> bool {
        take(&self.0) || wait_a_while(&self.0)
    }

    /// Takes the lock for fork, unless it is held for longer than [`patience`] says.
    pub(crate) fn acquire_for_fork(&self) -> bool {
        take(&self.0) || wait_for(&self.0, || true)
    }

    #[inline]
    pub(crate) fn release(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// A page that the kernel wipes in every child that gets a copy of the memory, so that such a child
/// is known by it.
mod orphan {
    use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

    use crate::platform::sys::{self, PAGE};

    static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

    /// Says that this process is known. It is called before the first event, and in each child that
    /// fork's handlers run in.
    pub(crate) fn is_not() {
        let mut page = MARK.load(Ordering::Acquire);
        if page.is_null() {
            page = sys::map(PAGE).cast();
            if page.is_null() || !sys::wipe_on_fork(page.cast(), PAGE) {
                return;
            }
            MARK.store(page, Ordering::Release);
        }
        // SAFETY: a page of our own that is never unmapped.
        unsafe { (*page).store(1, Ordering::Release) };
    }

    /// Whether this is a copy of the process that nobody told us of (clone, _Fork).
    pub(crate) fn is() -> bool {
        // SAFETY: null, or a page of our own that is never unmapped.
        let page = unsafe { MARK.load(Ordering::Acquire).as_ref() };
        page.is_some_and(|page| page.load(Ordering::Acquire) == 0)
    }
}

pub(crate) use orphan::is_not as is_no_orphan;

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

    #[test]
    fn who_waited_in_vain_waits_less_the_next_time() {
        let lock = Lock::new();
        let held = lock.lock();
        let now = || sys::nanoseconds(libc::CLOCK_MONOTONIC);
        let (begin, patience_then) = (now(), patience());
        assert!(lock.lock_in_time().is_none());
        assert!(now() - begin >= patience_then && patience() < patience_then);
        drop(held);
        assert!(lock.lock_in_time().is_some());
    }
}

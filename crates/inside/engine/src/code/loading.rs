//! Keeps forks apart from what threads do with the loader: a child has the loader's locks as they
//! were when it was forked, and a thread that held one is not there to give it back.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::platform::sys;

/// More threads at once are not kept apart.
const MAX_THREADS: usize = 32;
/// So long a fork waits for threads that unload code, or these for a fork, in nanoseconds. What a
/// library does at its end may itself wait for whoever forks. Only a test that hangs waits longer.
const LOADER_TIMEOUT: i64 = if cfg!(test) {
    600_000_000_000
} else {
    100_000_000
};

/// Who is at the loader, and who forks.
pub(crate) struct LoaderAccess {
    /// The threads that unload code, or ask the loader what is there: their numbers, below zero if
    /// a fork has waited for one in vain. Later forks do not wait for that one again.
    threads: [AtomicI32; MAX_THREADS],
    /// How many threads fork, or wait to do so.
    forks: AtomicU32,
}

/// A thread's place among those that are at the loader, which it leaves when this is dropped.
pub(crate) struct LoaderVisit<'a>(Option<&'a AtomicI32>);

impl Drop for LoaderVisit<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::SeqCst);
        }
    }
}

/// Waits until `is_so`, but not for longer than [`LOADER_TIMEOUT`]. Returns whether it is.
fn wait_until(is_so: impl Fn() -> bool) -> bool {
    let mut until = 0;
    while !is_so() {
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
        if until == 0 {
            until = now + LOADER_TIMEOUT;
        }
        if now > until {
            return false;
        }
        sys::nap();
    }
    true
}

impl LoaderAccess {
    pub(crate) const fn new() -> Self {
        Self {
            threads: [const { AtomicI32::new(0) }; MAX_THREADS],
            forks: AtomicU32::new(0),
        }
    }

    /// Comes to the loader, once no thread forks.
    pub(crate) fn enter(&self) -> LoaderVisit<'_> {
        let own = sys::thread_id();
        if self.has_thread(own) {
            // What a library does at its end may close another one.
            return LoaderVisit(None);
        }
        loop {
            let is_free = wait_until(|| self.forks.load(Ordering::SeqCst) == 0);
            let at_loader = self.take_place(own);
            // Somebody may have begun to fork just now, and not have seen this thread.
            if !is_free || at_loader.0.is_none() || self.forks.load(Ordering::SeqCst) == 0 {
                return at_loader;
            }
        }
    }

    /// As [`enter`](Self::enter), for a thread that a fork may wait for: it does not wait.
    pub(crate) fn enter_at_once(&self) -> LoaderVisit<'_> {
        self.take_place(sys::thread_id())
    }

    /// Whether this thread is at the loader, as far as there was a place for it.
    pub(crate) fn is_inside(&self) -> bool {
        self.has_thread(sys::thread_id())
    }

    fn has_thread(&self, thread: i32) -> bool {
        let is_it = |place: &AtomicI32| place.load(Ordering::Relaxed).abs() == thread;
        self.threads.iter().any(is_it)
    }

    fn take_place(&self, own: i32) -> LoaderVisit<'_> {
        let (all, relaxed) = (Ordering::SeqCst, Ordering::Relaxed);
        let mut places = self.threads.iter();
        LoaderVisit(places.find(|place| place.compare_exchange(0, own, all, relaxed).is_ok()))
    }

    /// Called before a fork: waits until no other thread is at the loader, and lets none come.
    pub(crate) fn before_fork(&self) {
        self.forks.fetch_add(1, Ordering::SeqCst);
        let own = sys::thread_id();
        let is_free = wait_until(|| {
            let mut threads = self.threads.iter().map(|of| of.load(Ordering::SeqCst));
            threads.all(|thread| thread <= 0 || thread == own)
        });
        if !is_free {
            self.give_up(own);
        }
    }

    /// Has no fork wait for those that are at the loader now, besides this thread.
    fn give_up(&self, own: i32) {
        let is_other = |thread: i32| (thread > 0 && thread != own).then_some(-thread);
        for place in &self.threads {
            let _ = place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_other);
        }
    }

    /// Called after a fork, in the parent.
    pub(crate) fn after_fork(&self) {
        self.forks.fetch_sub(1, Ordering::SeqCst);
    }

    /// Called in a forked child, which has one thread.
    pub(crate) fn in_child(&self) {
        self.forks.store(0, Ordering::SeqCst);
        for place in &self.threads {
            place.store(0, Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn who_forks_and_who_unloads_wait_for_each_other() {
        static LOADING: LoaderAccess = LoaderAccess::new();
        static IS_INSIDE: AtomicBool = AtomicBool::new(false);
        static FORKS: AtomicBool = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let outer = LOADING.enter();
                        let inner = LOADING.enter();
                        assert!(outer.0.is_some() && inner.0.is_none());
                        IS_INSIDE.store(true, Ordering::SeqCst);
                        assert!(!FORKS.load(Ordering::SeqCst));
                        drop((inner, outer));
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..200 {
                    LOADING.before_fork();
                    FORKS.store(true, Ordering::SeqCst);
                    std::thread::yield_now();
                    FORKS.store(false, Ordering::SeqCst);
                    LOADING.after_fork();
                }
            });
        });
        assert!(IS_INSIDE.load(Ordering::SeqCst));
        // Nobody waits again for a thread that was waited for in vain, until it has come anew.
        let (came, has_come) = std::sync::mpsc::channel();
        let (leave, may_leave) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let at_loader = LOADING.enter();
            came.send(()).unwrap();
            let _ = may_leave.recv();
            drop(at_loader);
        });
        has_come.recv().unwrap();
        LOADING.give_up(sys::thread_id());
        for _ in 0..2 {
            LOADING.before_fork();
            LOADING.after_fork();
        }
        drop(leave);
        other.join().unwrap();
        assert!(
            LOADING
                .threads
                .iter()
                .all(|place| place.load(Ordering::SeqCst) == 0)
        );
        // A thread that forks while it unloads code does not wait for itself.
        let inside = LOADING.enter();
        LOADING.before_fork();
        LOADING.in_child();
        drop(inside);
        drop(LOADING.enter());
    }
}

//! Prevents forks while a thread uses the loader. A forked child inherits the loader's locks as
//! they are. If another thread had taken one of them, that thread does not exist in the child and
//! can't release it.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use heapprof_platform::sys;

/// Maximum length of the list of threads that use the loader. Forks do not wait for threads that
/// are not in the list.
const MAX_THREADS: usize = 32;
/// Longest time, in nanoseconds, that a fork waits for threads in the loader, and that a thread
/// waits for a fork before it enters the loader. The time is limited because a library's destructor
/// may itself wait for the thread that forks. In tests it is so long that only a test that hangs
/// reaches it.
const LOADER_TIMEOUT: i64 = if cfg!(test) {
    600_000_000_000
} else {
    100_000_000
};

/// The threads that use the loader, and the threads that fork.
pub(crate) struct LoaderAccess {
    /// Ids of the threads that unload code, or that query the loader for its objects. If a fork has
    /// waited for a thread in vain, the thread's id is negated, and later forks do not wait for it
    /// again.
    threads: [AtomicI32; MAX_THREADS],
    /// Number of threads that fork, or wait to do so.
    forks: AtomicU32,
}

/// A thread's entry in the list of threads that use the loader. The entry is released when this is
/// dropped.
pub(crate) struct LoaderVisit<'a>(Option<&'a AtomicI32>);

impl Drop for LoaderVisit<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::SeqCst);
        }
    }
}

/// Waits until `is_so` returns true, but not for longer than [`LOADER_TIMEOUT`]. Returns whether
/// `is_so` returned true in time.
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

    /// Enters the loader, once no thread forks.
    pub(crate) fn enter(&self) -> LoaderVisit<'_> {
        let own = sys::thread_id();
        if self.has_thread(own) {
            // A library's destructor may close another library.
            return LoaderVisit(None);
        }
        loop {
            let is_free = wait_until(|| self.forks.load(Ordering::SeqCst) == 0);
            let at_loader = self.take_place(own);
            // Another thread may have begun to fork just now, without noticing this thread.
            if !is_free || at_loader.0.is_none() || self.forks.load(Ordering::SeqCst) == 0 {
                return at_loader;
            }
        }
    }

    /// Enters the loader without waiting. A thread calls this if a fork may already wait for it.
    pub(crate) fn enter_at_once(&self) -> LoaderVisit<'_> {
        self.take_place(sys::thread_id())
    }

    /// Whether this thread is in the loader. False if the list of threads was full when it entered.
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

    /// Prepares for a fork: waits until no other thread is in the loader, and lets no thread enter.
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

    /// Marks the threads that are in the loader now, except the thread `own`. Later forks do not
    /// wait for the marked threads.
    fn give_up(&self, own: i32) {
        let is_other = |thread: i32| (thread > 0 && thread != own).then_some(-thread);
        for place in &self.threads {
            let _ = place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_other);
        }
    }

    /// Lets threads enter the loader again, in the parent of a fork.
    pub(crate) fn after_fork(&self) {
        self.forks.fetch_sub(1, Ordering::SeqCst);
    }

    /// Removes all entries in a forked child, which has only one thread.
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
        // No fork waits again for a thread that was waited for in vain, until that thread enters
        // anew.
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

//! The states without a thread. They are in a lock-free stack, because a thread may be suspended or
//! end at any point.

use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_platform::sys::PAGE_SIZE;

use super::ThreadState;

/// A list of free states: a word about the first state. Each state has the address of the next one.
///
/// The lower bits of the word are the page number of the first state, and the upper bits are the
/// number of changes of the word. The number of changes is needed for a thread that is suspended
/// between reading the first state and taking it. Meanwhile, the same state may be first again, but
/// with another state behind it. The number wraps after 2^24 changes.
pub(super) struct FreeStates(AtomicU64);

const PAGE_BITS: u32 = 40;

impl FreeStates {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Removes all states. No other thread pushes or pops meanwhile.
    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Adds a state that its thread does not use any more.
    pub(super) fn push(&self, state: &'static ThreadState) {
        let at = std::ptr::from_ref(state).cast_mut();
        self.change(|first| {
            state.next_free.store(first, Ordering::Relaxed);
            Some(at)
        });
    }

    /// Takes a state, if there is one.
    pub(super) fn pop(&self) -> Option<&'static ThreadState> {
        let first = self.change(|first| {
            // SAFETY: no state of the list is freed (a forked child clears the list first). If
            // another thread has taken this state, the word has changed.
            let state = unsafe { first.as_ref()? };
            Some(state.next_free.load(Ordering::Relaxed))
        });
        // SAFETY: no state of the list is freed, and this one was the list's.
        first.and_then(|first| unsafe { first.as_ref() })
    }

    /// Replaces the first state by the result of `next`, whose argument is the current first state.
    /// Returns the previous first state; `None` if `next` returned `None`.
    fn change(
        &self,
        next: impl Fn(*mut ThreadState) -> Option<*mut ThreadState>,
    ) -> Option<*mut ThreadState> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let page = word & ((1 << PAGE_BITS) - 1);
            let first = std::ptr::with_exposed_provenance_mut(page as usize * PAGE_SIZE);
            let changes = (word >> PAGE_BITS).wrapping_add(1) << PAGE_BITS;
            let changed = changes | (next(first)?.expose_provenance() / PAGE_SIZE) as u64;
            match self
                .0
                .compare_exchange_weak(word, changed, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(first),
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use heapprof_platform::sys;

    fn state() -> &'static ThreadState {
        // SAFETY: zeroed memory is a valid state, and stays mapped.
        unsafe { &*sys::map(size_of::<ThreadState>()).cast() }
    }

    #[test]
    fn what_was_pushed_last_is_popped_first_and_once() {
        let free = FreeStates::new();
        assert!(free.pop().is_none());
        let states = [state(), state(), state()];
        states.iter().for_each(|state| free.push(state));
        for state in states.iter().rev() {
            assert!(std::ptr::eq(free.pop().unwrap(), *state));
        }
        assert!(free.pop().is_none());
        states.iter().for_each(|state| free.push(state));
        free.clear();
        assert!(free.pop().is_none());
    }

    /// Tests that threads that take and return states at the same time never have the same state,
    /// and that no state is lost.
    #[test]
    fn threads_share_no_state() {
        static FREE: FreeStates = FreeStates::new();
        static BOTH: AtomicUsize = AtomicUsize::new(0);
        (0..5).for_each(|_| FREE.push(state()));
        let work = || {
            for _ in 0..20_000 {
                if let Some(state) = FREE.pop() {
                    if state.inside.swap(true, Ordering::AcqRel) {
                        BOTH.fetch_add(1, Ordering::Relaxed);
                    }
                    state.inside.store(false, Ordering::Release);
                    FREE.push(state);
                }
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(BOTH.load(Ordering::Relaxed), 0);
        assert_eq!(std::iter::from_fn(|| FREE.pop()).count(), 5);
    }
}

//! The state of one interpreter's runtime in this process: its structures, and whether it may be
//! read now.
//!
//! The first runtime that is found is stored. Its structures are written only once, before the
//! state changes to [`ReadState::On`]. While the program may unload the library, the state is
//! [`ReadState::Paused`].

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};

use heapprof_memory::loaded_modules::LoadedObject;

use crate::loaded_objects;

/// The state of a runtime: whether it was found, and whether its stacks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ReadState {
    /// No runtime was found yet.
    NotFound,
    /// A thread has found a runtime and is storing it.
    BeingNoted,
    /// The runtime's library may be unloaded at this moment.
    Paused,
    /// The runtime's stacks are read.
    On,
    /// The runtime's structures are unknown, so it cannot be read.
    Unreadable,
    /// The runtime was given up, because the data that were read from it differ from the result of
    /// the runtime's own function.
    Differs,
    /// The runtime was given up, because the data that were read from it are implausible.
    Broken,
}

impl ReadState {
    /// Whether a runtime was found, but its stacks are never read again.
    pub(crate) const fn is_given_up(self) -> bool {
        matches!(self, Self::Unreadable | Self::Differs | Self::Broken)
    }

    const fn from_u8(state: u8) -> Self {
        match state {
            0 => Self::NotFound,
            1 => Self::BeingNoted,
            2 => Self::Paused,
            3 => Self::On,
            4 => Self::Unreadable,
            5 => Self::Differs,
            _ => Self::Broken,
        }
    }
}

/// State of one interpreter's runtime. `T` reads the runtime, and `E` is the reason why it can't be
/// read.
pub(crate) struct RuntimeState<T, E> {
    state: AtomicU8,
    found: UnsafeCell<Option<Result<T, E>>>,
    /// The object in which the runtime was found.
    object: UnsafeCell<Option<LoadedObject>>,
}

// SAFETY: what was found is written by the one thread that changed the state from `NotFound`,
// before the state says that it is there. It is written again only after the runtime's library was
// unloaded, whose code no thread runs then.
unsafe impl<T: Send + Sync, E: Send + Sync> Sync for RuntimeState<T, E> {}

impl<T, E> RuntimeState<T, E> {
    /// Makes a state without a runtime.
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU8::new(ReadState::NotFound as u8),
            found: UnsafeCell::new(None),
            object: UnsafeCell::new(None),
        }
    }

    /// Returns the state.
    #[inline(always)]
    pub(crate) fn state(&self) -> ReadState {
        ReadState::from_u8(self.state.load(Ordering::Acquire))
    }

    /// Whether the runtime's stacks are read.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.state.load(Ordering::Acquire) == ReadState::On as u8
    }

    /// Changes the state from `from` to `to`. Returns false if the state was not `from`.
    pub(crate) fn change(&self, from: ReadState, to: ReadState) -> bool {
        self.state
            .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Stores a runtime, if it is the first runtime that was found. `prepare` is called before
    /// other threads may read the runtime. Returns whether it was stored.
    pub(crate) fn note(
        &self,
        object: LoadedObject,
        found: Result<T, E>,
        prepare: impl FnOnce(&Result<T, E>),
    ) -> bool {
        if !self.change(ReadState::NotFound, ReadState::BeingNoted) {
            return false;
        }
        prepare(&found);
        let next = match found {
            Ok(_) => ReadState::On,
            Err(_) => ReadState::Unreadable,
        };
        // SAFETY: this thread alone changed the state from `NotFound`, and no thread reads either
        // before the next change.
        unsafe {
            *self.found.get() = Some(found);
            *self.object.get() = Some(object);
        }
        self.state.store(next as u8, Ordering::Release);
        true
    }

    /// Returns the runtime, or the reason why it can't be read; `None` if no runtime is stored yet.
    /// Does so in every state.
    #[inline(always)]
    pub(crate) fn found(&self) -> Option<&Result<T, E>> {
        match self.state() {
            ReadState::NotFound | ReadState::BeingNoted => None,
            // SAFETY: the argument for `Sync`.
            _ => unsafe { (*self.found.get()).as_ref() },
        }
    }

    /// Returns the runtime, if its stacks are read.
    #[inline(always)]
    pub(crate) fn active(&self) -> Option<&T> {
        if !self.is_on() {
            return None;
        }
        // SAFETY: the argument for `Sync`.
        unsafe { (*self.found.get()).as_ref()?.as_ref().ok() }
    }

    /// Returns the object in which the runtime was found.
    pub(crate) fn object(&self) -> Option<LoadedObject> {
        self.found()?;
        // SAFETY: the argument for `Sync`.
        unsafe { *self.object.get() }
    }

    /// Stops reading, because the library may be unloaded. Returns whether the runtime was read
    /// before.
    pub(crate) fn pause(&self) -> bool {
        self.change(ReadState::On, ReadState::Paused)
    }

    /// Ends a [`pause`](Self::pause). If the library is still loaded, the runtime is read again.
    /// Otherwise the state becomes [`ReadState::NotFound`], so that another runtime can be stored.
    /// `before` is called first, with true if the library is still loaded.
    pub(crate) fn resume(&self, before: impl FnOnce(bool)) {
        // SAFETY: the object is not written while the state is `Paused`.
        let object = unsafe { *self.object.get() };
        let is_there = object.is_some_and(loaded_objects::is_loaded);
        before(is_there);
        let next = match is_there {
            true => ReadState::On,
            false => ReadState::NotFound,
        };
        self.state.store(next as u8, Ordering::Release);
        if !is_there {
            loaded_objects::forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object that the test program has not loaded.
    const NOWHERE: LoadedObject = LoadedObject::at(1, 0);

    #[test]
    fn the_first_runtime_is_noted() {
        let runtime = RuntimeState::<u32, &str>::new();
        assert_eq!(
            (runtime.state(), runtime.found()),
            (ReadState::NotFound, None)
        );
        assert!(!runtime.pause());
        let mut prepared = None;
        assert!(runtime.note(NOWHERE, Ok(1), |found| prepared = found.ok()));
        assert_eq!(prepared, Some(1));
        assert_eq!(
            (runtime.state(), runtime.active()),
            (ReadState::On, Some(&1))
        );
        assert!(!runtime.note(NOWHERE, Ok(2), |_| panic!("there is one")));
        assert_eq!(runtime.active(), Some(&1));
    }

    #[test]
    fn one_that_cannot_be_read_says_why() {
        let runtime = RuntimeState::<u32, &str>::new();
        assert!(runtime.note(NOWHERE, Err("too new"), |_| ()));
        assert!(runtime.state().is_given_up() && !runtime.is_on());
        assert_eq!(
            (runtime.active(), runtime.found()),
            (None, Some(&Err("too new")))
        );
    }

    #[test]
    fn one_that_was_wrong_is_not_read_again() {
        let runtime = RuntimeState::<u32, &str>::new();
        runtime.note(NOWHERE, Ok(1), |_| ());
        assert!(runtime.change(ReadState::On, ReadState::Broken));
        assert!(!runtime.change(ReadState::On, ReadState::Differs));
        assert!(runtime.state().is_given_up() && !runtime.pause());
        assert_eq!(runtime.found(), Some(&Ok(1)));
    }

    #[test]
    fn a_library_that_is_gone_makes_room_for_the_next() {
        let runtime = RuntimeState::<u32, &str>::new();
        runtime.note(NOWHERE, Ok(1), |_| ());
        assert!(runtime.pause() && !runtime.pause());
        assert_eq!((runtime.active(), runtime.found()), (None, Some(&Ok(1))));
        let mut was_there = None;
        runtime.resume(|is_there| was_there = Some(is_there));
        assert_eq!(
            (was_there, runtime.state()),
            (Some(false), ReadState::NotFound)
        );
        assert!(runtime.note(NOWHERE, Ok(2), |_| ()));
        assert_eq!(runtime.active(), Some(&2));
    }

    #[test]
    fn states_survive_their_number() {
        for state in [
            ReadState::NotFound,
            ReadState::BeingNoted,
            ReadState::Paused,
            ReadState::On,
            ReadState::Unreadable,
            ReadState::Differs,
            ReadState::Broken,
        ] {
            assert_eq!(ReadState::from_u8(state as u8), state);
        }
    }
}

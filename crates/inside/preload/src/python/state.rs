//! The Python of this process, and the state of the thread that runs it.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, Ordering};

use heapprof_memory::loaded::LoadedObject;
use heapprof_memory::{Memory, OwnMemory};
use heapprof_python::{CurrentThreadState, PythonRuntime, UnreadablePython};

use super::objects::PYTHON_OBJECTS;
use crate::kernel_memory::KernelMemory;
use crate::objects;

/// The Python of this process.
pub static PYTHON: PythonStacks = PythonStacks::new();

/// What is known of the Python in this process.
pub struct PythonStacks {
    state: AtomicU8,
    known: UnsafeCell<Option<Result<PythonRuntime, UnreadablePython>>>,
    /// The object in which Python was found.
    object: UnsafeCell<Option<LoadedObject>>,
    /// The offset, from a thread's thread pointer, of the variable with the state that the thread
    /// runs with; 0 if that is not known.
    variable: AtomicI64,
    /// The number of frames that were read with care and found right. Threads may lose some of each
    /// other's counts.
    pub(super) frames: AtomicU32,
    /// The number of stacks, one after the other, that were found wrong.
    pub(super) failures: AtomicU32,
    /// Whether there was a stack with more frames than are walked.
    was_too_deep: AtomicBool,
}

/// State: no Python was found.
const NOT_FOUND: u8 = 0;
/// State: a thread has found a Python, and notes it.
const BEING_NOTED: u8 = 1;
/// State: Python's library may be unloaded at this moment.
const PAUSED: u8 = 2;
/// State: Python's stacks are read.
const ON: u8 = 3;
/// State: Python's structures are not known.
const UNREADABLE: u8 = 4;
/// State: what was read of Python was wrong.
const BROKEN: u8 = 5;

/// The number of frames that are read with care at first.
pub(super) const PROBATION_FRAMES: u32 = 512;
/// Maximum number of wrong stacks, one after the other. After that no more are read.
const MAX_FAILURES: u32 = 16;

// SAFETY: the Python that was found is written once, before the state says so.
unsafe impl Sync for PythonStacks {}

/// Returns the address from which this thread's thread-local memory is counted. It is also the
/// value of `pthread_self`.
fn thread_pointer() -> u64 {
    // SAFETY: it only says which thread this is.
    unsafe { libc::pthread_self() as u64 }
}

impl PythonStacks {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(NOT_FOUND),
            known: UnsafeCell::new(None),
            object: UnsafeCell::new(None),
            variable: AtomicI64::new(0),
            frames: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            was_too_deep: AtomicBool::new(false),
        }
    }

    /// Notes a Python, if it is the first one. Returns the addresses where its evaluator begins and
    /// ends.
    pub(super) fn note_python<M: Memory>(
        &'static self,
        memory: M,
        object: LoadedObject,
        found: Result<PythonRuntime, UnreadablePython>,
    ) -> Option<(u64, u64)> {
        let first = self.state.compare_exchange(
            NOT_FOUND,
            BEING_NOTED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        first.ok()?;
        let mut variable = None;
        let (state, evaluator) = match &found {
            Ok(python) => {
                if let CurrentThreadState::Own(local) = python.current {
                    variable = local.offset(memory, thread_pointer());
                }
                (ON, python.evaluator)
            }
            Err(_) => (UNREADABLE, (0, 0)),
        };
        self.variable
            .store(variable.unwrap_or(0), Ordering::Relaxed);
        self.frames.store(0, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
        if let Ok(python) = &found {
            PYTHON_OBJECTS.note_functions(memory, object, python.has_gil());
        }
        // SAFETY: this thread alone changed the state from `NOT_FOUND`, and no thread reads either
        // before the next change.
        unsafe {
            *self.known.get() = Some(found);
            *self.object.get() = Some(object);
        }
        self.state.store(state, Ordering::Release);
        Some(evaluator)
    }

    /// Returns the Python, if its stacks are read.
    #[inline(always)]
    pub(super) fn python(&self) -> Option<&PythonRuntime> {
        if self.state.load(Ordering::Acquire) != ON {
            return None;
        }
        // SAFETY: the Python is not written any more.
        unsafe { (*self.known.get()).as_ref()?.as_ref().ok() }
    }

    /// Returns why no stacks are read; `None` if they are, or if there is no Python.
    pub(super) fn why_not(&self) -> Option<String> {
        let state = self.state.load(Ordering::Acquire);
        if !matches!(state, UNREADABLE | BROKEN) {
            return None;
        }
        // SAFETY: the Python is not written any more.
        match unsafe { (*self.known.get()).as_ref()? } {
            Err(unreadable) => Some(unreadable.to_string()),
            Ok(python) => Some(format!(
                "what was read of Python {} is no stack of it",
                python.version
            )),
        }
    }

    /// Counts a stack that was wrong.
    #[cold]
    pub(super) fn count_failure(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) >= MAX_FAILURES {
            let _ = self
                .state
                .compare_exchange(ON, BROKEN, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Counts the frames of a stack that was read with care and is right.
    #[cold]
    pub(super) fn count_frames(&self, frames: usize) {
        self.failures.store(0, Ordering::Relaxed);
        let before = self.frames.load(Ordering::Relaxed);
        self.frames
            .store(before.saturating_add(frames as u32), Ordering::Relaxed);
    }

    /// Notes that a stack has more frames than are walked.
    #[cold]
    pub(super) fn note_too_deep(&self) {
        self.was_too_deep.store(true, Ordering::Relaxed);
    }

    /// Whether there was a stack with more frames than are walked.
    pub(super) fn was_too_deep(&self) -> bool {
        self.was_too_deep.load(Ordering::Relaxed)
    }

    /// Returns the state that this thread runs Python's code with, or, while it has released the
    /// GIL, the state in which its frames rest.
    #[inline(always)]
    pub(super) fn thread_state(&self, python: &PythonRuntime) -> Option<u64> {
        // SAFETY: these are variables of a Python that is not unloaded while it runs.
        let memory = unsafe { OwnMemory::new() };
        // While Python ends, it frees the states of other threads.
        let own = || {
            let key = python
                .key(memory)
                .filter(|_| python.is_initialized(memory))?;
            // SAFETY: Python has made the key.
            let found = unsafe { libc::pthread_getspecific(key) } as u64;
            Some(found).filter(|&found| found != 0)
        };
        let CurrentThreadState::Holder(at) = python.current else {
            let current = match self.variable.load(Ordering::Relaxed) {
                0 => 0,
                offset => read_local(offset),
            };
            return if current == 0 { own() } else { Some(current) };
        };
        let (own, holder) = (own()?, memory.u64(at)?);
        if own == holder || holder == 0 || !is_of_this_thread(python, holder) {
            return Some(own);
        }
        // Code of another interpreter, which this thread runs with another state.
        Some(holder)
    }

    /// Whether this thread, whose state this is, has the GIL of a Python that is initialized.
    pub(super) fn holds_gil(&self, python: &PythonRuntime, state: u64) -> bool {
        // SAFETY: these are variables of a Python that is not unloaded while it runs.
        let memory = unsafe { OwnMemory::new() };
        let current = match (python.current, self.variable.load(Ordering::Relaxed)) {
            (CurrentThreadState::Holder(at), _) => memory.u64(at),
            (_, 0) => None,
            (_, offset) => Some(read_local(offset)),
        };
        current == Some(state) && python.is_initialized(memory)
    }

    /// Reads no stacks while `close` runs, which may close the library that Python is in.
    pub fn around_unload<R>(&self, close: impl FnOnce() -> R) -> R {
        let pause = self
            .state
            .compare_exchange(ON, PAUSED, Ordering::AcqRel, Ordering::Relaxed);
        let result = close();
        if pause.is_ok() {
            // SAFETY: the object is not written while the state is `PAUSED`.
            let object = unsafe { *self.object.get() };
            let is_there = object.is_some_and(objects::is_loaded);
            let next = if is_there { ON } else { NOT_FOUND };
            self.state.store(next, Ordering::Release);
            if !is_there {
                objects::forget();
            }
        }
        result
    }
}

/// Whether the state of the thread with the GIL is a state of this thread. If it is another
/// thread's, it may be freed at any moment, so the kernel reads it.
#[cold]
fn is_of_this_thread(python: &PythonRuntime, state: u64) -> bool {
    let failed = Cell::new(false);
    python.is_state_of(KernelMemory { failed: &failed }, state, thread_pointer())
}

/// Reads the word at this offset from the thread pointer.
#[inline(always)]
fn read_local(offset: i64) -> u64 {
    let word;
    // SAFETY: it is a variable in the memory that the loader gave this thread at its beginning.
    unsafe {
        std::arch::asm!(
            "mov {word}, qword ptr fs:[{offset}]",
            word = out(reg) word,
            offset = in(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

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
    /// Where it was found.
    object: UnsafeCell<Option<LoadedObject>>,
    /// How far from the thread pointer a thread has the state that it runs with; 0 if that is not
    /// known.
    variable: AtomicI64,
    /// How many frames were read carefully and found right. Threads may lose some of each other's
    /// counts.
    pub(super) frames: AtomicU32,
    /// How many stacks were found wrong.
    pub(super) failures: AtomicU32,
    /// Whether there was a stack that is deeper than is walked.
    was_too_deep: AtomicBool,
}

/// Nobody has found a Python.
const NOT_FOUND: u8 = 0;
/// Somebody has, and notes it.
const BEING_NOTED: u8 = 1;
/// It may be closed at this moment.
const PAUSED: u8 = 2;
/// Its stacks are read.
const ON: u8 = 3;
/// Its structures are not known.
const UNREADABLE: u8 = 4;
/// What was read of it was wrong.
const BROKEN: u8 = 5;

/// So many frames are read carefully first.
pub(super) const PROBATION_FRAMES: u32 = 512;
/// So many stacks may be wrong, one after the other. Then no more are read.
const MAX_FAILURES: u32 = 16;

// SAFETY: what was found is written once, before the state says so.
unsafe impl Sync for PythonStacks {}

/// Where this thread's thread-local memory is counted from. It is `pthread_self`, too.
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

    /// Notes a Python, if it is the first one. Returns where its evaluator begins and ends.
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
        // SAFETY: this thread alone changed the state from `NOT_FOUND`, and nobody reads either
        // before the next change.
        unsafe {
            *self.known.get() = Some(found);
            *self.object.get() = Some(object);
        }
        self.state.store(state, Ordering::Release);
        Some(evaluator)
    }

    /// The Python, if its stacks are read.
    #[inline(always)]
    pub(super) fn python(&self) -> Option<&PythonRuntime> {
        if self.state.load(Ordering::Acquire) != ON {
            return None;
        }
        // SAFETY: it is not written any more.
        unsafe { (*self.known.get()).as_ref()?.as_ref().ok() }
    }

    /// Why no stacks are read; `None` if they are, or if there is no Python.
    pub(super) fn why_not(&self) -> Option<String> {
        let state = self.state.load(Ordering::Acquire);
        if !matches!(state, UNREADABLE | BROKEN) {
            return None;
        }
        // SAFETY: it is not written any more.
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

    /// Counts the frames of a stack that was read carefully and is right.
    #[cold]
    pub(super) fn count_frames(&self, frames: usize) {
        self.failures.store(0, Ordering::Relaxed);
        let before = self.frames.load(Ordering::Relaxed);
        self.frames
            .store(before.saturating_add(frames as u32), Ordering::Relaxed);
    }

    /// Notes that a stack is deeper than is walked.
    #[cold]
    pub(super) fn note_too_deep(&self) {
        self.was_too_deep.store(true, Ordering::Relaxed);
    }

    /// Whether there was a stack that is deeper than is walked.
    pub(super) fn was_too_deep(&self) -> bool {
        self.was_too_deep.load(Ordering::Relaxed)
    }

    /// The state that this thread runs Python's code with, or, while it has released the GIL, the
    /// state in which its frames rest.
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

    /// Whether the thread with this state, which is this one, holds the GIL of a Python that is
    /// initialized.
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
            // SAFETY: it is not written while the state is what it is.
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

/// Whether the state of whoever holds the GIL is one of this thread's. If it is another thread's,
/// it may be freed at any moment, so the kernel reads it.
#[cold]
fn is_of_this_thread(python: &PythonRuntime, state: u64) -> bool {
    let failed = Cell::new(false);
    python.is_state_of(KernelMemory { failed: &failed }, state, thread_pointer())
}

/// The word so far from the thread pointer.
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

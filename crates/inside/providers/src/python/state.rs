//! The state of the Python in this process, and the Python thread state of a thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use heapprof_memory::loaded_modules::LoadedObject;
use heapprof_memory::{Memory, OwnMemory};
use heapprof_platform::weak;
use heapprof_python::{CurrentThreadState, PythonRuntime, UnreadablePython};

use super::objects::PYTHON_OBJECTS;
use crate::kernel_memory::KernelMemory;
use crate::provider::{InterpreterProvider, ScannedObject};
use crate::runtime_state::{ReadState, RuntimeState};

/// The state of this process's Python.
pub static PYTHON: PythonStacks = PythonStacks::new();

/// State of the Python in a process.
pub struct PythonStacks {
    runtime: RuntimeState<PythonRuntime, UnreadablePython>,
    /// Offset from the thread pointer to the thread-local variable that holds Python's thread
    /// state; 0 if it is not known.
    variable: AtomicI64,
    /// Number of frames that passed all checks. The number may be too small, because threads count
    /// without synchronization.
    pub(super) frames: AtomicU32,
    /// Number of consecutive stacks that were found wrong.
    pub(super) failures: AtomicU32,
    /// Whether a stack had more frames than a walk reads.
    was_too_deep: AtomicBool,
}

/// Number of frames of a new Python that are read with checks. Later frames are read with checks
/// only now and then.
pub(super) const PROBATION_FRAMES: u32 = 512;
/// Maximum number of consecutive wrong stacks. After more of them, no stacks are read.
const MAX_FAILURES: u32 = 16;

/// Returns this thread's thread pointer, the base for offsets of thread-local variables. It equals
/// the value of `pthread_self`.
fn thread_pointer() -> u64 {
    // SAFETY: it only says which thread this is.
    unsafe { libc::pthread_self() as u64 }
}

impl PythonStacks {
    const fn new() -> Self {
        Self {
            runtime: RuntimeState::new(),
            variable: AtomicI64::new(0),
            frames: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            was_too_deep: AtomicBool::new(false),
        }
    }

    /// Stores a Python, if it is the first Python that was found. Before threads may read the
    /// Python's stacks, their provider is registered. Returns whether the Python was stored.
    fn note_python<M: Memory>(
        &'static self,
        memory: M,
        object: LoadedObject,
        found: Result<PythonRuntime, UnreadablePython>,
    ) -> bool {
        let evaluator = found.as_ref().map_or((0, 0), |python| python.evaluator);
        self.runtime.note(object, found, |found| {
            let mut variable = None;
            if let Ok(python) = found {
                if let CurrentThreadState::Own(local) = python.current {
                    variable = local.offset(memory, thread_pointer(), weak::is_glibc());
                }
                PYTHON_OBJECTS.note_functions(memory, object, python.has_gil());
            }
            self.variable
                .store(variable.unwrap_or(0), Ordering::Relaxed);
            self.frames.store(0, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
            super::register(evaluator);
        })
    }

    /// Returns the Python, if its stacks may be read now.
    #[inline(always)]
    pub(super) fn python(&self) -> Option<&PythonRuntime> {
        self.runtime.active()
    }

    /// Returns the reason why no stacks are read; `None` if stacks are read, or if there is no
    /// Python.
    pub(super) fn why_not(&self) -> Option<String> {
        if !self.runtime.state().is_given_up() {
            return None;
        }
        match self.runtime.found()? {
            Err(unreadable) => Some(unreadable.to_string()),
            Ok(python) => Some(format!(
                "what was read of Python {} is not a valid stack",
                python.version
            )),
        }
    }

    /// Counts a wrong stack. After too many wrong stacks, Python's stacks are not read any more.
    #[cold]
    pub(super) fn count_failure(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) >= MAX_FAILURES {
            self.runtime.change(ReadState::On, ReadState::Broken);
        }
    }

    /// Counts the frames of a stack that has passed all checks.
    #[cold]
    pub(super) fn count_frames(&self, frames: usize) {
        self.failures.store(0, Ordering::Relaxed);
        let before = self.frames.load(Ordering::Relaxed);
        self.frames
            .store(before.saturating_add(frames as u32), Ordering::Relaxed);
    }

    /// Records that a stack had more frames than a walk reads.
    #[cold]
    pub(super) fn note_too_deep(&self) {
        self.was_too_deep.store(true, Ordering::Relaxed);
    }

    /// Whether a stack had more frames than a walk reads.
    pub(super) fn was_too_deep(&self) -> bool {
        self.was_too_deep.load(Ordering::Relaxed)
    }

    /// Returns the address of this thread's Python thread state, even while the thread has released
    /// the GIL.
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

    /// Whether this thread, whose thread state is `state`, has the GIL of an initialized Python.
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
}

impl InterpreterProvider for PythonStacks {
    fn examine<M: Memory>(&'static self, memory: M, object: &ScannedObject) {
        if let Some(found) = PythonRuntime::find(memory, object.object) {
            let is_noted = self.note_python(memory, object.object, found);
            if is_noted && object.is_early && self.python().is_some() {
                // SAFETY: there are no other threads.
                unsafe { PYTHON_OBJECTS.check_wrappers(false) };
            }
        }
    }

    fn pause(&self) -> bool {
        self.runtime.pause()
    }

    fn resume(&self) {
        self.runtime.resume(|_| ());
    }
}

/// Whether `state`, the state of the thread with the GIL, belongs to this thread. If it belongs to
/// another thread, it may be freed at any moment, so a system call reads it.
#[cold]
fn is_of_this_thread(python: &PythonRuntime, state: u64) -> bool {
    let failed = Cell::new(false);
    python.is_state_of(KernelMemory { failed: &failed }, state, thread_pointer())
}

/// Reads the word at an offset from the thread pointer.
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

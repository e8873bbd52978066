//! An interpreter whose values are traced.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use heapprof_engine::{ENGINE, StackNumber, ValueTracer};
use heapprof_platform::sys;

use super::heads::{HeadTable, HeadTableError, HeadTableRoots, UNKNOWN_STACK, UNSEEN_STACK};

/// An interpreter whose values are traced. After each op, Devel::HeapProf reads the first two words
/// of this structure.
#[repr(C)]
pub struct TracedInterpreter {
    /// Address of the first free head at the last comparison with Perl's list.
    first: AtomicU64,
    /// Perl's count of values at the last comparison with Perl's list.
    count: AtomicI64,
    /// The addresses of Perl's variables for the first free head, the newest arena and the count of
    /// values.
    roots: [u64; 3],
    /// The interpreter's address.
    pub(in crate::perl) at: u64,
    /// Perl's flag for a variable that its pad keeps until its `my` runs again.
    pub(in crate::perl) stale_flag: u32,
    /// The recording to which the stack numbers belong.
    recording: AtomicU64,
    state: AtomicU8,
    /// Origin of the interpreter, from which [`unseen_stack_text`](super::unseen_stack_text) makes
    /// the text for an unknown stack.
    pub(in crate::perl) origin: AtomicU8,
    is_taken: AtomicBool,
    heads: UnsafeCell<HeadTable>,
}

// SAFETY: the heads belong to the thread that has set `is_taken`.
unsafe impl Sync for TracedInterpreter {}

/// State: values are traced.
pub(in crate::perl) const TRACING: u8 = 0;
/// State: tracing has ended, because there is no memory.
pub(in crate::perl) const NO_MEMORY: u8 = 1;
/// State: tracing has ended, because the list of heads does not have the form that Perl gives it.
pub(in crate::perl) const BROKEN_LIST: u8 = 2;
/// State: tracing has ended, because the program has ended.
pub(in crate::perl) const PROGRAM_ENDED: u8 = 3;

/// Captures the stack of this thread's interpreter; [`UNKNOWN_STACK`] if it can't be read.
fn current_stack(tracer: &mut ValueTracer) -> StackNumber {
    tracer.stack().unwrap_or(UNKNOWN_STACK)
}

impl TracedInterpreter {
    /// Makes a traced interpreter, which is never freed; `None` if there is no memory.
    pub(in crate::perl) fn new(
        at: u64,
        roots: [u64; 3],
        of_stale: u32,
        origin: u8,
    ) -> Option<&'static Self> {
        let memory = sys::map(size_of::<Self>()).cast::<Self>();
        if memory.is_null() {
            return None;
        }
        // SAFETY: new memory, which no other code uses.
        unsafe {
            memory.write(Self {
                first: AtomicU64::new(u64::MAX),
                count: AtomicI64::new(-1),
                roots,
                at,
                stale_flag: of_stale,
                recording: AtomicU64::new(ENGINE.stack_providers().recording_epoch().to_u64()),
                state: AtomicU8::new(TRACING),
                origin: AtomicU8::new(origin),
                is_taken: AtomicBool::new(false),
                heads: UnsafeCell::new(HeadTable::new()),
            });
            Some(&*memory)
        }
    }

    pub(in crate::perl) fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// Ends tracing. `why` is the new state.
    pub(in crate::perl) fn end(&self, why: u8) {
        self.state.store(why, Ordering::Release);
    }

    /// Runs `work` with the interpreter's heads; `None` if another thread keeps them locked. If a
    /// fork happens while a thread has the heads locked, they stay locked in the child. This does
    /// no harm, because no thread of the child runs this interpreter.
    pub(in crate::perl) fn with<R>(&self, work: impl FnOnce(&mut HeadTable) -> R) -> Option<R> {
        /// Maximum number of attempts to lock the heads. The interpreter's own thread nearly always
        /// has the heads locked for less than a microsecond.
        const MAX_ATTEMPTS: u32 = 100_000;
        for _ in 0..MAX_ATTEMPTS {
            if self.is_taken.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            } else if !self.is_taken.swap(true, Ordering::Acquire) {
                return Some(self.with_taken(work));
            }
        }
        None
    }

    /// Runs `work` with the interpreter's heads, without waiting; `None` if another thread has them
    /// locked. This is for the thread that runs the interpreter.
    fn with_now<R>(&self, work: impl FnOnce(&mut HeadTable) -> R) -> Option<R> {
        let is_free = !self.is_taken.swap(true, Ordering::Acquire);
        is_free.then(|| self.with_taken(work))
    }

    fn with_taken<R>(&self, work: impl FnOnce(&mut HeadTable) -> R) -> R {
        // SAFETY: one thread has taken the heads at a time.
        let heads = unsafe { &mut *self.heads.get() };
        let recording = ENGINE.stack_providers().recording_epoch().to_u64();
        if self.recording.load(Ordering::Relaxed) != recording {
            self.recording.store(recording, Ordering::Relaxed);
            heads.forget();
        }
        let done = work(heads);
        self.is_taken.store(false, Ordering::Release);
        done
    }

    /// Frees the memory of the table of heads.
    pub(in crate::perl) fn clear(&self) {
        self.with(|heads| *heads = HeadTable::new());
    }

    fn read_roots(&self) -> HeadTableRoots {
        let [first, arena, count] = self.roots;
        // SAFETY: these are variables of an interpreter that this thread runs.
        unsafe {
            HeadTableRoots {
                first: (first as *const u64).read(),
                arena: (arena as *const u64).read(),
                count: (count as *const i64).read(),
            }
        }
    }

    /// Tracks the changes that an op has made to values. Returns the number of values that were
    /// made.
    ///
    /// # Safety
    /// This thread runs the interpreter.
    pub(in crate::perl) unsafe fn follow(&self) -> usize {
        let traced = ENGINE.events().trace(|_| {
            let roots = self.read_roots();
            if self.state() != TRACING {
                self.note(roots);
                return 0;
            }
            // SAFETY: the caller's promise.
            let followed = self.with_now(|heads| unsafe { heads.follow(roots) });
            self.note(roots);
            match followed {
                Some(Ok(made)) => made,
                Some(Err(wrong)) => {
                    self.end(match wrong {
                        HeadTableError::NoMemory => NO_MEMORY,
                        HeadTableError::BrokenList => BROKEN_LIST,
                    });
                    0
                }
                // A dump reads the heads: the next op calls this once more.
                None => {
                    self.first.store(u64::MAX, Ordering::Relaxed);
                    0
                }
            }
        });
        traced.unwrap_or(0)
    }

    fn note(&self, roots: HeadTableRoots) {
        self.first.store(roots.first, Ordering::Relaxed);
        self.count.store(roots.count, Ordering::Relaxed);
    }

    /// Records this thread's stack for the new values of the last [`follow`](Self::follow).
    pub(in crate::perl) fn note_made(&self, moment: u32) {
        self.note_made_by(moment, current_stack);
    }

    /// Records that the new values of the last [`follow`](Self::follow) have an unknown stack,
    /// because they were made before tracing.
    pub(in crate::perl) fn note_made_before(&self) {
        self.note_made_by(0, |_| UNSEEN_STACK);
    }

    fn note_made_by(&self, moment: u32, stack: impl FnOnce(&mut ValueTracer) -> StackNumber) {
        ENGINE.events().trace(|tracer| {
            let stack = stack(tracer);
            let done = self.with_now(|heads| heads.note_made_by(stack, moment));
            if done == Some(false) {
                self.end(NO_MEMORY);
            }
        });
    }

    /// Stores the type and body of all current values, to find later changes by the compiler.
    ///
    /// # Safety
    /// This thread runs the interpreter.
    pub(in crate::perl) unsafe fn remember(&self) {
        // SAFETY: the caller's promise. Without memory they count as what they were.
        self.with_now(|heads| unsafe { heads.remember() });
    }

    /// Finds the values that the compiler has made. This is called when the program begins to run.
    ///
    /// # Safety
    /// This thread runs the interpreter.
    pub(in crate::perl) unsafe fn note_compiled(&self) {
        // SAFETY: the caller's promise.
        ENGINE
            .events()
            .trace(|_| self.with_now(|heads| unsafe { heads.compare_with_before() }));
    }

    /// Records that this thread has run the `my` of some variables. From now on, the variables
    /// count for the current stack. `variables` holds the addresses of their heads.
    pub(in crate::perl) fn note_my_run(&self, variables: &[u64], moment: u32, mark: Option<u32>) {
        if self.state() != TRACING {
            return;
        }
        ENGINE.events().trace(|tracer| {
            for &at in variables {
                let number = self.with_now(|heads| heads.renew_value(at, mark));
                let Some(Some(number)) = number else { continue };
                let stack = current_stack(tracer);
                let done = self.with_now(|heads| heads.note_remade_by(number, stack, moment));
                if done == Some(false) {
                    self.end(NO_MEMORY);
                }
            }
        });
    }
}

//! The state of the perl in this process and of its interpreters.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use heapprof_engine::{ENGINE, FrameChoice};
use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::LoadedObject;
use heapprof_perl::{PerlLayout, PerlRuntime, UnreadablePerl};

use super::arenas::{ArenaHoldings, LeftArenas, read_holdings};
use super::timed_lock::TurnLock;
use super::values::PerlValueTracker;
use crate::kernel_memory::KernelMemory;
use crate::loaded_objects::loaded_objects;
use crate::provider::{InterpreterProvider, ScannedObject};
use crate::runtime_state::{ReadState, RuntimeState};

/// The state of this process's perl.
pub static PERL: PerlStacks = PerlStacks::new();

/// State of the perl in a process and of its interpreters.
pub struct PerlStacks {
    pub(super) runtime: RuntimeState<PerlRuntime, UnreadablePerl>,
    /// The perl with the layout that Devel::HeapProf reported. It is valid once the field
    /// `layout_report` is [`LAYOUT_REPORTED`].
    by_module: UnsafeCell<Option<PerlRuntime>>,
    layout_report: AtomicU8,
    pub(super) op_names: UnsafeCell<OpNames>,
    pub(super) interpreters: [InterpreterSlot; 64],
    /// Number of interpreters that were ever found.
    pub(super) count: AtomicU32,
    /// Number of events after which threads must check their stored data again: freed interpreters,
    /// closings of perl's library, and other changes.
    pub(super) changes: AtomicU32,
    pub(super) keeps_eval_numbers: AtomicBool,
    /// Whether an interpreter has passed its first checks: enough of its stacks were read
    /// correctly.
    pub(super) is_believed: AtomicBool,
    pub(super) left: LeftArenas,
    pub(super) values: PerlValueTracker,
    noting: TurnLock,
    /// Whether there were ever more live interpreters than slots.
    pub(super) has_too_many: AtomicBool,
}

/// State of the layout report: no layout was reported yet.
const LAYOUT_ABSENT: u8 = 0;
/// State of the layout report: a thread is storing a layout.
const LAYOUT_ARRIVING: u8 = 1;
/// State of the layout report: a layout was reported.
const LAYOUT_REPORTED: u8 = 2;

/// Names of ops, each terminated by a zero.
pub(super) struct OpNames(pub(super) [[u8; 24]; 512]);

// SAFETY: the perl that was found is written once, before the state says so.
unsafe impl Sync for PerlStacks {}

/// Slot for an interpreter, which may have been freed.
#[repr(align(64))]
pub(super) struct InterpreterSlot {
    /// The interpreter's address; 0 if this slot was never used, and [`GONE_INTERPRETER`] if the
    /// interpreter was freed.
    pub(super) at: AtomicU64,
    /// Number of interpreters that were found before this one.
    pub(super) number: AtomicU32,
    /// Number of the interpreter's stacks that were read correctly. The number may be too small,
    /// because threads count without synchronization.
    pub(super) stacks: AtomicU32,
    /// Id of the thread that runs the interpreter; 0 if it is not known yet.
    pub(super) thread: AtomicU64,
    /// Whether the interpreter was also active in another thread. If so, its stacks are read only
    /// by a thread that certainly runs it.
    pub(super) is_contested: AtomicBool,
    /// Number of the interpreter's stacks in which a read failed, because an address was wrong.
    pub(super) failures: AtomicU32,
    /// Whether Devel::HeapProf stores calls of C subs in `call`.
    pub(super) has_calls: AtomicBool,
    /// The current call of a C sub, stored by Devel::HeapProf: the sub, the op, the context stack,
    /// and the number of the newest context.
    pub(super) call: [AtomicU64; 4],
}

/// Value that replaces the address in the slot of a freed interpreter.
pub(super) const GONE_INTERPRETER: u64 = u64::MAX;
/// Maximum number of failed stacks of an interpreter. After them, the interpreter is not read any
/// more.
pub(super) const MAX_FAILURES: u32 = 64;
/// Number of stacks of a new interpreter that are read by system calls. Later stacks are read
/// directly.
pub(super) const PROBATION_STACKS: u32 = 64;
/// Number of stacks that a thread captures between two comparisons with the result of
/// `Perl_caller_cx`. In a debug build, every second stack is compared.
pub(super) const COMPARE_INTERVAL: u32 = if cfg!(debug_assertions) { 1 } else { 4096 };

impl PerlStacks {
    const fn new() -> Self {
        Self {
            runtime: RuntimeState::new(),
            by_module: UnsafeCell::new(None),
            layout_report: AtomicU8::new(LAYOUT_ABSENT),
            op_names: UnsafeCell::new(OpNames([[0; 24]; 512])),
            interpreters: [const {
                InterpreterSlot {
                    at: AtomicU64::new(0),
                    number: AtomicU32::new(0),
                    stacks: AtomicU32::new(0),
                    thread: AtomicU64::new(0),
                    is_contested: AtomicBool::new(false),
                    failures: AtomicU32::new(0),
                    has_calls: AtomicBool::new(false),
                    call: [const { AtomicU64::new(0) }; 4],
                }
            }; 64],
            count: AtomicU32::new(0),
            changes: AtomicU32::new(0),
            keeps_eval_numbers: AtomicBool::new(false),
            is_believed: AtomicBool::new(false),
            left: LeftArenas::new(),
            values: PerlValueTracker::new(),
            noting: TurnLock::new(),
            has_too_many: AtomicBool::new(false),
        }
    }

    /// Sets whether frames of evals show their numbers, as in `(eval 12)`.
    pub fn keep_eval_numbers(&self, keeps: bool) {
        self.keeps_eval_numbers.store(keeps, Ordering::Relaxed);
    }

    /// Stores a perl, if it is the first perl that was found. Before threads may read the perl's
    /// stacks, their provider is registered.
    fn note_perl<M: Memory>(
        &'static self,
        memory: M,
        object: LoadedObject,
        found: Result<PerlRuntime, UnreadablePerl>,
    ) {
        let run_loop = match &found {
            Ok(perl) => perl.run_loop,
            Err(_) => PerlRuntime::run_loop_of(memory, object),
        };
        self.runtime.note(object, found, |found| {
            if let Ok(perl) = found {
                // SAFETY: nobody reads the names before the perl was noted.
                unsafe { self.name_ops(memory, perl) };
            }
            super::register(run_loop);
        });
    }

    /// Returns the perl, if its stacks may be read now.
    #[inline(always)]
    pub(super) fn perl(&self) -> Option<&PerlRuntime> {
        if !self.runtime.is_on() {
            return None;
        }
        self.known_perl()
    }

    /// Returns the perl, even if its stacks are no longer read.
    pub(super) fn known_perl(&self) -> Option<&PerlRuntime> {
        let found = self.runtime.found()?;
        if self.layout_report.load(Ordering::Acquire) == LAYOUT_REPORTED {
            // SAFETY: the perl is not written any more.
            return unsafe { (*self.by_module.get()).as_ref() };
        }
        found.as_ref().ok()
    }

    /// Stores the layout of perl's structures. It comes from a module that was compiled with perl's
    /// headers. Returns an errno if there is no perl, or if the layout does not fit the perl.
    pub fn report_layout(&self, layout: PerlLayout) -> Result<(), c_int> {
        let state = self.runtime.state();
        if state != ReadState::On && !state.is_given_up() {
            return Err(libc::ENOENT);
        }
        let Some(object) = self.runtime.object() else {
            return Err(libc::ENOENT);
        };
        let failed = Cell::new(false);
        let memory = KernelMemory { failed: &failed };
        let executable = loaded_objects(memory).next();
        let Some(Ok(perl)) = PerlRuntime::find_with(memory, object, executable, Some(layout))
        else {
            return Err(libc::EINVAL);
        };
        if self
            .known_perl()
            .is_some_and(|known| known.reads_same_places(&perl))
            && state == ReadState::On
        {
            return Ok(());
        }
        let first = self.layout_report.compare_exchange(
            LAYOUT_ABSENT,
            LAYOUT_ARRIVING,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if first.is_err() {
            return Ok(());
        }
        // SAFETY: only this thread reports a layout, and no thread reads either before it has
        // reported. The names of ops are read if a perl is known, and then they are there.
        unsafe {
            if self.known_perl().is_none() {
                self.name_ops(memory, &perl);
            }
            *self.by_module.get() = Some(perl);
        }
        self.is_believed.store(false, Ordering::Relaxed);
        for known in &self.interpreters {
            known.stacks.store(0, Ordering::Relaxed);
            known.failures.store(0, Ordering::Relaxed);
        }
        self.layout_report.store(LAYOUT_REPORTED, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
        // Another thread may be closing the library. Then that thread sets the next state.
        self.runtime.change(state, ReadState::On);
        Ok(())
    }

    /// Returns the words in which Devel::HeapProf stores the calls of C subs by the interpreter at
    /// `at`; `None` if there is no readable perl or no slot for the interpreter.
    pub fn calls_of(&self, at: u64) -> Option<&[AtomicU64; 4]> {
        self.perl()?;
        let interpreter = self.interpreter(at.max(1))?;
        interpreter.has_calls.store(true, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::AcqRel);
        Some(&interpreter.call)
    }

    /// Stores the names of ops.
    ///
    /// # Safety
    /// No thread reads or writes the names meanwhile.
    unsafe fn name_ops<M: Memory>(&self, memory: M, perl: &PerlRuntime) {
        // SAFETY: the caller's promise.
        let names = unsafe { &mut (*self.op_names.get()).0 };
        for (op, name) in names.iter_mut().enumerate().take(perl.ops().into()) {
            let last = name.len() - 1;
            if perl.op_name(memory, op as u16, &mut name[..last]).is_none() {
                name[0] = 0;
            }
        }
    }

    pub(super) fn switch_off(&self, why: ReadState) {
        self.runtime.change(ReadState::On, why);
    }

    /// Whether perl's structures can't be read. This is assumed if no interpreter passed its first
    /// checks, and at least one interpreter was given up.
    pub(super) fn is_broken(&self) -> bool {
        let is_given_up =
            |of: &InterpreterSlot| of.failures.load(Ordering::Relaxed) >= MAX_FAILURES;
        !self.is_believed.load(Ordering::Relaxed) && self.interpreters.iter().any(is_given_up)
    }

    /// Iterates over all slots in the order in which they are searched for the interpreter at `at`.
    pub(super) fn probe_slots(&self, at: u64) -> impl Iterator<Item = &InterpreterSlot> {
        let first = (at >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        (0..self.interpreters.len()).map(move |i| &self.interpreters[(first as usize + i) & 63])
    }

    /// Returns the slot of the interpreter at `at`, if it has one.
    pub(super) fn known_interpreter(&self, at: u64) -> Option<&InterpreterSlot> {
        let is_it = |found: &&InterpreterSlot| found.at.load(Ordering::Relaxed) == at;
        let was_taken = |found: &&InterpreterSlot| found.at.load(Ordering::Relaxed) != 0;
        self.probe_slots(at).take_while(was_taken).find(is_it)
    }

    /// Returns the slot of the interpreter at `at`. A new interpreter gets a slot; `None` if none
    /// is free.
    pub(super) fn interpreter(&self, at: u64) -> Option<&InterpreterSlot> {
        if let Some(known) = self.known_interpreter(at) {
            return Some(known);
        }
        // Two threads may meet it at once: the one that made it, and the one that is to run it.
        self.noting.with(|| self.note(at)).flatten()
    }

    fn note(&self, at: u64) -> Option<&InterpreterSlot> {
        if let Some(known) = self.known_interpreter(at) {
            return Some(known);
        }
        let take = |found: &&InterpreterSlot| {
            let free = found.at.load(Ordering::Relaxed);
            let took = |free: u64| {
                found
                    .at
                    .compare_exchange(free, at, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            };
            (free == 0 || free == GONE_INTERPRETER) && took(free)
        };
        let Some(new) = self.probe_slots(at).find(take) else {
            self.has_too_many.store(true, Ordering::Relaxed);
            return None;
        };
        if !ENGINE
            .stack_providers()
            .watch(at as usize, forget_interpreter)
        {
            new.at.store(GONE_INTERPRETER, Ordering::Release);
            return None;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        new.number.store(number, Ordering::Relaxed);
        new.stacks.store(0, Ordering::Relaxed);
        new.failures.store(0, Ordering::Relaxed);
        new.has_calls.store(false, Ordering::Relaxed);
        new.call[0].store(0, Ordering::Relaxed);
        new.thread.store(0, Ordering::Relaxed);
        new.is_contested.store(false, Ordering::Release);
        Some(new)
    }

    /// Stores the content of the arenas of an interpreter that is about to be freed.
    pub(super) fn keep_arenas(&self, at: u64) {
        if ENGINE.stack_providers().frame_choice() == FrameChoice::Native {
            return;
        }
        let Some(perl) = self.perl() else { return };
        let held = read_holdings(perl, at);
        let mut unread = ArenaHoldings::NONE;
        unread.unread = 1;
        self.left.with(|left| left.add(&held.unwrap_or(unread)));
    }

    /// Returns a number that changes whenever the data that threads have stored may be outdated.
    #[inline(always)]
    pub(super) fn moment(&self) -> u32 {
        let recording = ENGINE.stack_providers().recording_epoch().to_u64() as u32;
        recording.wrapping_add(self.changes.load(Ordering::Relaxed))
    }
}

impl InterpreterProvider for PerlStacks {
    fn examine<M: Memory>(&'static self, memory: M, object: &ScannedObject) {
        if let Some(found) = PerlRuntime::find(memory, object.object, object.executable) {
            self.note_perl(memory, object.object, found);
        }
    }

    fn pause(&self) -> bool {
        self.runtime.pause()
    }

    fn resume(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.runtime.resume(|is_there| {
            if !is_there {
                self.layout_report.store(LAYOUT_ABSENT, Ordering::Release);
            }
        });
    }
}

/// Forgets an interpreter. The engine calls this before the interpreter is freed.
pub(super) fn forget_interpreter(at: usize) {
    PERL.keep_arenas(at as u64);
    PERL.forget_values(at as u64);
    PERL.changes.fetch_add(1, Ordering::AcqRel);
    if let Some(known) = PERL.known_interpreter(at as u64) {
        known.at.store(GONE_INTERPRETER, Ordering::Release);
    }
}

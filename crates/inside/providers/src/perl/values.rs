//! The live values of Perl's interpreters, and the stack that made each of them.
//!
//! Devel::HeapProf replaces Perl's run loop. The new run loop reports after each op whether values
//! were made or freed, so each value is known exactly. The allocations of arenas show less: an
//! arena for many values is allocated by the code that needs a value when the free list is empty.
//!
//! * `values/heads.rs`: the heads with a value, and the stacks that made the values.
//! * `values/traced_interpreter.rs`: an interpreter whose values are traced.
//! * `values/rows.rs`: the live values, counted.
//! * `values/mapped_list.rs`: lists in separate mappings.

mod heads;
mod mapped_list;
mod rows;
mod traced_interpreter;

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use heapprof_engine::{ENGINE, RecordingEpoch, StackNumber, TracedValues};
use heapprof_perl::{PerlRuntime, TYPE_NAMES};

use self::heads::{COMPILED_STACK, NEWER_STACK, RESTING_STACK, UNKNOWN_STACK, UNSEEN_STACK};
use self::mapped_list::MappedVec;
use self::rows::PerlLabelTexts;
pub(super) use self::rows::{IS_VALUE, PerlValueFilter, PerlValueRow, PerlValueRows, split_label};
pub use self::traced_interpreter::TracedInterpreter;
pub(super) use self::traced_interpreter::{BROKEN_LIST, NO_MEMORY, PROGRAM_ENDED, TRACING};
use super::timed_lock::TurnLock;

/// The traced values of all interpreters.
pub(super) struct PerlValueTracker {
    pub(super) wanted: AtomicU8,
    pub(super) traced: [AtomicPtr<TracedInterpreter>; 64],
    /// Number of the current section of the program. It grows with each mark, and distinguishes
    /// values made before and after a mark.
    pub(super) moment: AtomicU32,
    turn: TurnLock,
    shared: UnsafeCell<SharedValueState>,
    /// Whether some values could not be read for the latest profile.
    pub(super) lacks_some: AtomicBool,
    /// Whether values are missing from all later profiles: the values of an ended interpreter could
    /// not be stored, or another thread had them locked while a profile was made.
    pub(super) has_lost: AtomicBool,
    /// Whether an interpreter ended after the recording was stopped.
    pub(super) is_stopped: AtomicBool,
    /// Whether another module's run loop ran the program.
    pub(super) is_replaced: AtomicBool,
}

/// The value of `moment` before the first mark.
pub(super) const FIRST_MOMENT: u32 = 1;

/// State of a [`PerlValueTracker`] that only the thread with the tracker's lock may use.
pub(super) struct SharedValueState {
    pub(super) names: PerlLabelTexts,
    /// The marks, two words each: the value of `moment`, and the number of the mark's text.
    pub(super) marks: MappedVec<u64>,
    /// The values of interpreters that have ended.
    pub(super) left: PerlValueRows,
    /// The recording to which the stack numbers in this state belong.
    pub(super) recording: RecordingEpoch,
    /// The rows for the profile that is being written.
    pub(super) shown: PerlValueRows,
}

// SAFETY: the shared state belongs to the thread with the lock.
unsafe impl Sync for PerlValueTracker {}

/// The user's choice about tracing Perl's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueRequest {
    /// Values are not traced.
    Nothing = 0,
    /// Values are traced in programs that load Devel::HeapProf.
    Values = 1,
    /// Values are traced. A program that does not load Devel::HeapProf must not run.
    ValuesOrNothing = 2,
}

/// The values with the same stack and kind that are still alive after a block of Perl code.
pub struct LeftoverValues {
    /// The frames, one on each line, newest first.
    pub stack: String,
    pub kind: &'static str,
    pub class: String,
    pub objects: u64,
    pub bytes: u64,
}

/// Returns the text that a profile shows for an unknown stack: the reason why the stack is unknown.
pub(super) fn unseen_stack_text(stack: StackNumber, origin: u32) -> &'static CStr {
    match (stack, origin) {
        (NEWER_STACK, _) => c"(made just now)",
        (UNKNOWN_STACK, _) => c"(stack not known)",
        (COMPILED_STACK, _) => c"(compiled before the run)",
        (RESTING_STACK, _) => c"(variables of subs at rest)",
        (_, 0) => c"(before the recording)",
        _ => c"(copied for a thread)",
    }
}

impl PerlValueTracker {
    pub(super) const fn new() -> Self {
        Self {
            wanted: AtomicU8::new(0),
            traced: [const { AtomicPtr::new(std::ptr::null_mut()) }; 64],
            moment: AtomicU32::new(FIRST_MOMENT),
            turn: TurnLock::new(),
            shared: UnsafeCell::new(SharedValueState {
                names: PerlLabelTexts::new(),
                marks: MappedVec::new(),
                left: PerlValueRows::new(),
                recording: RecordingEpoch::from_u64(0),
                shown: PerlValueRows::new(),
            }),
            lacks_some: AtomicBool::new(false),
            has_lost: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
        }
    }

    pub(super) fn with<R>(&self, work: impl FnOnce(&mut SharedValueState) -> R) -> Option<R> {
        self.turn.with(|| {
            // SAFETY: one thread has the lock at a time.
            let shared = unsafe { &mut *self.shared.get() };
            let recording = ENGINE.stack_providers().recording_epoch();
            if shared.recording != recording {
                (shared.recording, shared.left) = (recording, PerlValueRows::new());
            }
            work(shared)
        })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'static TracedInterpreter> {
        // SAFETY: traced interpreters stay for good.
        let of = |place: &AtomicPtr<TracedInterpreter>| unsafe {
            place.load(Ordering::Acquire).as_ref()
        };
        self.traced.iter().filter_map(of)
    }
}

impl SharedValueState {
    /// Adds the values of an interpreter to the rows for the profile, or to the rows of ended
    /// interpreters. Returns false if some values could not be read.
    pub(super) fn add(
        &mut self,
        perl: &PerlRuntime,
        traced: &TracedInterpreter,
        is_left: bool,
    ) -> bool {
        let wanted = PerlValueFilter {
            since: 0,
            stale: true,
        };
        let (marks, names) = (&self.marks, &mut self.names);
        let rows = if is_left {
            &mut self.left
        } else {
            &mut self.shown
        };
        let mark = |moment| mark_at(marks, moment);
        rows.add_values(perl, traced, names, wanted, mark)
    }
}

/// Returns the number, counted from 1, of the last mark at or before a moment; 0 if there is none.
fn mark_at(marks: &MappedVec<u64>, moment: u32) -> u32 {
    let marks: &[[u64; 2]] = marks.all().as_chunks().0;
    marks.partition_point(|&[at, _]| at <= u64::from(moment)) as u32
}

/// Returns the frames of a row's stack, one on each line.
pub(super) fn stack_of(row: &PerlValueRow) -> String {
    if row.stack >= UNKNOWN_STACK {
        return unseen_stack_text(row.stack, row.origin)
            .to_string_lossy()
            .into_owned();
    }
    let frames = ENGINE.stack_providers().script_frames(row.stack);
    let line = |(name, file, line): &(String, String, u32)| match file.is_empty() {
        true => name.clone(),
        false => format!("{name} {file}:{line}"),
    };
    frames.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(super) fn kind_of(label: u64) -> &'static str {
    let (kind, ..) = split_label(label);
    let name = usize::from(kind).checked_sub(1);
    name.and_then(|name| TYPE_NAMES.get(name))
        .copied()
        .unwrap_or("")
}

pub(super) fn text_of(names: &PerlLabelTexts, number: u32) -> String {
    let text = names.text(number).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

const _: () = assert!(UNSEEN_STACK.to_u32() == TracedValues::NO_STACK.to_u32());

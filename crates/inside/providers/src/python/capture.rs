//! Captures a Python stack.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use heapprof_engine::{RawFrame, StackCapture};
use heapprof_memory::OwnMemory;
use heapprof_python::{
    FramePlaceWriter, LastPythonStack, LineTableProgress, MAX_FRAMES_PER_END, PythonFrame,
    PythonRuntime, PythonWalkSummary, StackComparison,
};

use super::cell::CachedCell;
use super::objects::PYTHON_OBJECTS;
use super::state::{PROBATION_FRAMES, PythonStacks};

use crate::kernel_memory::KernelMemory;

/// Interval, in stacks of a thread, at which a stack is read with checks. In a debug build, every
/// second stack is read with checks.
const CHECK_INTERVAL: u64 = if cfg!(debug_assertions) { 2 } else { 4096 };

/// Data of the provider for a thread, in memory that the engine supplies. All zeros is the initial
/// state.
#[repr(C)]
pub(super) struct PythonStackMemory {
    /// Number of stacks that the thread has captured.
    stacks: u64,
    last: LastPythonStack,
    /// For some code objects, the position up to which the line table was read.
    pub(super) reached: [LineTableProgress; 32],
    /// The notebook cell whose name was looked up last.
    pub(super) cell: CachedCell,
}

/// Writes frames in the engine's form.
struct PythonRawFrameWriter(*mut RawFrame);

impl FramePlaceWriter for PythonRawFrameWriter {
    #[inline(always)]
    fn write(&mut self, place: usize, frame: PythonFrame) {
        let raw = RawFrame {
            code: frame.code,
            place: frame.place,
            version: frame.version,
            line: 0,
            entry: frame.entry,
        };
        // SAFETY: the engine gives an array with more places than both ends of a stack take.
        unsafe { self.0.add(place).write(raw) };
    }
}

pub(super) unsafe extern "C" fn capture(context: *mut c_void, to: *mut StackCapture) -> usize {
    // SAFETY: the context that was registered, and what the engine gives.
    let (this, to) = unsafe { (&*context.cast::<PythonStacks>(), &mut *to) };
    let Some(python) = this.python() else {
        return 0;
    };
    if to.most <= 2 * MAX_FRAMES_PER_END || to.memory_size < size_of::<PythonStackMemory>() {
        return 0;
    }
    let Some(state) = this.thread_state(python) else {
        return 0;
    };
    // SAFETY: this thread's memory, which is zero at first.
    let known = unsafe { &mut *to.memory.cast::<PythonStackMemory>() };
    known.stacks += 1;
    let is_due = known.stacks.is_multiple_of(CHECK_INTERVAL);
    if is_due || !PYTHON_OBJECTS.is_settled() {
        check_wrappers(this, python, state);
    }
    let mut compared = known.last.compare(PythonRawFrameWriter(to.frames));
    let is_new = this.frames.load(Ordering::Relaxed) < PROBATION_FRAMES;
    let walked = if is_new || is_due {
        walk_carefully(this, python, state, is_new, &mut compared)
    } else {
        // SAFETY: what was read so far was right, the memory is this thread's own, and this thread
        // changes nothing meanwhile.
        python.walk(unsafe { OwnMemory::new() }, state, false, &mut compared)
    };
    to.shared = compared.finish(walked);
    let Some(walked) = walked else {
        return 0;
    };
    match walked.cut() {
        None => walked.frames,
        Some(_) if !walked.is_whole => {
            this.note_too_deep();
            // SAFETY: the newest frames are written.
            unsafe { to.frames.add(MAX_FRAMES_PER_END).write(RawFrame::default()) };
            MAX_FRAMES_PER_END + 1
        }
        Some(first) => {
            // SAFETY: both ends are written, and there is room for one frame more.
            unsafe { put_in_order(to.frames, first) };
            2 * MAX_FRAMES_PER_END + 1
        }
    }
}

/// Puts the oldest frames in order: they are a ring buffer that begins at `first`. Also inserts a
/// frame before them that stands for the omitted frames.
///
/// # Safety
/// `frames` holds both ends of a stack, and space for one more frame.
#[cold]
unsafe fn put_in_order(frames: *mut RawFrame, first: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let oldest = frames.add(MAX_FRAMES_PER_END);
        std::slice::from_raw_parts_mut(oldest, MAX_FRAMES_PER_END).rotate_left(first);
        std::ptr::copy(oldest, oldest.add(1), MAX_FRAMES_PER_END);
        oldest.write(RawFrame::default());
    }
}

/// Whether the thread's stack equals the stack that was captured last.
pub(super) unsafe extern "C" fn is_unchanged(
    context: *mut c_void,
    memory: *mut c_void,
    memory_size: usize,
) -> c_int {
    // SAFETY: the context that was registered.
    let this = unsafe { &*context.cast::<PythonStacks>() };
    let Some(python) = this.python() else {
        return 0;
    };
    if memory_size < size_of::<PythonStackMemory>() {
        return 0;
    }
    // SAFETY: this thread's memory, which is zero at first.
    let known = unsafe { &mut *memory.cast::<PythonStackMemory>() };
    let stacks = known.stacks + 1;
    let is_new = this.frames.load(Ordering::Relaxed) < PROBATION_FRAMES;
    if is_new || stacks.is_multiple_of(CHECK_INTERVAL) || !PYTHON_OBJECTS.is_settled() {
        return 0;
    }
    let Some(state) = this.thread_state(python) else {
        return 0;
    };
    // SAFETY: what was read so far was right, and this thread changes nothing meanwhile.
    let memory = unsafe { OwnMemory::new() };
    if !python.is_unchanged(memory, state, &known.last) {
        return 0;
    }
    known.stacks = stacks;
    1
}

/// Checks the allocator wrappers, if this thread has the GIL.
#[cold]
fn check_wrappers(this: &PythonStacks, python: &PythonRuntime, state: u64) {
    let is_done = PYTHON_OBJECTS.has_mimalloc() && PYTHON_OBJECTS.is_settled();
    if !is_done && this.holds_gil(python, state) {
        // SAFETY: this thread has the GIL.
        unsafe { PYTHON_OBJECTS.check_wrappers(true) };
    }
}

/// Reads a stack with checks. The stacks of a new Python are read by system calls, so that a wrong
/// address does no harm.
#[cold]
fn walk_carefully(
    this: &PythonStacks,
    python: &PythonRuntime,
    state: u64,
    is_new: bool,
    to: &mut StackComparison<'_, PythonRawFrameWriter>,
) -> Option<PythonWalkSummary> {
    let walked = if is_new {
        let failed = Cell::new(false);
        python.walk(KernelMemory { failed: &failed }, state, true, to)
    } else {
        // SAFETY: what was read so far was right, and this thread changes nothing meanwhile.
        python.walk(unsafe { OwnMemory::new() }, state, true, to)
    };
    match walked {
        None => this.count_failure(),
        // There were no frames to check.
        Some(PythonWalkSummary { frames: 0, .. }) => {}
        Some(PythonWalkSummary { frames, .. }) => this.count_frames(frames),
    }
    walked
}

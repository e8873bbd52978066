//! Captures a Perl stack: finds the interpreter that a thread runs, reads the stack and checks that
//! it is plausible.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_engine::{RawFrame, StackCapture};
use heapprof_memory::{Memory, OwnMemory};
use heapprof_perl::{
    ARENA_SIZE_RANGE, InterpreterLocator, LastWalk, MAX_FRAMES_PER_END, PerlFrame, PerlFrameKind,
    PerlFrameSink, PerlRuntime, PerlWalkSummary, XsubCall, may_be_slab,
};

use super::state::{COMPARE_INTERVAL, InterpreterSlot, MAX_FAILURES, PROBATION_STACKS, PerlStacks};
use super::thread_memory::PerlThreadMemory;
use crate::kernel_memory::KernelMemory;
use crate::runtime_state::ReadState;

/// Maximum number of frames of a stack that are compared with the result of `Perl_caller_cx`.
const MAX_COMPARED_FRAMES: usize = 32;

/// The contexts of the newest frames.
struct NewestContexts {
    at: [u64; MAX_COMPARED_FRAMES],
    len: usize,
}

/// Writes frames in the engine's form.
struct PerlRawFrameWriter {
    to: *mut RawFrame,
    most: usize,
    len: usize,
    /// Number of the interpreter. It distinguishes code of two interpreters at the same address.
    number: u32,
}

/// Writes frames, and stores the addresses of their contexts.
struct ContextKeepingWriter {
    writer: PerlRawFrameWriter,
    contexts: NewestContexts,
}

impl PerlRawFrameWriter {
    #[inline(always)]
    fn new(to: &StackCapture, number: u32) -> Self {
        Self {
            to: to.frames,
            most: to.most,
            len: 0,
            number,
        }
    }

    #[inline(always)]
    fn put(&mut self, i: usize, frame: PerlFrame) {
        let raw = RawFrame {
            code: frame.code,
            place: frame.cop,
            version: frame.version ^ self.number.wrapping_mul(0x9e37_79b1),
            line: frame.line,
            entry: u64::from(frame.from_c),
        };
        if i < self.most {
            // SAFETY: the engine gives an array of `most` frames.
            unsafe { self.to.add(i).write(raw) };
        }
    }
}

impl PerlFrameSink for PerlRawFrameWriter {
    fn restart(&mut self) {
        self.len = 0;
    }

    #[inline(always)]
    fn newest(&mut self, frame: PerlFrame) {
        self.put(self.len, frame);
        self.len += 1;
    }

    fn oldest(&mut self, callers: usize, frame: PerlFrame) {
        // The oldest frames come from the root, and are moved to their place at the end.
        self.put(self.most - 1 - callers, frame);
    }
}

impl PerlFrameSink for ContextKeepingWriter {
    fn restart(&mut self) {
        self.writer.restart();
        self.contexts.len = 0;
    }

    fn newest(&mut self, frame: PerlFrame) {
        self.writer.newest(frame);
        let NewestContexts { at, len } = &mut self.contexts;
        if frame.context != 0 {
            if let Some(at) = at.get_mut(*len) {
                *at = frame.context;
            }
            *len += 1;
        }
    }

    fn oldest(&mut self, callers: usize, frame: PerlFrame) {
        self.writer.oldest(callers, frame);
    }
}

/// Returns the address of the interpreter that this thread runs; 0 if the perl has only one, whose
/// fields are separate variables.
#[inline(always)]
fn current_interpreter(perl: &PerlRuntime) -> Option<u64> {
    // SAFETY: these are variables of a perl that is not unloaded while it runs.
    let memory = unsafe { OwnMemory::new() };
    match perl.locator {
        InterpreterLocator::Key { key, first } => {
            if memory.u64(first)? == 0 {
                return None;
            }
            let key = memory.u32(key)?;
            // SAFETY: Perl has made the key.
            let found = unsafe { libc::pthread_getspecific(key) };
            Some(found as u64).filter(|&found| found != 0)
        }
        InterpreterLocator::Pointer(first) => memory.u64(first).filter(|&found| found != 0),
        InterpreterLocator::Variables => Some(0),
    }
}

/// Returns the address, on the C stack, of the point to which an interpreter jumps if its code
/// dies; `None` if the interpreter runs no code that could die.
fn place_of(perl: &PerlRuntime, interpreter: &InterpreterSlot, at: u64) -> Option<u64> {
    let address = perl.base_of(at);
    if interpreter.stacks.load(Ordering::Relaxed) < PROBATION_STACKS {
        let failed = Cell::new(false);
        return perl.place_on_stack(KernelMemory { failed: &failed }, address);
    }
    // SAFETY: an interpreter that was read and that no thread has freed.
    perl.place_on_stack(unsafe { OwnMemory::new() }, address)
}

/// Whether an address is on this thread's own stack.
fn is_own(to: &StackCapture, place: u64) -> bool {
    (to.stack_begin as u64..to.stack_end as u64).contains(&place)
}

/// Flag bit of a label: the allocation is memory for ops.
pub(super) const HOLDS_OPS: u64 = 1 << 24;

/// Packs the facts about a whole stack into one number: the op, Perl's phase plus one, and the
/// interpreter's number. [`HOLDS_OPS`] may be added.
fn label_of(op: u16, phase: Option<u8>, interpreter: u32) -> u64 {
    let phase = phase.map_or(0, |phase| u64::from(phase) + 1);
    u64::from(op) | phase << 16 | u64::from(interpreter & 0x7fff) << 32
}

pub(super) unsafe extern "C" fn capture(context: *mut c_void, to: *mut StackCapture) -> usize {
    // SAFETY: the context that was registered, and what the engine gives. Its memory is large
    // enough, and all zero is a new one.
    let (this, to) = unsafe { (&*context.cast::<PerlStacks>(), &mut *to) };
    const { assert!(size_of::<PerlThreadMemory>() <= 16 << 10) };
    if to.memory_size < size_of::<PerlThreadMemory>() {
        return 0;
    }
    // SAFETY: the engine's memory is large enough, and all zero is a new one.
    let last = unsafe { &mut *to.memory.cast::<PerlThreadMemory>() };
    let Some(perl) = this.perl() else { return 0 };
    let Some(at) = current_interpreter(perl) else {
        return 0;
    };
    let frames = this.capture_frames(perl, at, last, to);
    if last.calls != 0 && last.runs == at.max(1) && frames != 0 {
        return add_call(perl, last, to, frames);
    }
    frames
}

/// Adds a frame for the C sub that the newest frame calls, if it calls one.
#[cold]
#[inline(never)]
fn add_call(
    perl: &PerlRuntime,
    last: &PerlThreadMemory,
    to: &mut StackCapture,
    frames: usize,
) -> usize {
    // SAFETY: the place that is noted for an interpreter is a static one.
    let noted = unsafe { &*(last.calls as *const [AtomicU64; 4]) };
    let [sub, op, info, ix] = [0, 1, 2, 3].map(|i: usize| noted[i].load(Ordering::Relaxed));
    let ix = ix as u32;
    let call = XsubCall { sub, op, info, ix };
    // SAFETY: this thread runs the interpreter, and has just read its stack.
    let memory = unsafe { OwnMemory::new() };
    let is_made = perl.is_in_call(memory, perl.base_of(last.runs), &call);
    if !is_made || frames >= to.most || to.pool != 0 {
        return frames;
    }
    let written = frames - to.shared;
    // SAFETY: the array has room for one more.
    unsafe {
        if written == 0 {
            return frames;
        }
        std::ptr::copy(to.frames, to.frames.add(1), written);
        to.frames.write(RawFrame {
            code: PerlFrame::code_of_sub(sub),
            entry: 0,
            ..to.frames.read()
        });
    }
    frames + 1
}

impl PerlStacks {
    /// Captures the frames of Perl's contexts. For the allocation of an arena, captures a single
    /// frame. Marks an allocation of memory for ops.
    #[inline(always)]
    fn capture_frames(
        &self,
        perl: &PerlRuntime,
        at: u64,
        last: &mut PerlThreadMemory,
        to: &mut StackCapture,
    ) -> usize {
        if ARENA_SIZE_RANGE.contains(&to.size) && self.is_arena(perl, at, to) {
            return capture_arena(last, to);
        }
        let holds = match may_be_slab(to.size) && is_slab(perl, to) {
            true => HOLDS_OPS,
            false => 0,
        };
        let frames = self.capture_stack(perl, at, last, to);
        to.label |= holds;
        frames
    }

    #[inline(always)]
    fn capture_stack(
        &self,
        perl: &PerlRuntime,
        at: u64,
        last: &mut PerlThreadMemory,
        to: &mut StackCapture,
    ) -> usize {
        let at = at.max(1);
        let moment = self.moment();
        // SAFETY: it is used if what was read so far was right, and this thread changes nothing
        // meanwhile.
        let memory = unsafe { OwnMemory::new() };
        if last.left > 0
            && (last.quick, last.moment) == (at, moment)
            && let Some((frame, leaf)) = perl.walk_unchanged(memory, at, &mut last.walk)
        {
            last.left -= 1;
            let mut writer = PerlRawFrameWriter::new(to, last.number);
            writer.newest(frame);
            to.label = label_of(leaf.op, leaf.phase, last.number);
            to.shared = leaf.shared;
            return 1 + leaf.shared;
        }
        self.capture_whole(perl, at, moment, last, to)
    }
}

/// Iterates over the words on the thread's stack, beginning with the return address of the
/// allocation.
fn stack_words<'a>(
    to: &'a StackCapture,
    kernel: KernelMemory<'a>,
) -> impl Iterator<Item = u64> + 'a {
    // SAFETY: these words are on this thread's own stack, which goes on to its end.
    let own = unsafe { OwnMemory::new() };
    let is_own = is_own(to, to.caller as u64);
    (to.caller as u64..)
        .step_by(8)
        .map_while(move |at| match is_own {
            true if at + 8 > to.stack_end as u64 => None,
            true => own.u64(at),
            // Another stack may end here.
            false => kernel.u64(at),
        })
}

/// Whether an allocation is a slab, from which Perl takes memory for ops.
#[cold]
#[inline(never)]
fn is_slab(perl: &PerlRuntime, to: &StackCapture) -> bool {
    let failed = Cell::new(false);
    perl.is_slab(stack_words(to, KernelMemory { failed: &failed }))
}

/// Captures the stack for the allocation of an arena: a single frame, because it is not known yet
/// which values the arena will hold.
#[cold]
fn capture_arena(last: &mut PerlThreadMemory, to: &mut StackCapture) -> usize {
    last.walk.forget();
    PerlRawFrameWriter::new(to, 0).newest(PerlFrame::from_kind(PerlFrameKind::Arenas));
    to.pool = 1;
    1
}

/// Maximum number of stacks in a row that belong, without a check, to the interpreter that a thread
/// runs, although another interpreter is active. A check has shown before that the other
/// interpreter is active only for a moment. For example, perl_clone makes thousands of allocations
/// while another interpreter is active.
const MAX_PASSING_STACKS: u32 = 15;

/// Whether this thread runs code of the interpreter `inner` that was called by code of `outer`, the
/// interpreter that the thread ran before.
fn is_within(
    perl: &PerlRuntime,
    (inner, inner_at): (&InterpreterSlot, u64),
    outer: &InterpreterSlot,
    last: &mut PerlThreadMemory,
    to: &StackCapture,
) -> bool {
    if last.passing.0 == inner_at && last.passing.1 > 0 {
        last.passing.1 -= 1;
        return false;
    }
    let is_within = runs_within(perl, (inner, inner_at), (outer, last.runs), to);
    last.passing = (if is_within { 0 } else { inner_at }, MAX_PASSING_STACKS);
    is_within
}

/// Whether this thread runs code of the interpreter `inner` that was called by code of the
/// interpreter `outer`. The addresses of both on the C stack decide this.
fn runs_within(
    perl: &PerlRuntime,
    (inner, inner_at): (&InterpreterSlot, u64),
    (outer, outer_at): (&InterpreterSlot, u64),
    to: &StackCapture,
) -> bool {
    let inner = place_of(perl, inner, inner_at);
    let outer = place_of(perl, outer, outer_at);
    // A stack grows down.
    matches!((inner, outer), (Some(inner), Some(outer)) if inner < outer && is_own(to, inner))
}

impl PerlStacks {
    #[cold]
    fn is_arena(&self, perl: &PerlRuntime, at: u64, to: &StackCapture) -> bool {
        let failed = Cell::new(false);
        let kernel = KernelMemory { failed: &failed };
        perl.is_arena(stack_words(to, kernel), kernel, perl.base_of(at), to.size)
    }

    /// Captures a stack that differs from the thread's last stack, or that must be compared with
    /// the result of `Perl_caller_cx`.
    #[inline(never)]
    fn capture_whole(
        &self,
        perl: &PerlRuntime,
        at: u64,
        moment: u32,
        last: &mut PerlThreadMemory,
        to: &mut StackCapture,
    ) -> usize {
        if last.moment != moment {
            last.walk.forget();
            (last.moment, last.left, last.quick) = (moment, 0, 0);
        }
        let current = self.interpreter(at);
        if last.runs != at {
            // C code may have changed the interpreter for a moment only: threads->create, join, and
            // data that threads share. The thread still runs the code that it ran.
            if last.runs != 0
                && let Some(own) = self.known_interpreter(last.runs)
                && own.number.load(Ordering::Relaxed) == last.runs_number
                && !current.is_some_and(|of| is_within(perl, (of, at), own, last, to))
                && let Some(len) = self.capture_of(perl, own, last.runs, last, to)
            {
                return len;
            }
            last.walk.forget();
        }
        let Some(interpreter) = current else {
            return 0;
        };
        let Some(len) = self.capture_of(perl, interpreter, at, last, to) else {
            return 0;
        };
        let is_contested = interpreter.is_contested.load(Ordering::Relaxed);
        (last.runs, last.runs_number) = (at, last.number);
        // If the interpreter is contested, each capture checks again which thread runs it.
        last.quick = if is_contested { 0 } else { at };
        last.calls = match interpreter.has_calls.load(Ordering::Relaxed) {
            true => interpreter.call.as_ptr() as u64,
            false => 0,
        };
        len
    }

    /// Whether this thread may read an interpreter's stack. It may, if it runs the interpreter, or
    /// if no thread does.
    ///
    /// A thread's active interpreter is not always the one that it runs. The thread may have made
    /// the interpreter for another thread, which runs it. Or its own interpreter was freed, and an
    /// interpreter of another thread has the same address now.
    fn may_read(
        &self,
        perl: &PerlRuntime,
        interpreter: &InterpreterSlot,
        at: u64,
        to: &StackCapture,
    ) -> bool {
        // SAFETY: it only says which thread this is.
        let this_thread = unsafe { libc::pthread_self() } as u64;
        let thread = interpreter.thread.load(Ordering::Relaxed);
        let is_contested = interpreter.is_contested.load(Ordering::Acquire);
        if thread == this_thread && !is_contested {
            return true;
        }
        let (place, here) = (place_of(perl, interpreter, at), to.caller as u64);
        if thread == 0 {
            // No thread has read it yet. On another stack than its own, a thread's code may be
            // anywhere.
            let may_be = |place| is_own(to, place) || !is_own(to, here);
            if !place.is_none_or(may_be) {
                return false;
            }
            let claimed = interpreter.thread.compare_exchange(
                0,
                this_thread,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            return claimed.is_ok();
        }
        if !interpreter.is_contested.swap(true, Ordering::AcqRel) {
            // The other thread must check, too, before it reads the stack once more.
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        is_own(to, here) && place.is_some_and(|place| here < place && is_own(to, place))
    }

    /// Captures the stack of an interpreter; `None` if the interpreter runs no code, or if this
    /// thread may not read its stack.
    fn capture_of(
        &self,
        perl: &PerlRuntime,
        interpreter: &InterpreterSlot,
        at: u64,
        last: &mut PerlThreadMemory,
        to: &mut StackCapture,
    ) -> Option<usize> {
        let stacks = interpreter.stacks.load(Ordering::Relaxed);
        let carefully = stacks < PROBATION_STACKS;
        if !self.may_read(perl, interpreter, at, to) {
            return None;
        }
        let address = perl.base_of(at);
        last.number = interpreter.number.load(Ordering::Relaxed);
        let writer = PerlRawFrameWriter::new(to, last.number);
        let leaf = if carefully || last.left == 0 {
            last.walk.forget();
            last.left = if carefully { 0 } else { COMPARE_INTERVAL };
            self.walk_and_compare(perl, interpreter, address, carefully, writer)?
        } else {
            last.left -= 1;
            let mut writer = writer;
            // SAFETY: what was read so far was right, and this thread changes nothing meanwhile.
            let memory = unsafe { OwnMemory::new() };
            perl.walk(memory, address, &mut last.walk, &mut writer)?
        };
        let stacks = match leaf.phase {
            // After Perl's last phase the interpreter may be gone.
            Some(6) => 0,
            // Nothing was compared.
            _ if !leaf.is_walked => stacks,
            _ => stacks.saturating_add(1),
        };
        interpreter.stacks.store(stacks, Ordering::Relaxed);
        if stacks == PROBATION_STACKS {
            self.is_believed.store(true, Ordering::Relaxed);
        }
        let op = if leaf.compiles { 0 } else { leaf.op };
        to.label = label_of(op, leaf.phase, last.number);
        to.shared = leaf.shared;
        if leaf.oldest == 0 && !leaf.is_cut {
            return Some(leaf.newest + leaf.shared);
        }
        let cut = usize::from(leaf.is_cut);
        // SAFETY: all frames lie in the array, which has room for both ends and one more.
        unsafe {
            if leaf.is_cut {
                to.frames.add(leaf.newest).write(RawFrame::default());
            }
            let from = to.frames.add(to.most - leaf.oldest);
            std::ptr::copy(from, to.frames.add(leaf.newest + cut), leaf.oldest);
        }
        Some(leaf.newest + cut + leaf.oldest)
    }
}

impl PerlStacks {
    #[cold]
    #[inline(never)]
    fn walk_and_compare(
        &self,
        perl: &PerlRuntime,
        interpreter: &InterpreterSlot,
        at: u64,
        carefully: bool,
        writer: PerlRawFrameWriter,
    ) -> Option<PerlWalkSummary> {
        let contexts = NewestContexts {
            at: [0; MAX_COMPARED_FRAMES],
            len: 0,
        };
        let mut careful = ContextKeepingWriter { writer, contexts };
        let mut last = LastWalk::NEW;
        let failed = Cell::new(false);
        if interpreter.failures.load(Ordering::Relaxed) >= MAX_FAILURES {
            return None;
        }
        let walked = if carefully {
            let memory = KernelMemory { failed: &failed };
            perl.walk(memory, at, &mut last, &mut careful)
        } else {
            // SAFETY: what was read so far was right, and this thread changes nothing meanwhile.
            perl.walk(unsafe { OwnMemory::new() }, at, &mut last, &mut careful)
        };
        if failed.get() {
            // Only this interpreter may be gone, perhaps from the beginning.
            interpreter.failures.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let leaf = walked?;
        if leaf.is_comparable {
            self.compare(perl, at, &careful.contexts, leaf.is_cut);
        }
        self.runtime.is_on().then_some(leaf)
    }

    /// Compares the newest frames with the results of Perl's own function `Perl_caller_cx`.
    /// `contexts` are the contexts of these frames.
    #[cold]
    fn compare(
        &self,
        perl: &PerlRuntime,
        interpreter: u64,
        contexts: &NewestContexts,
        leaf_is_cut: bool,
    ) {
        if perl.caller_cx == 0 {
            return;
        }
        let ask = |level: usize| -> u64 {
            type ThreadedCallerCxFn = unsafe extern "C" fn(u64, c_int, *mut u64) -> u64;
            type UnthreadedCallerCxFn = unsafe extern "C" fn(c_int, *mut u64) -> u64;
            // Under a debugger, Perl returns the context of the debugger's own sub.
            let (level, mut frame) = (level as c_int, 0);
            let function = perl.caller_cx as *const c_void;
            // SAFETY: the function is Perl's, of a version that declares it so. It reads the stack
            // of the interpreter that this thread runs, and nothing else.
            let found = unsafe {
                match perl.locator {
                    InterpreterLocator::Variables => {
                        std::mem::transmute::<*const c_void, UnthreadedCallerCxFn>(function)(
                            level,
                            &raw mut frame,
                        )
                    }
                    _ => std::mem::transmute::<*const c_void, ThreadedCallerCxFn>(function)(
                        interpreter,
                        level,
                        &raw mut frame,
                    ),
                }
            };
            if found == 0 { 0 } else { frame }
        };
        let mut fake = 0;
        let known = &contexts.at[..contexts.len.min(MAX_COMPARED_FRAMES)];
        // SAFETY: what Perl gives are its contexts.
        let memory = unsafe { OwnMemory::new() };
        let first = ask(0);
        if known.first() != Some(&first) && perl.is_fake(memory, first) {
            // Perl counts the code of a regular expression at the top.
            fake = 1;
        }
        let differs = known.iter().enumerate().any(|(i, &at)| ask(i + fake) != at);
        let all = contexts.len <= MAX_COMPARED_FRAMES && !leaf_is_cut;
        if differs || all && ask(known.len() + fake) != 0 {
            self.switch_off(ReadState::Differs);
        }
    }
}

const _: () = assert!(2 * MAX_FRAMES_PER_END < 513);

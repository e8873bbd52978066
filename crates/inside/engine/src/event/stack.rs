//! The stack of an allocation: how it is captured, and which number it gets in the tables.

use heapprof_abi::stack_end::OUTERMOST;
use heapprof_abi::{FrameAddress, MappingGeneration, StackNumber};
use heapprof_platform::arch::prefetch;

use crate::engine::Engine;
use crate::stack::call_site::CallSite;
use crate::stack::capture::{self, CaptureOutcome, LastStack};
use crate::stack::provider_table::StackRequest;
use crate::stack::script::{AllocationCall, ScriptCaptureOutcome};
use crate::tables::stacks::NewStack;
use crate::thread::state::{ThreadOwnState, ThreadState};

/// Returns the number of the stack at `frame`, where `size` bytes are allocated.
#[inline(always)]
pub(super) fn find_stack_number(
    engine: &Engine,
    own: &mut ThreadOwnState,
    frame: CallSite,
    size: usize,
) -> Option<StackNumber> {
    let captured = capture(engine, own, frame, size);
    number_captured(engine, own, frame, captured)
}

/// Captures the stack at `frame`: the native stack, or the stack of an interpreter that the thread
/// runs. If the recording counts each thread separately, the result is this thread's version of the
/// stack.
#[inline(always)]
pub(super) fn capture(
    engine: &Engine,
    own: &mut ThreadOwnState,
    frame: CallSite,
    size: usize,
) -> CaptureOutcome {
    match engine.scripts.providers.stack_request() {
        None => own.remembered.capture(frame, engine.unwinder()),
        Some(asked) => match own.script.find_unchanged(&engine.scripts, asked) {
            Some(stack) => CaptureOutcome::Recent(stack),
            None => capture_script(engine, own, frame, asked, size),
        },
    }
}

/// Captures the stack as [`capture_script`] does, and returns this thread's version of it.
#[cold]
#[inline(never)]
fn capture_for_thread(
    engine: &Engine,
    own: &mut ThreadOwnState,
    frame: CallSite,
    asked: StackRequest,
    size: usize,
) -> CaptureOutcome {
    let captured = match asked.for_all_threads() {
        Some(asked) => capture_script(engine, own, frame, asked, size),
        None => own.remembered.capture(frame, engine.unwinder()),
    };
    let stack = number_captured(engine, own, frame, captured);
    let of_thread = stack.and_then(|stack| find_thread_stack(engine, own, asked, stack));
    of_thread.map_or(captured, CaptureOutcome::Recent)
}

/// Returns this thread's number for a stack that all threads share. Allocations with this number
/// count for this thread, whichever thread frees them.
fn find_thread_stack(
    engine: &Engine,
    own: &mut ThreadOwnState,
    asked: StackRequest,
    stack: StackNumber,
) -> Option<StackNumber> {
    let (names, process) = (&engine.threads.names, &engine.process);
    let thread = names.current(process);
    if let known @ Some(_) = own.stacks.get(thread, stack) {
        return known;
    }
    let is_new = || names.update_name(process, thread);
    let stacks = &engine.ledger.stacks;
    let of_thread = stacks.find_or_insert_for_thread(process, stack, thread, is_new)?;
    if asked.for_all_threads().is_some() {
        own.script.note_pool(&engine.scripts.pools, Some(of_thread));
    }
    own.stacks.put(thread, stack, of_thread);
    Some(of_thread)
}

/// Captures the stack of an interpreter through the providers, or else the native stack.
#[inline(never)]
fn capture_script(
    engine: &Engine,
    own: &mut ThreadOwnState,
    frame: CallSite,
    asked: StackRequest,
    size: usize,
) -> CaptureOutcome {
    if asked.is_by_thread() {
        return capture_for_thread(engine, own, frame, asked, size);
    }
    let (scripts, process) = (&engine.scripts, &engine.process);
    let call = AllocationCall {
        size,
        slot: frame.slot,
        stack: own.remembered.own_stack(frame),
    };
    let found = own.script.capture(scripts, asked, process, call);
    if let ScriptCaptureOutcome::Recent(stack) = found {
        return CaptureOutcome::Recent(stack);
    }
    let mut is_same = found == ScriptCaptureOutcome::Same;
    let is_pool = own.script.is_pool();
    if is_pool {
        // The native frames would be those of the code that emptied the pool.
        own.script.note_native(None);
    }
    if found == ScriptCaptureOutcome::Nothing || asked.is_both() && !is_pool {
        let captured = own.remembered.capture(frame, engine.unwinder());
        if found == ScriptCaptureOutcome::Nothing {
            return captured;
        }
        let native = number_captured(engine, own, frame, captured);
        is_same = own.script.note_native(native) && is_same;
    }
    CaptureOutcome::Script(is_same)
}

/// Returns the number of the interpreter's stack, if this thread runs an interpreter at the address
/// `place` of its native stack; otherwise `None`. The recording's choice of frames does not matter
/// here.
pub(super) fn find_script_stack(
    engine: &Engine,
    own: &mut ThreadOwnState,
    place: usize,
) -> Option<StackNumber> {
    let asked = engine.scripts.providers.stack_request()?;
    let stack = shared_script(engine, own, asked.for_all_threads()?, place)?;
    match asked.is_by_thread() {
        true => find_thread_stack(engine, own, asked, stack),
        false => Some(stack),
    }
}

fn shared_script(
    engine: &Engine,
    own: &mut ThreadOwnState,
    asked: StackRequest,
    place: usize,
) -> Option<StackNumber> {
    let frame = CallSite { slot: place, bp: 0 };
    let call = AllocationCall {
        size: 0,
        slot: place,
        stack: own.remembered.own_stack(frame),
    };
    let (scripts, process) = (&engine.scripts, &engine.process);
    let found = own.script.capture(scripts, asked, process, call);
    match found {
        ScriptCaptureOutcome::Recent(stack) => return Some(stack),
        ScriptCaptureOutcome::Nothing => return None,
        _ => {}
    }
    let is_same = own.script.note_native(None) && found == ScriptCaptureOutcome::Same;
    number_captured(engine, own, frame, CaptureOutcome::Script(is_same))
}

/// Returns the number of the stack that was captured last, at `frame`.
#[inline(always)]
pub(super) fn number_captured(
    engine: &Engine,
    own: &mut ThreadOwnState,
    frame: CallSite,
    captured: CaptureOutcome,
) -> Option<StackNumber> {
    let generation = || engine.code.mappings.generation();
    match captured {
        CaptureOutcome::Same if own.last_generation == generation() && own.last_stack.is_some() => {
            own.last_stack
        }
        CaptureOutcome::Recent(stack) => Some(stack),
        CaptureOutcome::Script(true) if own.script.stack().is_some() => own.script.stack(),
        CaptureOutcome::Script(_) => script_stack(engine, own, frame),
        _ => number_changed_stack(engine, own, frame, captured),
    }
}

/// Prefetches the memory that finding and counting a captured stack will read.
#[inline(always)]
pub(super) fn prefetch_captured(
    engine: &Engine,
    state: &ThreadState,
    own: &ThreadOwnState,
    captured: CaptureOutcome,
) {
    let stack = match captured {
        CaptureOutcome::Recorded => {
            let key = mix_generation(own.remembered.hash(), engine.code.mappings.generation());
            engine.ledger.stacks.prefetch(key);
            return;
        }
        CaptureOutcome::Recent(stack) => Some(stack),
        CaptureOutcome::Script(true) => own.script.stack(),
        CaptureOutcome::Script(false) => {
            engine
                .ledger
                .stacks
                .prefetch(mix_generation(own.script.hash(), MappingGeneration::FIRST));
            return;
        }
        _ => own.last_stack,
    };
    if let Some(stack) = stack {
        prefetch(state.place_of_counters(stack));
    }
}

/// Returns the key of a stack: its hash, mixed with the generation of mappings. The key is never a
/// value that the table reserves.
#[inline(always)]
fn mix_generation(hash: u64, generation: MappingGeneration) -> u64 {
    (hash ^ u64::from(generation.to_u32()).wrapping_mul(0x94d0_49bb_1331_11eb)).max(2)
}

/// Returns the number of the stack with this hash. If the table has no such stack, adds the stack
/// that `new` makes.
#[inline(always)]
fn find_or_insert<'a>(
    engine: &Engine,
    hash: u64,
    generation: MappingGeneration,
    new: impl FnOnce() -> NewStack<'a>,
) -> Option<StackNumber> {
    let stacks = &engine.ledger.stacks;
    let found = stacks.find(hash);
    found.or_else(|| stacks.find_or_insert(&engine.process, hash, generation, new()))
}

/// Returns the number of the interpreter's stack that was just captured. This stack differs from
/// the thread's previous stack.
#[inline(never)]
fn script_stack(engine: &Engine, own: &mut ThreadOwnState, frame: CallSite) -> Option<StackNumber> {
    let ThreadOwnState {
        script, remembered, ..
    } = own;
    let hash = mix_generation(script.hash(), MappingGeneration::FIRST);
    let native = script.native();
    let number = match native {
        None => find_or_insert(engine, hash, MappingGeneration::FIRST, || {
            let base = script.stack().map(|last| (last, script.shared_words()));
            NewStack::based_on(base, script.words())
        }),
        Some(_) => engine.ledger.stacks.find(hash).or_else(|| {
            let stacks = &engine.ledger.stacks;
            let generation = engine.code.mappings.generation();
            // The record may hold another stack, and does not say where frames lie.
            let mut end = OUTERMOST;
            let merged = script.merge(&engine.scripts.providers, |to| {
                let len = remembered.walk_placed(frame, engine.unwinder(), to);
                if remembered.walk_ends_early() {
                    let mut oldest = to[..len].iter().rev().map(|placed| placed.pc);
                    end = find_end_reason(engine, &mut oldest);
                }
                len
            });
            let stack = NewStack::new(merged).with_end(end);
            stacks.find_or_insert(&engine.process, hash, generation, stack)
        }),
    };
    script.note_pool(&engine.scripts.pools, number);
    script.note_number(number);
    number
}

/// Returns the reason why the recorded stack has no older frame.
fn find_record_end(engine: &Engine, record: &LastStack) -> u32 {
    match record.ends_early() {
        true => find_end_reason(engine, &mut record.frames().iter().copied()),
        false => OUTERMOST,
    }
}

/// Returns the reason why a stack ends early. `oldest` yields the words of the stack's frames, the
/// oldest first.
#[cold]
fn find_end_reason(engine: &Engine, oldest: &mut dyn Iterator<Item = u64>) -> u32 {
    let mut oldest = oldest.map(FrameAddress::from_word);
    match (oldest.next(), oldest.next()) {
        (None, _) => OUTERMOST,
        (Some(oldest), callee) => engine.unwinder().reason_of_end(oldest, callee),
    }
}

fn number_changed_stack(
    engine: &Engine,
    own: &mut ThreadOwnState,
    frame: CallSite,
    captured: CaptureOutcome,
) -> Option<StackNumber> {
    let generation = engine.code.mappings.generation();
    let record = &mut own.remembered;
    let number = if captured == CaptureOutcome::Unrecorded {
        let len = record.walk(frame, engine.unwinder());
        let kept = record.walked_frames(len);
        let hash = mix_generation(capture::hash(kept), generation);
        let number = find_or_insert(engine, hash, generation, || {
            NewStack::new(kept).with_end(match record.walk_ends_early() {
                true => find_end_reason(engine, &mut kept.iter().rev().copied()),
                false => OUTERMOST,
            })
        });
        // The stack that the record holds, if any, is not the one that got this number.
        record.note_number(None, generation);
        number
    } else if record.is_deep() {
        let hash = mix_generation(record.hash_of_ends(), generation);
        let number = find_or_insert(engine, hash, generation, || {
            let end = find_record_end(engine, record);
            NewStack::new(record.ends()).with_end(end)
        });
        record.note_number(None, generation);
        number
    } else {
        let hash = mix_generation(record.hash(), generation);
        let number = find_or_insert(engine, hash, generation, || {
            let base = own.last_stack.map(|last| (last, record.shared_frames()));
            NewStack::based_on(base, record.frames()).with_end(find_record_end(engine, record))
        });
        record.note_number(number, generation);
        number
    };
    (own.last_stack, own.last_generation) = (number, generation);
    number
}

//! The stack of an allocation: captured, and the number that it has in the tables.

use heapprof_books::end::OUTERMOST;

use crate::engine::Engine;
use crate::platform::sys::hint;
use crate::stack::call_site::CallSite;
use crate::stack::capture::{self, Captured, LastStack};
use crate::stack::provider::Asked;
use crate::stack::script::{Call, Found};
use crate::tables::stacks::Stack;
use crate::thread::state::{Own, ThreadState};

/// The number of the stack at `frame`, where `size` bytes are allocated.
#[inline(always)]
pub(super) fn stack(engine: &Engine, own: &mut Own, frame: CallSite, size: usize) -> Option<u32> {
    let captured = capture(engine, own, frame, size);
    number(engine, own, frame, captured)
}

/// Gets the stack at `frame`: the native one, or that of an interpreter that the thread runs. It is
/// the thread's own if a recording keeps each thread's share.
#[inline(always)]
pub(super) fn capture(engine: &Engine, own: &mut Own, frame: CallSite, size: usize) -> Captured {
    match engine.scripts.providers.asked() {
        None => own.remembered.capture(frame, engine.unwinder()),
        Some(asked) => match own.script.unchanged(&engine.scripts, asked) {
            Some(stack) => Captured::Recent(stack),
            None => capture_script(engine, own, frame, asked, size),
        },
    }
}

/// Gets the stack as [`capture_script`] does, and makes it this thread's own.
#[cold]
#[inline(never)]
fn capture_of_thread(
    engine: &Engine,
    own: &mut Own,
    frame: CallSite,
    asked: Asked,
    size: usize,
) -> Captured {
    let captured = match asked.of_all_threads() {
        Some(asked) => capture_script(engine, own, frame, asked, size),
        None => own.remembered.capture(frame, engine.unwinder()),
    };
    let stack = number(engine, own, frame, captured);
    let of_thread = stack.and_then(|stack| of_thread(engine, own, asked, stack));
    of_thread.map_or(captured, Captured::Recent)
}

/// The number that this thread has for a stack that all threads share. So what it allocates there
/// is counted for it, whoever frees it.
fn of_thread(engine: &Engine, own: &mut Own, asked: Asked, stack: u32) -> Option<u32> {
    let (names, process) = (&engine.threads.names, &engine.process);
    let thread = names.current(process);
    if let known @ Some(_) = own.stacks.get(thread, stack) {
        return known;
    }
    let is_new = || names.look(process, thread);
    let stacks = &engine.books.stacks;
    let of_thread = stacks.of_thread(process, stack, thread, is_new)?;
    if asked.of_all_threads().is_some() {
        own.script.note_pool(&engine.scripts.pools, Some(of_thread));
    }
    own.stacks.put(thread, stack, of_thread);
    Some(of_thread)
}

/// Asks the providers for the stack, and falls back on the native one.
#[inline(never)]
fn capture_script(
    engine: &Engine,
    own: &mut Own,
    frame: CallSite,
    asked: Asked,
    size: usize,
) -> Captured {
    if asked.is_by_thread() {
        return capture_of_thread(engine, own, frame, asked, size);
    }
    let (scripts, process) = (&engine.scripts, &engine.process);
    let call = Call {
        size,
        slot: frame.slot,
        stack: own.remembered.own_stack(frame),
    };
    let found = own.script.capture(scripts, asked, process, call);
    if let Found::Recent(stack) = found {
        return Captured::Recent(stack);
    }
    let mut is_same = found == Found::Same;
    let is_pool = own.script.is_pool();
    if is_pool {
        // Native frames are those of whoever emptied the pool.
        own.script.beside(None);
    }
    if found == Found::Nothing || asked.is_both() && !is_pool {
        let captured = own.remembered.capture(frame, engine.unwinder());
        if found == Found::Nothing {
            return captured;
        }
        let native = number(engine, own, frame, captured);
        is_same = own.script.beside(native) && is_same;
    }
    Captured::Script(is_same)
}

/// The number of the stack of the interpreter that this thread runs at `place` on its stack,
/// whether native frames are wanted or not. `None` if it runs none.
pub(super) fn script(engine: &Engine, own: &mut Own, place: usize) -> Option<u32> {
    let asked = engine.scripts.providers.asked()?;
    let stack = shared_script(engine, own, asked.of_all_threads()?, place)?;
    match asked.is_by_thread() {
        true => of_thread(engine, own, asked, stack),
        false => Some(stack),
    }
}

fn shared_script(engine: &Engine, own: &mut Own, asked: Asked, place: usize) -> Option<u32> {
    let frame = CallSite { slot: place, bp: 0 };
    let call = Call {
        size: 0,
        slot: place,
        stack: own.remembered.own_stack(frame),
    };
    let (scripts, process) = (&engine.scripts, &engine.process);
    let found = own.script.capture(scripts, asked, process, call);
    match found {
        Found::Recent(stack) => return Some(stack),
        Found::Nothing => return None,
        _ => {}
    }
    let is_same = own.script.beside(None) && found == Found::Same;
    number(engine, own, frame, Captured::Script(is_same))
}

/// The number of the stack that was captured last, at `frame`.
#[inline(always)]
pub(super) fn number(
    engine: &Engine,
    own: &mut Own,
    frame: CallSite,
    captured: Captured,
) -> Option<u32> {
    let generation = || engine.code.mappings.generation();
    match captured {
        Captured::Same if own.last_generation == generation() && own.last_stack.is_some() => {
            own.last_stack
        }
        Captured::Recent(stack) => Some(stack),
        Captured::Script(true) if own.script.stack().is_some() => own.script.stack(),
        Captured::Script(_) => script_stack(engine, own, frame),
        _ => changed_stack(engine, own, frame, captured),
    }
}

/// Brings into the cache what a captured stack will need.
#[inline(always)]
pub(super) fn foresee(engine: &Engine, state: &ThreadState, own: &Own, captured: Captured) {
    let stack = match captured {
        Captured::Recorded => {
            let key = mixed(own.remembered.hash(), engine.code.mappings.generation());
            engine.books.stacks.prefetch(key);
            return;
        }
        Captured::Recent(stack) => Some(stack),
        Captured::Script(true) => own.script.stack(),
        Captured::Script(false) => {
            engine.books.stacks.prefetch(mixed(own.script.hash(), 0));
            return;
        }
        _ => own.last_stack,
    };
    if let Some(stack) = stack {
        hint(state.place_of_counters(stack));
    }
}

/// The key of a stack: its hash, mixed with the generation of mappings. It is no key that the table
/// has a use of its own for.
#[inline(always)]
fn mixed(hash: u64, generation: u32) -> u64 {
    (hash ^ u64::from(generation).wrapping_mul(0x94d0_49bb_1331_11eb)).max(2)
}

/// The number of the stack with this hash, which is `new` if nobody saw it before.
#[inline(always)]
fn find_or_insert<'a>(
    engine: &Engine,
    hash: u64,
    generation: u32,
    new: impl FnOnce() -> Stack<'a>,
) -> Option<u32> {
    let stacks = &engine.books.stacks;
    let found = stacks.find(hash);
    found.or_else(|| stacks.find_or_insert(&engine.process, hash, generation, new()))
}

/// The number of an interpreter's stack that is not the one of last time.
#[inline(never)]
fn script_stack(engine: &Engine, own: &mut Own, frame: CallSite) -> Option<u32> {
    let Own {
        script, remembered, ..
    } = own;
    let hash = mixed(script.hash(), 0);
    let native = script.native();
    let id = match native {
        None => find_or_insert(engine, hash, 0, || {
            let base = script.stack().map(|last| (last, script.shared()));
            Stack::on(base, script.words())
        }),
        Some(_) => engine.books.stacks.find(hash).or_else(|| {
            let stacks = &engine.books.stacks;
            let generation = engine.code.mappings.generation();
            // The record may hold another stack, and does not say where frames lie.
            let mut end = OUTERMOST;
            let merged = script.merge(&engine.scripts.providers, |to| {
                let len = remembered.walk_placed(frame, engine.unwinder(), to);
                if remembered.walk_ends_early() {
                    let mut oldest = to[..len].iter().rev().map(|placed| placed.pc);
                    end = reason_of_end(engine, &mut oldest);
                }
                len
            });
            let stack = Stack::new(merged).ending(end);
            stacks.find_or_insert(&engine.process, hash, generation, stack)
        }),
    };
    script.note_pool(&engine.scripts.pools, id);
    script.numbered(id);
    id
}

/// Why the recorded stack has no older frame.
fn end_of_record(engine: &Engine, record: &LastStack) -> u32 {
    match record.ends_early() {
        true => reason_of_end(engine, &mut record.frames().iter().copied()),
        false => OUTERMOST,
    }
}

/// Why a stack ends early. The oldest of its return addresses comes first.
#[cold]
fn reason_of_end(engine: &Engine, oldest: &mut dyn Iterator<Item = u64>) -> u32 {
    match (oldest.next(), oldest.next()) {
        (None, _) => OUTERMOST,
        (Some(oldest), callee) => engine.unwinder().reason_of_end(oldest, callee),
    }
}

fn changed_stack(
    engine: &Engine,
    own: &mut Own,
    frame: CallSite,
    captured: Captured,
) -> Option<u32> {
    let generation = engine.code.mappings.generation();
    let record = &mut own.remembered;
    let id = if captured == Captured::Unrecorded {
        let len = record.walk(frame, engine.unwinder());
        let kept = record.walked(len);
        let hash = mixed(capture::hash(kept), generation);
        let id = find_or_insert(engine, hash, generation, || {
            Stack::new(kept).ending(match record.walk_ends_early() {
                true => reason_of_end(engine, &mut kept.iter().rev().copied()),
                false => OUTERMOST,
            })
        });
        // What the record holds, if anything, is not what got this number.
        record.numbered(None, generation);
        id
    } else if record.is_deep() {
        let hash = mixed(record.hash_of_ends(), generation);
        let id = find_or_insert(engine, hash, generation, || {
            let end = end_of_record(engine, record);
            Stack::new(record.ends()).ending(end)
        });
        record.numbered(None, generation);
        id
    } else {
        let hash = mixed(record.hash(), generation);
        let id = find_or_insert(engine, hash, generation, || {
            let base = own.last_stack.map(|last| (last, record.shared()));
            Stack::on(base, record.frames()).ending(end_of_record(engine, record))
        });
        record.numbered(id, generation);
        id
    };
    (own.last_stack, own.last_generation) = (id, generation);
    id
}

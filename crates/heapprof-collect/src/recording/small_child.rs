//! Whether a child has held so little of its own that its last profile is not worth a file: a
//! forked child that becomes another program, or a small program that a script calls.

use std::ffi::CString;
use std::sync::atomic::Ordering;

use heapprof_books::state;

use crate::dump::{Dumping, output};
use crate::engine::Engine;
use crate::platform::sys;
use crate::reason::Reason;
use crate::recording::{lines, snapshot};
use crate::tables::sampler::BYTE_BITS;

/// Memory that is set aside for a copy of the options and an entry of the list.
const ROOM: usize = 64 << 10;

/// The most bytes that this process may have held of its own. For a program that is its peak. A
/// forked child may free what it inherited while it allocates, so its peak says nothing; what
/// it has allocated itself is never less than what it held.
pub(super) fn most_held(engine: &Engine) -> i64 {
    let heap = &engine.books.shared.heap;
    let bytes = match engine.threads.names.generation() {
        0 => heap.peak_bytes(),
        _ => allocated(engine),
    };
    let bytes = match engine.process.recorded.is_exact() {
        true => bytes,
        false => bytes >> BYTE_BITS,
    };
    bytes - inherited(engine)
}

/// What counts as inherited: what was in use when a forked child began.
fn inherited(engine: &Engine) -> i64 {
    match engine.threads.names.generation() {
        0 => 0,
        _ => engine.dumping.history.first_bytes(&engine.process),
    }
}

/// All that was allocated, in the recording's unit. What was inherited counts as allocated.
fn allocated(engine: &Engine) -> i64 {
    let mut bytes = 0i64;
    let shared = &engine.books.shared;
    shared.at_rest(&engine.process, &engine.threads, || {
        for state in engine.threads.all() {
            for stack in 0..engine.books.stacks.len() as usize {
                if let Some(counters) = state.of_stack(stack).counters {
                    bytes = bytes.wrapping_add(counters.allocated.get()[1]);
                }
            }
        }
    });
    bytes
}

/// Whether the last profile of this process is left out. A process that shuts itself in goes on
/// where nobody sees it, so what it held by then says nothing about it.
fn is_left_out(engine: &Engine, reason: Reason) -> bool {
    let (process, dumping) = (&engine.process, &engine.dumping);
    if !reason.is_last() || reason == Reason::Sandbox {
        return false;
    }
    let least = |dumping: &Dumping| {
        let of = dumping.options.with(process, |options| {
            options
                .as_ref()
                .map(|options| options.output.least_of_child)
        });
        of.unwrap_or(0)
    };
    let least = i64::try_from(least(dumping)).unwrap_or(i64::MAX);
    least > 0
        && !dumping.naming.with(process, |naming| naming.is_main())
        && most_held(engine) < least
}

/// Leaves the last profile of a small child out, and says so in the list. Returns false if the
/// profile is to be written. It is this thread's turn to dump.
pub(super) fn leave_out(engine: &Engine, reason: Reason) -> bool {
    let (process, dumping) = (&engine.process, &engine.dumping);
    if !is_left_out(engine, reason) {
        return false;
    }
    let mut is_told = false;
    dumping.stack.run(|| {
        let follows = |o: &mut Option<_>| o.as_ref().is_some_and(Dumping::is_followed);
        let room = match dumping.options.with(process, follows) {
            true => snapshot::memory_needed(engine),
            false => ROOM,
        };
        if !engine.reserve(room) {
            return;
        }
        let Some(options) = dumping.options.with(process, |o| o.clone()) else {
            return;
        };
        if Dumping::is_followed(&options) {
            lines::look(engine, &options, true);
        }
        output::add_to_list(&options.output.list, &entry(reason));
        is_told = true;
    });
    if is_told {
        dumping
            .ended
            .fetch_or(reason.ends_program(), Ordering::AcqRel);
        if reason == Reason::Exec {
            dumping.note_exec();
            process.pages.kept.say(state::BEFORE_EXEC);
        } else {
            process.pages.kept.say(state::HAS_ENDED);
        }
    }
    is_told
}

/// What the list says of it.
fn entry(reason: Reason) -> CString {
    let when = match reason {
        Reason::Exec => 2,
        _ => 1,
    };
    CString::new(format!("-{} {when}", sys::process_id())).unwrap_or_default()
}

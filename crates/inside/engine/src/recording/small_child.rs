//! Whether a child has had so little of its own in use that its last profile is not worth a file: a
//! forked child that becomes another program, or a small program that a script calls.

use std::ffi::CString;
use std::sync::atomic::Ordering;

use heapprof_abi::process_state;
use heapprof_platform::sys;

use crate::dump::{DumpState, output};
use crate::engine::Engine;
use crate::reason::DumpReason;
use crate::recording::{lines, snapshot};
use crate::tables::sampler::BYTE_BITS;

/// Bytes of memory that are set aside for a copy of the options and an entry of the list.
const MAX_ENTRY_MEMORY: usize = 64 << 10;

/// Returns an upper bound of the bytes, besides inherited ones, that this process has had in use at
/// a time. For a program, the bound is its peak. A forked child may free inherited memory while it
/// allocates, so its peak says nothing; the bound is all bytes that the child has allocated.
pub(super) fn max_retained_bytes(engine: &Engine) -> i64 {
    let heap = &engine.ledger.access.heap;
    let bytes = match engine.threads.names.generation() {
        0 => heap.peak_bytes(),
        _ => allocated_units(engine),
    };
    let bytes = match engine.process.recorded.is_exact() {
        true => bytes,
        false => bytes >> BYTE_BITS,
    };
    bytes - inherited_bytes(engine)
}

/// Returns the bytes that count as inherited: those in use when a forked child began.
fn inherited_bytes(engine: &Engine) -> i64 {
    match engine.threads.names.generation() {
        0 => 0,
        _ => engine.dumping.history.first_bytes(&engine.process),
    }
}

/// Returns all bytes that were allocated, in the recording's unit. Inherited bytes count as
/// allocated.
fn allocated_units(engine: &Engine) -> i64 {
    let mut bytes = 0i64;
    let shared = &engine.ledger.access;
    shared.run_at_rest(&engine.process, &engine.threads, || {
        for state in engine.threads.all() {
            for stack in engine.ledger.stacks.numbers() {
                if let Some(counters) = state.stack_sums(stack).counters {
                    bytes = bytes.wrapping_add(counters.allocated.get()[1]);
                }
            }
        }
    });
    bytes
}

/// Whether the last profile of this process is left out. A process that enters a sandbox goes on
/// without being recorded, so the bytes that it had in use by then say nothing about it.
fn is_left_out(engine: &Engine, reason: DumpReason) -> bool {
    let (process, dumping) = (&engine.process, &engine.dumping);
    if !reason.is_last() || reason == DumpReason::Sandbox {
        return false;
    }
    let least = |dumping: &DumpState| {
        let of = dumping.options.with(process, |options| {
            options
                .as_ref()
                .map(|options| options.output.min_child_bytes)
        });
        of.unwrap_or(0)
    };
    let least = i64::try_from(least(dumping)).unwrap_or(i64::MAX);
    least > 0
        && !dumping.naming.with(process, |naming| naming.is_main())
        && max_retained_bytes(engine) < least
}

/// Leaves the last profile of a small child out, and adds an entry about that to the list. Returns
/// false if the profile is to be written. It is this thread's turn to dump.
pub(super) fn leave_out(engine: &Engine, reason: DumpReason) -> bool {
    let (process, dumping) = (&engine.process, &engine.dumping);
    if !is_left_out(engine, reason) {
        return false;
    }
    let mut is_reported = false;
    dumping.stack.run(|| {
        let follows = |o: &mut Option<_>| o.as_ref().is_some_and(DumpState::is_followed);
        let room = match dumping.options.with(process, follows) {
            true => snapshot::memory_needed(engine),
            false => MAX_ENTRY_MEMORY,
        };
        if !engine.reserve(room) {
            return;
        }
        let Some(options) = dumping.options.with(process, |o| o.clone()) else {
            return;
        };
        if DumpState::is_followed(&options) {
            lines::scan(engine, &options, true);
        }
        output::add_to_list(&options.output.list, &list_entry(reason));
        is_reported = true;
    });
    if is_reported {
        dumping
            .ended
            .fetch_or(reason.ends_program(), Ordering::AcqRel);
        if reason == DumpReason::Exec {
            dumping.note_exec();
            process
                .pages
                .table_file
                .set_state(process_state::BEFORE_EXEC);
        } else {
            process.pages.table_file.set_state(process_state::HAS_ENDED);
        }
    }
    is_reported
}

/// Returns the entry of the list for a profile that is left out.
fn list_entry(reason: DumpReason) -> CString {
    let when = match reason {
        DumpReason::Exec => 2,
        _ => 1,
    };
    CString::new(format!("-{} {when}", sys::process_id())).unwrap_or_default()
}

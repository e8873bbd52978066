//! Leaves out the last profiles of small children: forked children that call exec, and small
//! programs that a script calls. Such a child has had little memory of its own in use, so its
//! profile is not worth a file.

use std::ffi::CString;
use std::sync::atomic::Ordering;

use heapprof_abi::process_state;
use heapprof_platform::sys;

use crate::dump::{DumpState, output};
use crate::engine::Engine;
use crate::reason::DumpReason;
use crate::recording::{lines, snapshot};
use crate::tables::sampler::BYTE_BITS;

/// Number of bytes of memory that are reserved for a copy of the options and an entry of the list.
const MAX_ENTRY_MEMORY: usize = 64 << 10;

/// Returns an upper bound of the bytes that this process has had in use at a time, without
/// inherited bytes. For a program, the bound is its peak. For a forked child, it is the sum of all
/// bytes that the child has allocated. The peak of a forked child can't serve as bound, because the
/// child may free inherited memory while it allocates.
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

/// Returns the number of inherited bytes: bytes that were in use when a forked child began.
fn inherited_bytes(engine: &Engine) -> i64 {
    match engine.threads.names.generation() {
        0 => 0,
        _ => engine.dumping.history.first_bytes(&engine.process),
    }
}

/// Returns the sum of all bytes that were allocated, in the recording's unit. Inherited bytes count
/// as allocated.
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

/// Whether the last profile of this process is left out. The profile before a sandbox is never left
/// out: the process continues without being recorded, so its later memory in use is not known.
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

/// Leaves out the last profile of a small child, and adds an entry about this to the list. Returns
/// false if the profile is to be written. This thread must have the turn to dump.
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

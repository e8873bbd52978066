//! Moments of the heap's history, taken in the program's threads after an event.
//!
//! A thread checks whether a moment is due each time it reports its allocated and freed bytes, so
//! the engine needs no clock thread for this. The pace of these checks ([`CheckPace`]) determines
//! how many bytes a thread may leave unreported.

use std::sync::atomic::Ordering;

use heapprof_abi::process_state;
use heapprof_platform::{sys, table_file};
use heapprof_profile::HeapMoment;

use crate::dump::history::CheckPace;
use crate::engine::Engine;
use crate::tables::sampler::BYTE_BITS;
use crate::tables::sizes::objects_from_units;

/// Takes a moment, if one is due. Also copies values into the saved ledger, and adapts the pace of
/// the checks.
#[cold]
pub(crate) fn take_due_moment(engine: &Engine) {
    let dumping = &engine.dumping;
    let micros = dumping.elapsed_micros();
    publish_values(engine, micros);
    let pace = dumping
        .history
        .note_check(micros, engine.ledger.access.heap.peak_bytes());
    // A ledger that waits to be moved into a file is to be checked before it holds much more.
    let may_slow = !engine.process.pages.table_file.is_waiting();
    if pace == CheckPace::Quickest || pace == CheckPace::Slower && may_slow {
        dumping.due.change_pace(pace == CheckPace::Slower);
    }
    if dumping.history.is_due(micros) {
        // A handler that ends the process dumps, and its dump takes the lock of the moments, too.
        let mask = engine.process.block_signals();
        dumping
            .history
            .add(&engine.process, current_moment(engine, micros));
        sys::restore_signals(mask);
    }
}

/// Copies values that are outside the tables into the saved ledger. Also corrects the process's
/// state in the saved ledger, if this state is that of an ended process or of an exec, although the
/// process continues.
fn publish_values(engine: &Engine, micros: i64) {
    let (pages, dumping) = (&engine.process.pages, &engine.dumping);
    if pages.table_file.is_there() {
        pages.table_file.copy_words(table_file::HEAP_COPY, 0..3);
        pages
            .table_file
            .copy_words(table_file::DROPPED_COPY, 0..heapprof_abi::DROPPED_COUNT);
        pages.table_file.copy_words(table_file::PEAK_AT_COPY, 0..1);
        if pages.table_file.is_file_due(dumping.due.allocated()) {
            dumping.due.request_scan();
        }
        // Objects that stacks lead through are recorded at once, and all other code here.
        if engine.code.seen.take_due(micros) && !dumping.due.request_scan() {
            engine.code.seen.request_scan();
        }
        let goes_on = match pages.table_file.state() {
            process_state::BEFORE_EXEC => !dumping.is_about_to_exec(),
            process_state::HAS_ENDED => !dumping.ended.load(Ordering::Acquire),
            _ => false,
        };
        if goes_on {
            pages.table_file.set_state(process_state::NOT_ENDED);
        }
    }
}

/// Begins the history of a recording or of a forked child, and the schedule of scans of code.
pub(crate) fn begin_history(engine: &Engine) {
    engine.code.seen.begin();
    let peak = engine.ledger.access.heap.peak_bytes();
    let history = &engine.dumping.history;
    history.begin(&engine.process, current_moment(engine, 0), peak);
}

/// Returns the size of the heap now. Other threads may be in the middle of an event.
fn current_moment(engine: &Engine, micros: i64) -> HeapMoment {
    let (mut bytes, mut objects) = (engine.ledger.access.heap.in_use(), 0i64);
    for state in engine.threads.all() {
        // A budget that a thread has taken in advance is not in use.
        bytes = bytes.wrapping_sub(state.budget.get());
        objects = objects.wrapping_add(state.sizes.in_use());
    }
    if !engine.process.recorded.is_exact() {
        bytes >>= BYTE_BITS;
        objects = objects_from_units(objects);
    }
    HeapMoment {
        micros,
        bytes: bytes.max(0),
        objects: objects.max(0),
    }
}

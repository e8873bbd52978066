//! Moments of the heap's history, taken in the program's threads after an event.
//!
//! A thread looks each time it reports what it has allocated or freed, so no clock runs for it. How
//! much that is follows from how soon threads look again ([`Pace`]).

use std::sync::atomic::Ordering;

use heapprof_books::state;
use heapprof_profile::Moment;

use crate::dump::history::Pace;
use crate::engine::Engine;
use crate::platform::{kept, sys};
use crate::tables::sampler::BYTE_BITS;
use crate::tables::sizes::shown;

/// Looks whether a moment is due, and takes it.
#[cold]
pub(crate) fn look(engine: &Engine) {
    let dumping = &engine.dumping;
    let micros = dumping.micros();
    show(engine, micros);
    let pace = dumping
        .history
        .look(micros, engine.books.shared.heap.peak_bytes());
    // Books that wait are to be looked at before they hold much more.
    let may_slow = !engine.process.pages.kept.is_waiting();
    if pace == Pace::Quickest || pace == Pace::Slower && may_slow {
        dumping.due.change_pace(pace == Pace::Slower);
    }
    if dumping.history.is_due(micros) {
        // A handler that ends the process dumps, and that takes the lock of the moments, too.
        let mask = engine.process.block_signals();
        dumping.history.add(&engine.process, now(engine, micros));
        sys::restore_signals(mask);
    }
}

/// Shows readers of a file of kept books what it has no tables of. If the process was about to end,
/// or to become another program, it goes on after all.
fn show(engine: &Engine, micros: i64) {
    let (pages, dumping) = (&engine.process.pages, &engine.dumping);
    if pages.kept.is_there() {
        pages.kept.copy_words(kept::HEAP, 0..3);
        pages
            .kept
            .copy_words(kept::DROPPED, 0..heapprof_books::DROPPED);
        pages.kept.copy_words(kept::PEAK_AT, 0..1);
        if pages.kept.is_file_due(dumping.due.allocated()) {
            dumping.due.ask_to_look();
        }
        // The objects that stacks lead through are noted at once, and all other code here.
        if engine.code.seen.take_due(micros) && !dumping.due.ask_to_look() {
            engine.code.seen.ask();
        }
        let goes_on = match pages.kept.state() {
            state::BEFORE_EXEC => !dumping.is_about_to_exec(),
            state::HAS_ENDED => !dumping.ended.load(Ordering::Acquire),
            _ => false,
        };
        if goes_on {
            pages.kept.say(state::GOES_ON);
        }
    }
}

/// Begins the history of a recording, or that of a forked child, and the time of looks at code.
pub(crate) fn begin(engine: &Engine) {
    engine.code.seen.begin();
    let peak = engine.books.shared.heap.peak_bytes();
    let history = &engine.dumping.history;
    history.begin(&engine.process, now(engine, 0), peak);
}

/// What is in use now. Other threads may be in the middle of an event.
fn now(engine: &Engine, micros: i64) -> Moment {
    let (mut bytes, mut objects) = (engine.books.shared.heap.in_use(), 0i64);
    for state in engine.threads.all() {
        // What a thread has taken in advance is not in use.
        bytes = bytes.wrapping_sub(state.budget.get());
        objects = objects.wrapping_add(state.sizes.in_use());
    }
    if !engine.process.recorded.is_exact() {
        bytes >>= BYTE_BITS;
        objects = shown(objects);
    }
    Moment {
        micros,
        bytes: bytes.max(0),
        objects: objects.max(0),
    }
}

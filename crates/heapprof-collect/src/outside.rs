//! Where everything is that somebody outside of the process may read: the engine's [`Books`].
//!
//! `heapprof-books` says how the tables lie in memory. What it says is held against the tables
//! here.

use std::mem::offset_of;
use std::ptr::from_ref;
use std::sync::atomic::Ordering;

use heapprof_books::{
    Books, DROPPED, MAGIC, Place, VERSION, chunks, counters, frame, heap, moments, name, spread,
    stack, table, thread,
};

use crate::books::live::{Part, Table};
use crate::dropped::Dropped;
use crate::engine::{ENGINE, Engine};
use crate::platform::kept::{self, COPIES, HEAP, Kept, MOMENTS, PEAK_AT};
use crate::tables::counters::{Heap, StackCounters, Temporary};
use crate::tables::moments::Moments;
use crate::tables::script_frames;
use crate::tables::spread::Spread;
use crate::tables::stacks::StackEntry;
use crate::thread::names;
use crate::thread::state::ThreadState;
use heapprof_profile::Moment;

/// The books of [`ENGINE`]. They lie in writable data, where a reader looks for them.
#[used]
static BOOKS: Books = ENGINE.outside();

/// Lets readers find the books of an engine that records.
pub(crate) fn show(engine: &Engine) {
    if std::ptr::eq(engine, &raw const ENGINE) {
        let own = from_ref(&BOOKS).cast_mut().cast();
        BOOKS
            .log
            .store(engine.log.place().cast(), Ordering::Relaxed);
        BOOKS.own.store(own, Ordering::Release);
    }
}

/// Hides the books of an engine, because they are those of the process that this one was forked
/// from.
pub(crate) fn hide(engine: &Engine) {
    if std::ptr::eq(engine, &raw const ENGINE) {
        BOOKS.own.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Where something is.
const fn place<T>(of: &'static T) -> Place {
    Place::new(from_ref(of).cast_mut().cast())
}

/// Where everything is that a reader of a file of kept books looks for: what is in tables is where
/// it is, and of everything else there is a copy in the file.
pub(crate) fn copied(engine: &'static Engine, file: &Kept) -> Books {
    let mut books = engine.outside();
    books.threads = place(&engine.threads.kept);
    books.thread.next = offset_of!(ThreadState, next_kept) as u32;
    const CHUNKS: usize = 8 * chunks::COUNT;
    let all: [(&Place, usize); COPIES] = [
        (&books.process, 4),
        (&books.mode, 1),
        (&books.period, 8),
        (&books.epoch, 8),
        (&books.started, 8),
        (&books.since, 8),
        (&books.heap, heap::PHASE + 8),
        (&books.dropped, 8 * DROPPED),
        (&books.threads, 8),
        (&books.stacks, 4),
        (&books.stack, CHUNKS),
        (&books.frames, 4),
        (&books.frame, CHUNKS),
        (&books.names, 4),
        (&books.name, CHUNKS),
        (
            &books.moments,
            moments::FIRST + moments::MOST * moments::LEN,
        ),
        (&books.peak_at, 8),
        (&books.mappings, 4),
        (&books.mapping, CHUNKS),
    ];
    let is_at = |i: usize, place: &Place| std::ptr::eq(all[i].0, place);
    debug_assert!(is_at(HEAP, &books.heap) && is_at(kept::DROPPED, &books.dropped));
    debug_assert!(is_at(MOMENTS, &books.moments) && is_at(PEAK_AT, &books.peak_at));
    let places = file.set_copies(all.map(|(place, len)| {
        let at = place.load(Ordering::Relaxed);
        (at.expose_provenance(), len)
    }));
    for ((place, _), copy) in all.into_iter().zip(places) {
        let copy = std::ptr::with_exposed_provenance_mut(copy);
        place.store(copy, Ordering::Relaxed);
    }
    // Nobody is to take them for those of the process itself.
    books.magic = [0; 16];
    for missing in [&mut books.parts, &mut books.shadows, &mut books.shadow] {
        *missing = Place::new(std::ptr::null_mut());
    }
    books.log = Place::new(engine.log.place().cast());
    books
}

impl Engine {
    /// Where everything is.
    const fn outside(&'static self) -> Books {
        let Self {
            process,
            code,
            scripts,
            threads,
            books,
            dumping,
            ..
        } = self;
        let (recorded, history) = (&process.recorded, &dumping.history);
        Books {
            magic: MAGIC,
            version: VERSION,
            size: size_of::<Books>() as u32,
            own: Place::new(std::ptr::null_mut()),
            process: place(&process.id),
            mode: place(&recorded.mode),
            period: place(&recorded.period),
            epoch: place(&recorded.epoch),
            started: place(&dumping.started),
            since: place(&dumping.since),
            heap: place(&books.shared.heap),
            dropped: place(&process.dropped),
            threads: place(&threads.all),
            stacks: place(&books.stacks.len),
            stack: place(&books.stacks.entry),
            frames: place(&scripts.names.len),
            frame: place(&scripts.names.entry),
            names: place(&threads.names.asked),
            name: place(&threads.names.entry),
            moments: Place::new(history.moments.place().cast()),
            peak_at: place(&history.peak_at),
            mappings: place(&code.mappings.published),
            mapping: place(&code.mappings.mapping),
            parts: place(&books.live.part),
            part: [size_of::<Part>() as u32, offset_of!(Part, table) as u32],
            thread: thread::Offsets {
                next: offset_of!(ThreadState, next) as u32,
                counters: offset_of!(ThreadState, counters) as u32,
                temporary: offset_of!(ThreadState, temporary) as u32,
                spread: offset_of!(ThreadState, spread) as u32,
                sizes: offset_of!(ThreadState, sizes) as u32,
                unused: 0,
            },
            log: Place::new(std::ptr::null_mut()),
            shadows: place(&books.live.shadows.count),
            shadow: place(&books.live.shadows.chunk),
        }
    }
}

const _: () = {
    assert!(size_of::<StackCounters>() == counters::LEN);
    assert!(offset_of!(StackCounters, allocated) == counters::ALLOCATED);
    assert!(offset_of!(StackCounters, freed) == counters::FREED);
    assert!(offset_of!(StackCounters, at_peak) == counters::AT_PEAK);
    assert!(offset_of!(StackCounters, fall) == counters::FALL);
    assert!(size_of::<Temporary>() == 16);
    assert!(size_of::<Spread>() == spread::LEN);
    assert!(offset_of!(Heap, in_use) == heap::IN_USE);
    assert!(offset_of!(Heap, peak) == heap::PEAK);
    assert!(offset_of!(Heap, phase) == heap::PHASE);
    assert!(size_of::<StackEntry>() == stack::LEN);
    assert!(offset_of!(StackEntry, generation) == stack::GENERATION);
    assert!(offset_of!(StackEntry, frames) == stack::FRAMES);
    assert!(offset_of!(StackEntry, from_base) == stack::FROM_BASE);
    assert!(offset_of!(StackEntry, base) == stack::BASE);
    assert!(size_of::<script_frames::Entry>() == frame::LEN);
    assert!(offset_of!(script_frames::Entry, start_line) == frame::START_LINE);
    assert!(offset_of!(script_frames::Entry, line) == frame::LINE);
    assert!(offset_of!(script_frames::Entry, name) == frame::NAME);
    assert!(offset_of!(script_frames::Entry, file) == frame::FILE);
    assert!(size_of::<names::Entry>() == name::LEN);
    assert!(offset_of!(names::Entry, id) == name::ID);
    assert!(offset_of!(names::Entry, is_gone) == name::IS_GONE);
    assert!(offset_of!(names::Entry, generation) == name::GENERATION);
    assert!(offset_of!(names::Entry, name) == name::NAME);
    assert!(offset_of!(Moments, len) == moments::COUNT);
    assert!(offset_of!(Moments, all) == moments::FIRST);
    assert!(size_of::<Moment>() == moments::LEN);
    assert!(offset_of!(Moment, micros) == 0 && offset_of!(Moment, bytes) == 8);
    assert!(offset_of!(Moment, objects) == 16);
    assert!(offset_of!(Table, entry) == table::ENTRY);
    assert!(offset_of!(Table, mask) == table::MASK);
    assert!(offset_of!(Table, len) == table::BLOCKS);
    assert!(offset_of!(Dropped, nested) == 0 && offset_of!(Dropped, no_memory) == 8);
    assert!(offset_of!(Dropped, held_up) == 16 && offset_of!(Dropped, unknown) == 24);
    assert!(offset_of!(Dropped, unseen) == 32 && offset_of!(Dropped, torn) == 40);
};

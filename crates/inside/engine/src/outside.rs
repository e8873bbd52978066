//! The engine's [`LedgerHeader`], from which other processes find all tables.
//!
//! `heapprof-abi` describes the layout of the tables in memory. Assertions here compare the layout
//! with the tables.

use std::mem::offset_of;
use std::ptr::from_ref;
use std::sync::atomic::Ordering;

use heapprof_abi::{
    DROPPED_COUNT, LEDGER_MAGIC, LEDGER_VERSION, LedgerHeader, TableAddress, chunks, counters,
    frame, heap, moments, name, spread, stack, table, thread,
};
use heapprof_platform::table_file::{
    self, COPY_COUNT, HEAP_COPY, MOMENTS_COPY, PEAK_AT_COPY, TableFile,
};
use heapprof_profile::HeapMoment;

use crate::drop_counters::DroppedEvents;
use crate::engine::{ENGINE, Engine};
use crate::ledger::live::{BlockTable, LivePart};
use crate::tables::counters::{HeapCounters, StackCounters, TemporarySum};
use crate::tables::moments::HeapMoments;
use crate::tables::script_frames;
use crate::tables::spread::StackSpread;
use crate::tables::stacks::StackEntry;
use crate::thread::names;
use crate::thread::state::ThreadState;

/// The header of the ledger of [`ENGINE`]. It is in writable data, where readers search for it.
#[used]
static LEDGER_HEADER: LedgerHeader = ENGINE.build_header();

/// Publishes the ledger of an engine that records, so that readers find it.
pub(crate) fn publish(engine: &Engine) {
    if std::ptr::eq(engine, &raw const ENGINE) {
        let own = from_ref(&LEDGER_HEADER).cast_mut().cast();
        LEDGER_HEADER
            .log
            .store(engine.log.ring_place().cast(), Ordering::Relaxed);
        LEDGER_HEADER.own.store(own, Ordering::Release);
    }
}

/// Hides the ledger of an engine in a forked process, because this ledger still belongs to the
/// parent.
pub(crate) fn hide(engine: &Engine) {
    if std::ptr::eq(engine, &raw const ENGINE) {
        LEDGER_HEADER
            .own
            .store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Returns the address of a value for the header.
const fn address_of<T>(of: &'static T) -> TableAddress {
    TableAddress::new(from_ref(of).cast_mut().cast())
}

/// Builds the header for readers of a saved ledger. It has the addresses of the tables, and for all
/// other values the addresses of their copies in the file.
pub(crate) fn build_shared_header(engine: &'static Engine, file: &TableFile) -> LedgerHeader {
    let mut ledger = engine.build_header();
    ledger.threads = address_of(&engine.threads.all_in_file);
    ledger.thread.next = offset_of!(ThreadState, next_in_file) as u32;
    const CHUNK_LIST_LEN: usize = 8 * chunks::MAX_CHUNKS;
    let all: [(&TableAddress, usize); COPY_COUNT] = [
        (&ledger.process, 4),
        (&ledger.mode, 1),
        (&ledger.period, 8),
        (&ledger.epoch, 8),
        (&ledger.started, 8),
        (&ledger.since, 8),
        (&ledger.heap, heap::PHASE + 8),
        (&ledger.dropped, 8 * DROPPED_COUNT),
        (&ledger.threads, 8),
        (&ledger.stacks, 4),
        (&ledger.stack, CHUNK_LIST_LEN),
        (&ledger.frames, 4),
        (&ledger.frame, CHUNK_LIST_LEN),
        (&ledger.names, 4),
        (&ledger.name, CHUNK_LIST_LEN),
        (
            &ledger.moments,
            moments::FIRST_MOMENT + moments::MAX_MOMENTS * moments::LEN,
        ),
        (&ledger.peak_at, 8),
        (&ledger.mappings, 4),
        (&ledger.mapping, CHUNK_LIST_LEN),
    ];
    let is_at = |i: usize, place: &TableAddress| std::ptr::eq(all[i].0, place);
    debug_assert!(
        is_at(HEAP_COPY, &ledger.heap) && is_at(table_file::DROPPED_COPY, &ledger.dropped)
    );
    debug_assert!(is_at(MOMENTS_COPY, &ledger.moments) && is_at(PEAK_AT_COPY, &ledger.peak_at));
    let places = file.set_copies(all.map(|(place, len)| {
        let at = place.load(Ordering::Relaxed);
        (at.expose_provenance(), len)
    }));
    for ((place, _), copy) in all.into_iter().zip(places) {
        let copy = std::ptr::with_exposed_provenance_mut(copy);
        place.store(copy, Ordering::Relaxed);
    }
    // A reader must not take this header for that of the process itself.
    ledger.magic = [0; 16];
    for missing in [&mut ledger.parts, &mut ledger.shadows, &mut ledger.shadow] {
        *missing = TableAddress::new(std::ptr::null_mut());
    }
    ledger.log = TableAddress::new(engine.log.ring_place().cast());
    ledger
}

impl Engine {
    /// Builds the header with the addresses of all tables.
    const fn build_header(&'static self) -> LedgerHeader {
        let Self {
            process,
            code,
            scripts,
            threads,
            ledger,
            dumping,
            ..
        } = self;
        let (recorded, history) = (&process.recorded, &dumping.history);
        LedgerHeader {
            magic: LEDGER_MAGIC,
            version: LEDGER_VERSION,
            size: size_of::<LedgerHeader>() as u32,
            own: TableAddress::new(std::ptr::null_mut()),
            process: address_of(&process.id),
            mode: address_of(&recorded.mode),
            period: address_of(&recorded.period),
            epoch: address_of(&recorded.epoch),
            started: address_of(&dumping.started),
            since: address_of(&dumping.since),
            heap: address_of(&ledger.access.heap),
            dropped: address_of(&process.dropped),
            threads: address_of(&threads.all),
            stacks: address_of(&ledger.stacks.len),
            stack: address_of(&ledger.stacks.entry),
            frames: address_of(&scripts.names.len),
            frame: address_of(&scripts.names.entry),
            names: address_of(&threads.names.asked),
            name: address_of(&threads.names.entry),
            moments: TableAddress::new(history.moments.value_place().cast()),
            peak_at: address_of(&history.peak_at),
            mappings: address_of(&code.mappings.published),
            mapping: address_of(&code.mappings.mapping),
            parts: address_of(&ledger.live.part),
            part: [
                size_of::<LivePart>() as u32,
                offset_of!(LivePart, table) as u32,
            ],
            thread: thread::ThreadOffsets {
                next: offset_of!(ThreadState, next) as u32,
                counters: offset_of!(ThreadState, counters) as u32,
                temporary: offset_of!(ThreadState, temporary) as u32,
                spread: offset_of!(ThreadState, spread) as u32,
                sizes: offset_of!(ThreadState, sizes) as u32,
                unused: 0,
            },
            log: TableAddress::new(std::ptr::null_mut()),
            shadows: address_of(&ledger.live.shadows.count),
            shadow: address_of(&ledger.live.shadows.chunk),
        }
    }
}

const _: () = {
    assert!(size_of::<StackCounters>() == counters::LEN);
    assert!(offset_of!(StackCounters, allocated) == counters::ALLOCATED);
    assert!(offset_of!(StackCounters, freed) == counters::FREED);
    assert!(offset_of!(StackCounters, at_peak) == counters::AT_PEAK);
    assert!(offset_of!(StackCounters, fall) == counters::FALL);
    assert!(size_of::<TemporarySum>() == 16);
    assert!(size_of::<StackSpread>() == spread::LEN);
    assert!(offset_of!(HeapCounters, in_use) == heap::IN_USE);
    assert!(offset_of!(HeapCounters, peak) == heap::PEAK);
    assert!(offset_of!(HeapCounters, phase) == heap::PHASE);
    assert!(size_of::<StackEntry>() == stack::LEN);
    assert!(offset_of!(StackEntry, generation) == stack::GENERATION);
    assert!(offset_of!(StackEntry, frames) == stack::FRAMES);
    assert!(offset_of!(StackEntry, from_base) == stack::FROM_BASE);
    assert!(offset_of!(StackEntry, base) == stack::BASE);
    assert!(size_of::<script_frames::ScriptFrameEntry>() == frame::LEN);
    assert!(offset_of!(script_frames::ScriptFrameEntry, start_line) == frame::START_LINE);
    assert!(offset_of!(script_frames::ScriptFrameEntry, line) == frame::LINE);
    assert!(offset_of!(script_frames::ScriptFrameEntry, name) == frame::NAME);
    assert!(offset_of!(script_frames::ScriptFrameEntry, file) == frame::FILE);
    assert!(size_of::<names::ThreadNameEntry>() == name::LEN);
    assert!(offset_of!(names::ThreadNameEntry, id) == name::ID);
    assert!(offset_of!(names::ThreadNameEntry, is_gone) == name::IS_GONE);
    assert!(offset_of!(names::ThreadNameEntry, generation) == name::GENERATION);
    assert!(offset_of!(names::ThreadNameEntry, name) == name::NAME);
    assert!(offset_of!(HeapMoments, len) == moments::COUNT);
    assert!(offset_of!(HeapMoments, all) == moments::FIRST_MOMENT);
    assert!(size_of::<HeapMoment>() == moments::LEN);
    assert!(offset_of!(HeapMoment, micros) == 0 && offset_of!(HeapMoment, bytes) == 8);
    assert!(offset_of!(HeapMoment, objects) == 16);
    assert!(offset_of!(BlockTable, entry) == table::ENTRY);
    assert!(offset_of!(BlockTable, mask) == table::MASK);
    assert!(offset_of!(BlockTable, len) == table::BLOCKS);
    assert!(offset_of!(DroppedEvents, nested) == 0 && offset_of!(DroppedEvents, no_memory) == 8);
    assert!(
        offset_of!(DroppedEvents, interrupted) == 16 && offset_of!(DroppedEvents, unknown) == 24
    );
    assert!(offset_of!(DroppedEvents, unseen) == 32 && offset_of!(DroppedEvents, torn) == 40);
};

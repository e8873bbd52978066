//! The books for events that are counted one by one, sampled or not: the program's own mappings.

use crate::dropped::count;
use crate::engine::Engine;
use crate::event::entry::{self, Tables, state_of};
use crate::event::stack::stack;
use crate::platform::tls;
use crate::stack::call_site::CallSite;
use crate::tables::counters::{Counted, Weight};
use crate::tables::sampler;
use crate::thread::state::{Own, ThreadState};

/// The books (the counters), for events that are counted one by one in either mode.
pub(crate) struct Counting<'a> {
    engine: &'static Engine,
    state: &'static ThreadState,
    own: &'a mut Own,
}

/// Bytes that such an event allocates of the engine's own memory at most.
const ROOM: usize = 64 << 10;

/// Runs `work` with the books, or not at all if there is no memory for them.
pub(crate) fn with_books(engine: &'static Engine, work: impl FnOnce(&mut Counting<'_>)) {
    let slot = tls::current();
    engine.guarded(|| {
        if !engine.reserve(ROOM) {
            return count(&engine.process.dropped.no_memory);
        }
        // SAFETY: the slot is this thread's own, and busy.
        if let Some(state) = unsafe { state_of(engine, slot, Tables::Own) } {
            // SAFETY: this is the thread's one event.
            let own = unsafe { state.own() };
            work(&mut Counting { engine, state, own });
        }
        // SAFETY: as above.
        unsafe {
            if (*slot).lent != 0 {
                entry::release_late(slot);
            }
        }
    });
}

impl Counting<'_> {
    /// What one object and one byte count in the recording's mode.
    fn units(&self) -> Weight {
        let exact = self.engine.process.recorded.is_exact();
        Weight {
            objects: if exact { 1 } else { 1 << sampler::OBJECT_BITS },
            bytes: if exact { 1 } else { 1 << sampler::BYTE_BITS },
        }
    }

    /// Counts an allocation that is not in the live table. Returns its stack, or `None` if it could
    /// not be counted or the recording `epoch` is over.
    pub(crate) fn allocated(&mut self, epoch: u64, frame: CallSite, bytes: u64) -> Option<u32> {
        let engine = self.engine;
        let stack = stack(engine, self.own, frame, bytes as usize)?;
        let counters = self.state.counters(stack, &engine.process.pages)?;
        let units = self.units();
        let weight = Weight {
            objects: units.objects,
            bytes: bytes * units.bytes,
        };
        self.state.epoch.set(epoch);
        let mut open = engine.books.shared.open(&engine.process, self.state)?;
        let counted = open.allocated(counters, weight);
        if counted.is_counted() {
            self.state.sizes.mapped(weight);
        }
        drop(open);
        if counted == Counted::Alarm {
            let heap = &engine.books.shared.heap;
            engine.dumping.due.alarm(&engine.process, heap);
        }
        if engine.process.pages.kept.is_waiting() {
            // What is mapped is not among what threads report.
            engine.process.pages.kept.wait_for(0);
            engine.dumping.due.ask_to_look();
        }
        counted.is_counted().then_some(stack)
    }

    /// Counts the end of `bytes` of such allocations, and of `objects` of them. `objects` is
    /// negative if one was cut in two. The caller holds the lock of the table that knows them. A
    /// new recording takes that lock before it restarts its sums.
    pub(crate) fn freed(&mut self, stack: u32, objects: i64, bytes: u64) {
        let Some(counters) = self.state.counters(stack, &self.engine.process.pages) else {
            return;
        };
        let process = &self.engine.process;
        let units = self.units();
        let weight = Weight {
            objects: objects.wrapping_mul(units.objects as i64) as u64,
            bytes: bytes * units.bytes,
        };
        self.state.epoch.set(process.recorded.epoch());
        if let Some(open) = self.engine.books.shared.open(process, self.state) {
            open.freed(counters, weight);
            if !open.is_overtaken() {
                self.state.sizes.unmapped(weight);
            }
        }
    }
}

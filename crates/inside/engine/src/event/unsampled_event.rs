//! Counts the events that are never sampled: the program's own mappings.

use heapprof_abi::{RecordingEpoch, StackNumber};
use heapprof_platform::tls;

use crate::drop_counters::count;
use crate::engine::Engine;
use crate::event::entry::{self, StateOwnership, acquire_state};
use crate::event::stack::find_stack_number;
use crate::stack::call_site::CallSite;
use crate::tables::counters::{CountOutcome, EventWeight};
use crate::tables::sampler;
use crate::thread::state::{ThreadOwnState, ThreadState};

/// The ledger's counters, open for events that are never sampled.
pub(crate) struct EventCounter<'a> {
    engine: &'static Engine,
    state: &'static ThreadState,
    own: &'a mut ThreadOwnState,
}

/// Largest number of bytes of the engine's own memory that an unsampled event allocates.
const MAX_EVENT_MEMORY: usize = 64 << 10;

/// Runs `work` with the ledger's counters. Does not run `work` if there is no memory for the
/// counters.
pub(crate) fn with_ledger(engine: &'static Engine, work: impl FnOnce(&mut EventCounter<'_>)) {
    let slot = tls::current();
    engine.with_guard_and_signals_blocked(|| {
        if !engine.reserve(MAX_EVENT_MEMORY) {
            return count(&engine.process.dropped.no_memory);
        }
        // SAFETY: the slot is this thread's own, and busy.
        if let Some(state) = unsafe { acquire_state(engine, slot, StateOwnership::Own) } {
            // SAFETY: this is the thread's one event.
            let own = unsafe { state.own() };
            work(&mut EventCounter { engine, state, own });
        }
        // SAFETY: as above.
        unsafe {
            if (*slot).lent != 0 {
                entry::release_late(slot);
            }
        }
    });
}

impl EventCounter<'_> {
    /// Returns the weight of one object and of one byte, in the units of the recording's mode.
    fn units(&self) -> EventWeight {
        let exact = self.engine.process.recorded.is_exact();
        EventWeight {
            objects: if exact { 1 } else { 1 << sampler::OBJECT_BITS },
            bytes: if exact { 1 } else { 1 << sampler::BYTE_BITS },
        }
    }

    /// Counts an allocation that is not in the live table. Returns its stack; `None` if it could
    /// not be counted, or if the recording `epoch` is over.
    pub(crate) fn count_allocation(
        &mut self,
        epoch: RecordingEpoch,
        frame: CallSite,
        bytes: u64,
    ) -> Option<StackNumber> {
        let engine = self.engine;
        let stack = find_stack_number(engine, self.own, frame, bytes as usize)?;
        let counters = self.state.counters(stack, &engine.process.pages)?;
        let units = self.units();
        let weight = EventWeight {
            objects: units.objects,
            bytes: bytes * units.bytes,
        };
        self.state.epoch.set(epoch);
        let mut open = engine.ledger.access.open(&engine.process, self.state)?;
        let counted = open.count_allocation(counters, weight);
        if counted.is_counted() {
            self.state.sizes.count_mapping(weight);
        }
        drop(open);
        if counted == CountOutcome::Alarm {
            let heap = &engine.ledger.access.heap;
            engine.dumping.due.handle_alarm(&engine.process, heap);
        }
        if engine.process.pages.table_file.is_waiting() {
            // Mappings are not part of what threads report.
            engine.process.pages.table_file.wait_for(0);
            engine.dumping.due.request_scan();
        }
        counted.is_counted().then_some(stack)
    }

    /// Counts the end of `bytes` bytes and of `objects` objects that
    /// [`count_allocation`](Self::count_allocation) counted. `objects` is negative if a mapping was
    /// cut in two. The caller has locked the table of mappings. A new recording takes this lock
    /// before it restarts the sums, so the sums still contain the allocation.
    pub(crate) fn count_free(&mut self, stack: StackNumber, objects: i64, bytes: u64) {
        let Some(counters) = self.state.counters(stack, &self.engine.process.pages) else {
            return;
        };
        let process = &self.engine.process;
        let units = self.units();
        let weight = EventWeight {
            objects: objects.wrapping_mul(units.objects as i64) as u64,
            bytes: bytes * units.bytes,
        };
        self.state.epoch.set(process.recorded.epoch());
        if let Some(open) = self.engine.ledger.access.open(process, self.state) {
            open.count_free(counters, weight);
            if !open.is_overtaken() {
                self.state.sizes.count_unmapping(weight);
            }
        }
    }
}

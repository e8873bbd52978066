//! The books for events that are counted one by one, sampled or not: the program's own mappings.

use crate::apart::guarded;
use crate::books::access;
use crate::books::event::stack;
use crate::mode::{self, is_exact};
use crate::platform::tls;
use crate::stack::call_site::CallSite;
use crate::tables::counters::{Counted, PROCESS, Weight};
use crate::tables::sampler;
use crate::thread::entry::{self, Tables, state_of};
use crate::thread::state::{Own, ThreadState};
use crate::trigger;

/// The books (the counters), for events that are counted one by one in either mode.
pub(crate) struct Books<'a> {
    state: &'a ThreadState,
    own: &'a mut Own,
}

/// What one object and one byte count in the recording's mode.
fn units() -> Weight {
    let exact = is_exact();
    Weight {
        objects: if exact { 1 } else { 1 << sampler::OBJECT_BITS },
        bytes: if exact { 1 } else { 1 << sampler::BYTE_BITS },
    }
}

/// Runs `work` with the books, or not at all if there is no memory for them.
pub(crate) fn with_books(work: impl FnOnce(&mut Books<'_>)) {
    let block = tls::current();
    guarded(|| {
        // SAFETY: the block is this thread's own, and busy.
        if let Some(state) = unsafe { state_of(block, Tables::Kept).as_ref() } {
            // SAFETY: this is the thread's one event.
            let own = unsafe { state.own() };
            work(&mut Books { state, own });
        }
        // SAFETY: as above.
        unsafe {
            if (*block).lent != 0 {
                entry::release_late(block);
            }
        }
    });
}

impl Books<'_> {
    /// Counts an allocation that is not in the live table. Returns its stack, or `None` if it could
    /// not be counted or `recording` is over.
    pub(crate) fn allocated(&mut self, recording: u64, frame: CallSite, bytes: u64) -> Option<u32> {
        let stack = stack(self.own, frame)?;
        // SAFETY: as in `record`.
        let cell = unsafe { self.state.counters.touch(stack as usize).as_ref()? };
        let units = units();
        let weight = Weight {
            objects: units.objects,
            bytes: bytes * units.bytes,
        };
        self.state.recording.set(recording);
        let mut access = access::open(self.state)?;
        let counted = access::allocated(self.state, cell, weight, &mut access);
        access::close(self.state);
        if counted == Counted::Alarm {
            trigger::alarm();
        }
        counted.is_counted().then_some(stack)
    }

    /// Counts the end of `bytes` of such allocations, and of `objects` of them. `objects` is
    /// negative if one was cut in two. The caller holds the lock of the table that knows them. A
    /// new recording takes that lock before it restarts its sums.
    pub(crate) fn freed(&mut self, stack: u32, objects: i64, bytes: u64) {
        // SAFETY: as in `record`.
        if let Some(cell) = unsafe { self.state.counters.touch(stack as usize).as_ref() } {
            let units = units();
            let objects = objects.wrapping_mul(units.objects as i64) as u64;
            self.state.recording.set(mode::recording());
            let Some(access) = access::open(self.state) else {
                return;
            };
            PROCESS.freed(
                &self.state.budget,
                cell,
                Weight {
                    objects,
                    bytes: bytes * units.bytes,
                },
                access,
            );
            access::close(self.state);
        }
    }
}

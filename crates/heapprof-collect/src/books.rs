//! The books for events that are counted one by one, sampled or not: the program's own mappings.

use crate::capture::Frame;
use crate::counters::Weight;
use crate::engine::{PROCESS, guarded, is_exact, state_of};
use crate::event::stack;
use crate::thread::ThreadState;
use crate::{access, sampler, tls, trigger};

/// The books, for events that are counted one by one in either mode.
pub(crate) struct Books<'a> {
    state: &'a mut ThreadState,
    units: Weight,
}

/// Runs `work` with the books; not at all without memory for them.
pub(crate) fn with_books(work: impl FnOnce(&mut Books<'_>)) {
    let block = tls::current();
    let exact = is_exact();
    let units = Weight {
        objects: if exact { 1 } else { 1 << sampler::OBJECT_BITS },
        bytes: if exact { 1 } else { 1 << sampler::BYTE_BITS },
    };
    guarded(|| {
        // SAFETY: the block is this thread's own, and busy.
        if let Some(state) = unsafe { state_of(block).as_mut() } {
            work(&mut Books { state, units });
        }
    });
}

impl Books<'_> {
    /// Counts an allocation that is not in the live table; its stack.
    pub(crate) fn allocated(&mut self, frame: Frame, bytes: u64) -> Option<u32> {
        let stack = stack(self.state, frame)?;
        // SAFETY: as in `record`.
        let cell = unsafe { self.state.cells.touch(stack as usize).as_ref()? };
        let weight = Weight {
            objects: self.units.objects,
            bytes: bytes * self.units.bytes,
        };
        let mut access = access::open(self.state);
        let alarm = PROCESS.allocated(self.state, cell, weight, &mut access);
        access::close(self.state);
        if alarm {
            trigger::alarm();
        }
        Some(stack)
    }

    /// Counts the end of `bytes` of such allocations, and of `objects` of them (fewer than none, if one fell in two).
    pub(crate) fn freed(&mut self, stack: u32, objects: i64, bytes: u64) {
        // SAFETY: as in `record`.
        if let Some(cell) = unsafe { self.state.cells.touch(stack as usize).as_ref() } {
            let objects = objects.wrapping_mul(self.units.objects as i64) as u64;
            let access = access::open(self.state);
            PROCESS.freed(
                self.state,
                cell,
                Weight {
                    objects,
                    bytes: bytes * self.units.bytes,
                },
                access,
            );
            access::close(self.state);
        }
    }
}

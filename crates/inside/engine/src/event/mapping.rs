//! The program's own calls that map and unmap memory.

use heapprof_platform::sys::PAGE_SIZE;

use crate::engine::Engine;
use crate::event::unsampled_event;
use crate::stack::call_site::CallSite;

/// Counts a new mapping, and the end of earlier mappings at its addresses (MAP_FIXED).
pub(super) fn map(engine: &'static Engine, address: usize, len: usize, frame: CallSite) {
    let process = &engine.process;
    let epoch = process.recorded.epoch();
    // The kernel maps whole pages.
    let Some(len) = len.checked_next_multiple_of(PAGE_SIZE) else {
        return;
    };
    if !process.recorded.is_running() || len == 0 {
        return;
    }
    unmap(engine, address, len, || 0);
    unsampled_event::with_ledger(engine, |ledger| {
        let Some(stack) = ledger.count_allocation(epoch, frame, len as u64) else {
            return;
        };
        engine.ledger.regions.with(process, |regions| {
            // A new recording raises its epoch before it clears the regions.
            if epoch == process.recorded.epoch() {
                regions.add(address..address.saturating_add(len), stack);
            }
        });
    });
}

/// Calls `kernel`, which unmaps a range. Counts the end of all mappings, or parts of mappings, in
/// this range. Returns the kernel's result. If the kernel refused (a result below zero), nothing is
/// counted.
///
/// The table of mappings is locked meanwhile. So if another thread maps memory in the range at
/// once, that mapping is counted afterwards.
pub(super) fn unmap(
    engine: &'static Engine,
    address: usize,
    len: usize,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let process = &engine.process;
    let len = len.checked_next_multiple_of(PAGE_SIZE).unwrap_or(0);
    if !process.recorded.is_running() || len == 0 {
        return kernel();
    }
    let (mut kernel, mut said) = (Some(kernel), 0);
    unsampled_event::with_ledger(engine, |ledger| {
        engine.ledger.regions.with(process, |regions| {
            said = kernel.take().map_or(0, |kernel| kernel());
            if said >= 0 {
                let gone = address..address.saturating_add(len);
                regions.cut(gone, |stack, objects, bytes| {
                    ledger.count_free(stack, objects, bytes);
                });
            }
        });
    });
    kernel.map_or(said, |kernel| kernel())
}

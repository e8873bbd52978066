//! The beginning of a recording, and of a forked child's: every sum starts anew.

use std::sync::atomic::Ordering;

use crate::books::engine::{LIVE, STACKS};
use crate::books::{access, regions};
use crate::mode::{self, Mode};
use crate::platform::lock::Lock;
use crate::tables::counters::PROCESS;
use crate::tables::dropped::DROPPED;
use crate::tables::filter;
use crate::thread::state;

/// Held while a recording begins, because another one must not fill what it clears.
static STARTING: Lock = Lock::new();

/// The lock that fork must hold.
pub(crate) fn lock() -> &'static Lock {
    &STARTING
}

/// Begins to record, and forgets what an earlier start recorded. Returns false if that can't be,
/// because a thread is held up in the middle of an event.
pub(crate) fn begin(mode: Mode, period: u64) -> bool {
    // A period of one byte means every allocation.
    let exact = mode == Mode::Exact || period <= 1;
    let (mode, period) = if exact {
        (Mode::Exact, 1)
    } else {
        (mode, period)
    };
    let _starting = STARTING.lock();
    // The number changes before the books are waited for. A thread that has the books open and
    // finds the number unchanged is in time for the old recording.
    mode::next();
    regions::clear();
    {
        let _changing = access::lock().lock();
        access::collect_budgets();
        if !access::wait_for_all() || !access::share(LIVE.owners()) || !LIVE.clear() {
            return false;
        }
    }
    DROPPED.clear();
    reset_counters(false);
    PROCESS.restart(0);
    filter::fill(if exact { filter::STUCK } else { 0 });
    mode::begin(mode, period);
    state::rewind_all();
    true
}

/// Starts every sum anew: from what is in use, or from nothing.
fn reset_counters(keeps_in_use: bool) {
    for state in state::all() {
        for stack in 0..STACKS.len() as usize {
            // SAFETY: counters are mapped for good; nobody adds to them while this runs.
            if let Some(cell) = unsafe { state.counters.get(stack).as_ref() } {
                if cell.is_untouched() {
                    continue;
                }
                let in_use = if keeps_in_use { cell.in_use() } else { [0, 0] };
                cell.allocated.set(in_use);
                cell.freed.set([0, 0]);
                cell.at_peak.set([0, 0]);
                cell.fall.store(0, Ordering::Relaxed);
            }
            // SAFETY: as above.
            if let Some(temporary) = unsafe { state.temporary.get(stack).as_ref() } {
                temporary.0.set([0, 0]);
            }
            // SAFETY: as above.
            if let Some(spread) = unsafe { state.spread.get(stack).as_ref() } {
                spread.restart(keeps_in_use);
            }
        }
    }
}

/// Starts every sum anew in a forked child. What is in use was inherited, and counts as allocated
/// by the child. The peak starts there.
pub(crate) fn rebase() {
    DROPPED.clear();
    reset_counters(true);
    PROCESS.restart(PROCESS.in_use.load(Ordering::Relaxed));
}

//! What the collector itself takes of the process's memory, so that nobody takes it for the
//! program's.

use crate::books::engine::{LIVE, STACKS};
use crate::platform::arena;
use crate::stack::walk;
use crate::tables::filter;
use crate::thread::state;

/// Bytes in memory of all tables: those of the threads, stacks, blocks in use and rules of
/// unwinding, and of what the collector allocates for a dump.
pub(crate) fn resident() -> usize {
    let threads = state::all().map(|state| state.resident());
    threads.sum::<usize>()
        + STACKS.resident()
        + LIVE.resident()
        + walk::resident()
        + filter::resident()
        + arena::resident()
}

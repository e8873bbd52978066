//! What the collector itself takes of the process's memory, so that nobody takes it for the program's.

use crate::engine::{LIVE, STACKS};
use crate::{filter, thread, walk};

/// Bytes of all tables that are in memory: those of the threads, stacks, blocks in use, rules of unwinding.
pub(crate) fn resident() -> usize {
    let threads = thread::all().map(|state| state.resident());
    threads.sum::<usize>()
        + STACKS.resident()
        + LIVE.resident()
        + walk::resident()
        + filter::resident()
}

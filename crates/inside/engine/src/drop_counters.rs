//! Counters of the events that could not be recorded, by reason. The profile reports them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Adds one to a counter.
#[cold]
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Counts of events that could not be recorded in this recording and this process, by reason. The
/// counts have separate cache lines, because every event reads the data beside them.
#[repr(C, align(64))]
pub(crate) struct DroppedEvents {
    /// Events that happened inside the engine, because a signal handler or the allocator itself
    /// allocated or freed memory there.
    pub(crate) nested: AtomicU64,
    /// Events that were not recorded, because there was no memory for the engine's tables.
    pub(crate) no_memory: AtomicU64,
    /// Events for which a part of the tables was not available. A signal handler had interrupted
    /// the thread that was using this part for another event.
    pub(crate) interrupted: AtomicU64,
    /// Frees of blocks that were not known (allocated before the start).
    pub(crate) unknown: AtomicU64,
    /// Blocks whose address was allocated again before the engine saw their free.
    pub(crate) unseen: AtomicU64,
    /// Forks in the middle of an interrupted event. The forked children record nothing.
    pub(crate) torn: AtomicU64,
    /// Bytes of the blocks that `unseen` counts.
    pub(crate) unseen_bytes: AtomicU64,
}

impl DroppedEvents {
    /// Returns how many events are missing in the ledger because there was no memory, or because
    /// another event was interrupted.
    pub(crate) fn lost_events(&self) -> u64 {
        self.no_memory.load(Ordering::Relaxed) + self.interrupted.load(Ordering::Relaxed)
    }

    /// Counts a block whose address was allocated again before the engine saw its free.
    #[cold]
    pub(crate) fn count_unseen(&self, bytes: u64) {
        count(&self.unseen);
        self.unseen_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Clears the counters for a recording that begins. The field `torn` stays, because it belongs
    /// to the process.
    pub(crate) fn clear(&self) {
        let of_recording = [
            &self.nested,
            &self.no_memory,
            &self.interrupted,
            &self.unknown,
            &self.unseen,
            &self.unseen_bytes,
        ];
        for counter in of_recording {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Creates counters that are all zero.
    pub(crate) const fn new() -> Self {
        Self {
            nested: AtomicU64::new(0),
            no_memory: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
            torn: AtomicU64::new(0),
            unseen_bytes: AtomicU64::new(0),
        }
    }
}

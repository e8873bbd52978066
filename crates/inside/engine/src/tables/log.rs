//! The log of events: a ring in the file that outlives the process, which another process reads.
//! `heapprof-abi` describes the ring's layout.

use std::mem::size_of;
use std::sync::atomic::{AtomicPtr, Ordering, fence};

use heapprof_abi::log::{BUSY_EVENT, EventRing, FREE_EVENT_FLAG, RING_CAPACITY, RingEvent};
use heapprof_abi::{StackNumber, ThreadNumber};
use heapprof_platform::sys;
use heapprof_platform::table_file::{TableFile, TableLifetime};

/// The kind of a block's event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogEventKind {
    Allocated,
    Freed,
}

/// A block as the log stores it.
#[derive(Clone, Copy)]
pub(crate) struct LogBlock {
    pub(crate) address: usize,
    pub(crate) size: u64,
    pub(crate) stack: StackNumber,
}

/// The log of allocations and frees, if there is one.
pub(crate) struct AllocationLog {
    /// The ring to which events are written; null if there is no log.
    ring: AtomicPtr<EventRing>,
    /// The ring that this process has made, perhaps for an earlier recording; null if it has made
    /// none.
    made: AtomicPtr<EventRing>,
}

impl AllocationLog {
    /// Creates the state without a log.
    pub(crate) const fn new() -> Self {
        Self {
            ring: AtomicPtr::new(std::ptr::null_mut()),
            made: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Begins a log. Returns false if there is no file that another process can read, or if the
    /// file is full.
    pub(crate) fn begin(&self, kept: &TableFile) -> bool {
        let mut made = self.made.load(Ordering::Relaxed);
        if made.is_null() {
            let taken = kept.take(size_of::<EventRing>(), TableLifetime::Passing);
            made = taken.unwrap_or(std::ptr::null_mut()).cast();
            self.made.store(made, Ordering::Relaxed);
        }
        // SAFETY: null, or zeroed memory, which is an empty ring, or a ring of before, to which a
        // thread may still add an event. It stays mapped.
        let Some(ring) = (unsafe { made.as_ref() }) else {
            return false;
        };
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC) as u64;
        ring.since.store(now, Ordering::Relaxed);
        let next = ring.next.load(Ordering::Relaxed);
        ring.first.store(next, Ordering::Relaxed);
        self.ring.store(made, Ordering::Release);
        true
    }

    /// Ends the log. The ring stays mapped, because a thread may still be writing.
    pub(crate) fn end(&self) {
        self.ring.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Forgets the ring, in a copy of the process that made the ring.
    pub(crate) fn forget(&self) {
        self.end();
        self.made.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Returns the ring to which events are written; null if there is no log.
    #[inline(always)]
    pub(crate) fn ring_place(&self) -> *mut EventRing {
        self.ring.load(Ordering::Relaxed)
    }

    /// Adds an event. `thread` is the number of the event's thread.
    pub(crate) fn add(&self, what: LogEventKind, block: LogBlock, thread: ThreadNumber) {
        // SAFETY: null, or a ring, which stays mapped. Its fields are atomics.
        let Some(ring) = (unsafe { self.ring.load(Ordering::Acquire).as_ref() }) else {
            return;
        };
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC) as u64;
        // The number is taken before the free, and after the allocation, so events of an address
        // have numbers in their order.
        let number = ring.next.fetch_add(1, Ordering::AcqRel);
        let event = &ring.events[number as usize % RING_CAPACITY];
        write_event(event, number, |event| {
            let free = if what == LogEventKind::Freed {
                FREE_EVENT_FLAG
            } else {
                0
            };
            event.time.store(now | free, Ordering::Relaxed);
            let address = block.address as u64;
            event.address.store(address, Ordering::Relaxed);
            event.size.store(block.size, Ordering::Relaxed);
            let who = u64::from(thread.to_u32()) << 32 | u64::from(block.stack.to_u32());
            event.who.store(who, Ordering::Relaxed);
        });
    }
}

/// Writes an event to its place in the ring, unless the place has a newer event, or another thread
/// is writing to it. In these cases, one of the two threads has slept for a whole round of the
/// ring. The event is then missing, which readers notice.
#[inline(always)]
fn write_event(event: &RingEvent, number: u64, fill: impl FnOnce(&RingEvent)) {
    let before = event.number.swap(BUSY_EVENT, Ordering::Acquire);
    if before == BUSY_EVENT {
        return;
    }
    if before > number {
        return event.number.store(before, Ordering::Release);
    }
    // A reader that sees what is written below sees that it is being written.
    fence(Ordering::Release);
    fill(event);
    event.number.store(number + 1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn event(number: u64) -> RingEvent {
        let zero = || AtomicU64::new(0);
        RingEvent {
            number: AtomicU64::new(number),
            time: zero(),
            address: zero(),
            size: zero(),
            who: zero(),
        }
    }

    /// Writes event 5 to a place that has event `before`. Returns the number of the event that is
    /// in the place afterwards, and whether event 5 was written.
    fn after(before: u64) -> (u64, bool) {
        let event = event(before);
        write_event(&event, 5, |event| event.size.store(1, Ordering::Relaxed));
        let wrote = event.size.load(Ordering::Relaxed) == 1;
        (event.number.load(Ordering::Relaxed), wrote)
    }

    #[test]
    fn a_late_event_leaves_a_newer_one_as_it_is() {
        assert_eq!(after(0), (6, true));
        assert_eq!(after(5), (6, true));
        assert_eq!(
            after(6 + RING_CAPACITY as u64),
            (6 + RING_CAPACITY as u64, false)
        );
        assert_eq!(after(BUSY_EVENT), (BUSY_EVENT, false));
    }

    #[test]
    fn without_a_file_there_is_no_log() {
        let (log, kept) = (AllocationLog::new(), TableFile::new());
        assert!(!log.begin(&kept) && log.ring_place().is_null());
        let (address, size, stack) = (8, 8, StackNumber::from_u32(0));
        let block = LogBlock {
            address,
            size,
            stack,
        };
        log.add(LogEventKind::Allocated, block, ThreadNumber::from_u32(0));
    }
}

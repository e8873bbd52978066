//! The log of events: a ring in the file that outlives the process, from which somebody else reads
//! them. `heapprof-books` says how it lies there.

use std::mem::size_of;
use std::sync::atomic::{AtomicPtr, Ordering, fence};

use heapprof_books::log::{BUSY, EVENTS, Event, IS_FREE, Ring};

use crate::platform::kept::{Kept, Lot};
use crate::platform::sys;

/// What happened to a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Allocated,
    Freed,
}

/// A block as the log has it.
#[derive(Clone, Copy)]
pub(crate) struct Logged {
    pub(crate) address: usize,
    pub(crate) size: u64,
    pub(crate) stack: u32,
}

/// The log, if there is one.
pub(crate) struct Log {
    /// Where events go; null if they go nowhere.
    ring: AtomicPtr<Ring>,
    /// The ring of this process, also of an earlier recording.
    made: AtomicPtr<Ring>,
}

impl Log {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            ring: AtomicPtr::new(std::ptr::null_mut()),
            made: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Begins a log. Returns false if there is no file that somebody else can read, or no room in
    /// it.
    pub(crate) fn begin(&self, kept: &Kept) -> bool {
        let mut made = self.made.load(Ordering::Relaxed);
        if made.is_null() {
            let taken = kept.take(size_of::<Ring>(), Lot::Passing);
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

    /// Ends the log. What is in it stays, because a thread may be writing.
    pub(crate) fn end(&self) {
        self.ring.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Forgets the ring, which is that of the process that this one is a copy of.
    pub(crate) fn forget(&self) {
        self.end();
        self.made.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Where it is; null if there is none.
    #[inline(always)]
    pub(crate) fn place(&self) -> *mut Ring {
        self.ring.load(Ordering::Relaxed)
    }

    /// Adds an event of the thread with this number.
    pub(crate) fn add(&self, what: What, block: Logged, thread: u32) {
        // SAFETY: null, or a ring, which stays mapped. Its fields are atomics.
        let Some(ring) = (unsafe { self.ring.load(Ordering::Acquire).as_ref() }) else {
            return;
        };
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC) as u64;
        // The number is taken before the free, and after the allocation, so events of an address
        // have numbers in their order.
        let number = ring.next.fetch_add(1, Ordering::AcqRel);
        let event = &ring.events[number as usize % EVENTS];
        write(event, number, |event| {
            let free = if what == What::Freed { IS_FREE } else { 0 };
            event.time.store(now | free, Ordering::Relaxed);
            let address = block.address as u64;
            event.address.store(address, Ordering::Relaxed);
            event.size.store(block.size, Ordering::Relaxed);
            let who = u64::from(thread) << 32 | u64::from(block.stack);
            event.who.store(who, Ordering::Relaxed);
        });
    }
}

/// Runs `fill` with an event, unless a newer one is there, or another thread writes one: one of the
/// two has slept for as long as the ring takes to come around. The event is missing then, which
/// readers see.
#[inline(always)]
fn write(event: &Event, number: u64, fill: impl FnOnce(&Event)) {
    let before = event.number.swap(BUSY, Ordering::Acquire);
    if before == BUSY {
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

    fn event(number: u64) -> Event {
        let zero = || AtomicU64::new(0);
        Event {
            number: AtomicU64::new(number),
            time: zero(),
            address: zero(),
            size: zero(),
            who: zero(),
        }
    }

    /// What the event's number is after event 5 was written there, and whether it was.
    fn after(before: u64) -> (u64, bool) {
        let event = event(before);
        write(&event, 5, |event| event.size.store(1, Ordering::Relaxed));
        let wrote = event.size.load(Ordering::Relaxed) == 1;
        (event.number.load(Ordering::Relaxed), wrote)
    }

    #[test]
    fn a_late_event_leaves_a_newer_one_as_it_is() {
        assert_eq!(after(0), (6, true));
        assert_eq!(after(5), (6, true));
        assert_eq!(after(6 + EVENTS as u64), (6 + EVENTS as u64, false));
        assert_eq!(after(BUSY), (BUSY, false));
    }

    #[test]
    fn without_a_file_there_is_no_log() {
        let (log, kept) = (Log::new(), Kept::new());
        assert!(!log.begin(&kept) && log.place().is_null());
        let (address, size, stack) = (8, 8, 0);
        let block = Logged {
            address,
            size,
            stack,
        };
        log.add(What::Allocated, block, 0);
    }
}

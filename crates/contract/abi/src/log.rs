//! The log of a recording: each allocation and each free, in a [`EventRing`] that somebody else
//! reads.
//!
//! Whoever writes waits for nobody. Events have numbers, and an event lies in the place that its
//! number leads to, where an older one was. So a reader that is too slow misses events, and finds
//! by their numbers how many.

use core::sync::atomic::AtomicU64;

/// How many events there is room for: a power of two.
pub const RING_CAPACITY: usize = 1 << 18;

/// The ring. It is zero at first.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct EventRing {
    /// How many events there were. An event's number is counted up before it is written.
    pub next: AtomicU64,
    /// The number of the recording's first event.
    pub first: AtomicU64,
    /// When the recording began, on the clock of the events.
    pub since: AtomicU64,
    /// The events. Number `n`, counted from 0, is at `n % RING_CAPACITY`.
    pub events: [RingEvent; RING_CAPACITY],
}

/// An allocation or a free.
#[derive(Debug)]
#[repr(C)]
pub struct RingEvent {
    /// The event's number, and one more. It is written last. 0 if there was none yet, and
    /// [`BUSY_EVENT`] while one is written.
    pub number: AtomicU64,
    /// When it was, in nanoseconds on the clock `CLOCK_MONOTONIC`, and [`FREE_EVENT_FLAG`].
    pub time: AtomicU64,
    /// Where the block is.
    pub address: AtomicU64,
    /// How many bytes it has.
    pub size: AtomicU64,
    /// The number of the stack that allocated the block, and above its 32 bits that of the thread,
    /// as [`LedgerHeader::name`](super::LedgerHeader::name) has it.
    pub who: AtomicU64,
}

/// What stands in [`RingEvent::number`] while the event is written.
pub const BUSY_EVENT: u64 = u64::MAX;
/// What says that an event is a free, in [`RingEvent::time`].
pub const FREE_EVENT_FLAG: u64 = 1 << 63;

//! Log of a recording: each allocation and each free, in an [`EventRing`] that another process
//! reads.
//!
//! A writing thread never waits. Each event has a number, which leads to its place in the ring,
//! where it replaces an older event. So a reader that is too slow misses events, and learns from
//! the numbers how many.

use core::sync::atomic::AtomicU64;

/// Number of events for which the ring has room: a power of two.
pub const RING_CAPACITY: usize = 1 << 18;

/// The ring of events. All its bytes are zero at first.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct EventRing {
    /// Number of events so far. It is counted up before the event is written.
    pub next: AtomicU64,
    /// Number of the recording's first event.
    pub first: AtomicU64,
    /// When the recording began, on the clock of the events.
    pub since: AtomicU64,
    /// The events. Event `n`, counted from 0, is at `n % RING_CAPACITY`.
    pub events: [RingEvent; RING_CAPACITY],
}

/// An allocation or a free.
#[derive(Debug)]
#[repr(C)]
pub struct RingEvent {
    /// The event's number plus one, which is written last. It is 0 if there was no event yet, and
    /// [`BUSY_EVENT`] while one is written.
    pub number: AtomicU64,
    /// Time of the event in nanoseconds on the clock `CLOCK_MONOTONIC`, with [`FREE_EVENT_FLAG`].
    pub time: AtomicU64,
    /// Address of the block.
    pub address: AtomicU64,
    /// Size of the block in bytes.
    pub size: AtomicU64,
    /// Number of the stack that allocated the block, in the lower 32 bits, and number of the
    /// thread, as in [`LedgerHeader::name`](super::LedgerHeader::name), above them.
    pub who: AtomicU64,
}

/// Value of [`RingEvent::number`] while the event is written.
pub const BUSY_EVENT: u64 = u64::MAX;
/// Flag bit in [`RingEvent::time`] that marks a free.
pub const FREE_EVENT_FLAG: u64 = 1 << 63;

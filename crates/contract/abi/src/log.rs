//! Log of a recording, for another process to read: an [`EventRing`] with each allocation and each
//! free.
//!
//! A writing thread never waits. The number of an event determines its position in the ring, where
//! it overwrites an older event. A reader that is too slow loses events, and finds out from the
//! numbers how many.

use core::sync::atomic::AtomicU64;

/// Number of events in the ring: a power of two.
pub const RING_CAPACITY: usize = 1 << 18;

/// The ring of events. All its bytes are zero at the beginning.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct EventRing {
    /// Number of events so far. It is incremented before the event is written.
    pub next: AtomicU64,
    /// Number of the first event of the recording.
    pub first: AtomicU64,
    /// Time at which the recording began, in nanoseconds of the clock `CLOCK_MONOTONIC`.
    pub since: AtomicU64,
    /// The events. Event `n`, counted from 0, is at `n % RING_CAPACITY`.
    pub events: [RingEvent; RING_CAPACITY],
}

/// An allocation or a free.
#[derive(Debug)]
#[repr(C)]
pub struct RingEvent {
    /// The event's number plus one. It is written after the other fields. The value is 0 before the
    /// first event, and [`BUSY_EVENT`] while an event is written.
    pub number: AtomicU64,
    /// Time of the event in nanoseconds by the clock `CLOCK_MONOTONIC`, with the flag
    /// [`FREE_EVENT_FLAG`].
    pub time: AtomicU64,
    /// Address of the block.
    pub address: AtomicU64,
    /// Size of the block in bytes.
    pub size: AtomicU64,
    /// Two numbers. The lower 32 bits are the number of the stack that allocated the block. The
    /// upper 32 bits are the number of the thread, as in
    /// [`LedgerHeader::name`](super::LedgerHeader::name).
    pub who: AtomicU64,
}

/// Value of [`RingEvent::number`] while the event is written.
pub const BUSY_EVENT: u64 = u64::MAX;
/// Flag bit in [`RingEvent::time`] that marks a free.
pub const FREE_EVENT_FLAG: u64 = 1 << 63;

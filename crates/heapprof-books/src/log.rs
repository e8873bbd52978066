//! The log of a recording: each allocation and each free, in a [`Ring`] that somebody else reads.
//!
//! Whoever writes waits for nobody. Events have numbers, and an event lies in the place that its
//! number leads to, where an older one was. So a reader that is too slow misses events, and finds
//! by their numbers how many.

use core::sync::atomic::AtomicU64;

/// How many events there is room for: a power of two.
pub const EVENTS: usize = 1 << 18;

/// The ring. It is zero at first.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Ring {
    /// How many events there were. An event's number is counted up before it is written.
    pub next: AtomicU64,
    /// The number of the recording's first event.
    pub first: AtomicU64,
    /// When the recording began, on the clock of the events.
    pub since: AtomicU64,
    /// The events. Number `n`, counted from 0, is at `n % EVENTS`.
    pub events: [Event; EVENTS],
}

/// An allocation or a free.
#[derive(Debug)]
#[repr(C)]
pub struct Event {
    /// The event's number, and one more. It is written last. 0 if there was none yet, and
    /// [`BUSY`] while one is written.
    pub number: AtomicU64,
    /// When it was, in nanoseconds on the clock `CLOCK_MONOTONIC`, and [`IS_FREE`].
    pub time: AtomicU64,
    /// Where the block is.
    pub address: AtomicU64,
    /// How many bytes it has.
    pub size: AtomicU64,
    /// The number of the stack that allocated the block, and above its 32 bits that of the thread,
    /// as [`Books::name`](super::Books::name) has it.
    pub who: AtomicU64,
}

/// What stands in [`Event::number`] while the event is written.
pub const BUSY: u64 = u64::MAX;
/// What says that an event is a free, in [`Event::time`].
pub const IS_FREE: u64 = 1 << 63;

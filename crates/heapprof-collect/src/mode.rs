//! What is recorded now: whether and how allocations are recorded, with which period, and in which
//! recording.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Whether and how allocations are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Nothing is recorded.
    Off = 0,
    /// One allocation in about `period` bytes.
    Sampled = 1,
    /// Every allocation.
    Exact = 2,
}

static MODE: AtomicU8 = AtomicU8::new(Mode::Off as u8);
/// Which recording this is, from 1.
static RECORDING: AtomicU64 = AtomicU64::new(0);
/// The recording whose books may be opened: [`RECORDING`], or [`PAUSED`] if none may be opened.
static GATE: AtomicU64 = AtomicU64::new(0);
/// A number that no recording has. While it is in [`GATE`], nobody opens the books.
const PAUSED: u64 = u64::MAX;
static PERIOD: AtomicU64 = AtomicU64::new(1);
/// The mode now.
#[inline]
pub fn now() -> Mode {
    match MODE.load(Ordering::Acquire) {
        1 => Mode::Sampled,
        2 => Mode::Exact,
        _ => Mode::Off,
    }
}

/// Average bytes between samples; 1 in exact mode.
pub(crate) fn period() -> u64 {
    PERIOD.load(Ordering::Relaxed)
}

/// Whether the recording, running or stopped, has every allocation.
#[inline]
pub(crate) fn is_exact() -> bool {
    period() == 1
}

/// Which recording this is. If it is read before the mode, it is the recording of that mode or an
/// earlier one.
#[inline]
pub(crate) fn recording() -> u64 {
    RECORDING.load(Ordering::Acquire)
}

/// Goes on to another recording. Whoever has the books of the last recording open finds that the
/// number has changed. Nothing is recorded until [`begin`].
pub(crate) fn next() {
    stop();
    let next = RECORDING.fetch_add(1, Ordering::SeqCst) + 1;
    GATE.store(next, Ordering::SeqCst);
}

/// The recording whose books may be opened, or [`PAUSED`] while all books are to stay closed.
#[inline]
pub(crate) fn gate() -> u64 {
    GATE.load(Ordering::Acquire)
}

/// Lets nobody open the books until [`resume`].
pub(crate) fn pause() {
    GATE.store(PAUSED, Ordering::SeqCst);
}

/// Whether the books are to stay closed for a moment.
pub(crate) fn is_paused() -> bool {
    gate() == PAUSED
}

/// Lets the books be opened again.
pub(crate) fn resume() {
    GATE.store(recording(), Ordering::SeqCst);
}

/// Records from now on. A period of 1 means every allocation.
pub(crate) fn begin(mode: Mode, period: u64) {
    PERIOD.store(period, Ordering::SeqCst);
    MODE.store(mode as u8, Ordering::SeqCst);
}

/// Ends recording; what was recorded can still be dumped.
pub(crate) fn stop() {
    MODE.store(Mode::Off as u8, Ordering::SeqCst);
}

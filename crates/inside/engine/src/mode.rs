//! The state of recording: the mode, the period and the number of the current recording.

use std::sync::atomic::Ordering;

use heapprof_abi::RecordingEpoch;
use heapprof_platform::atomic::{AtomicU8, AtomicU64};

/// Whether and how allocations are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordingMode {
    /// Nothing is recorded.
    Off = 0,
    /// One allocation in about `period` bytes is recorded.
    Sampled = 1,
    /// Every allocation is recorded.
    Exact = 2,
}

/// The mode, the number and the period of the current recording.
pub(crate) struct RecordingState {
    pub(crate) mode: AtomicU8,
    /// Number of the current recording, from 1.
    pub(crate) epoch: AtomicU64,
    /// The epoch whose ledger may be opened: the value of `epoch`, or [`PAUSED_GATE`] if no ledger
    /// may be opened.
    gate: AtomicU64,
    pub(crate) period: AtomicU64,
}

/// Value of the gate while no thread may open the ledger. No epoch has this number.
const PAUSED_GATE: RecordingEpoch = RecordingEpoch::from_u64(u64::MAX);

impl RecordingState {
    /// Creates the state before the first recording.
    pub(crate) const fn new() -> Self {
        Self {
            mode: AtomicU8::new(RecordingMode::Off as u8),
            epoch: AtomicU64::new(0),
            gate: AtomicU64::new(0),
            period: AtomicU64::new(1),
        }
    }

    /// Returns the current mode.
    #[inline]
    pub(crate) fn mode(&self) -> RecordingMode {
        match self.mode.load(Ordering::Acquire) {
            1 => RecordingMode::Sampled,
            2 => RecordingMode::Exact,
            _ => RecordingMode::Off,
        }
    }

    /// Whether allocations are being recorded.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.mode() != RecordingMode::Off
    }

    /// Returns the average number of bytes between samples; 1 in exact mode.
    pub(crate) fn period(&self) -> u64 {
        self.period.load(Ordering::Relaxed)
    }

    /// Whether the recording has every allocation. It may be running or stopped.
    #[inline]
    pub(crate) fn is_exact(&self) -> bool {
        self.period() == 1
    }

    /// Returns the number of the current recording. A caller that reads this before the mode gets
    /// the mode of this recording or of a later one.
    #[inline]
    pub(crate) fn epoch(&self) -> RecordingEpoch {
        RecordingEpoch::from_u64(self.epoch.load(Ordering::Acquire))
    }

    /// Begins the epoch of another recording. Threads that have the ledger of the previous
    /// recording open notice the new epoch. Nothing is recorded until [`begin`](Self::begin).
    pub(crate) fn next(&self) {
        self.stop();
        let next = self.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        self.gate.store(next, Ordering::SeqCst);
    }

    /// Returns the epoch whose ledger may be opened, or [`PAUSED_GATE`] while the ledger is to stay
    /// closed.
    #[inline]
    pub(crate) fn gate(&self) -> RecordingEpoch {
        RecordingEpoch::from_u64(self.gate.load(Ordering::Acquire))
    }

    /// Prevents all threads from opening the ledger until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        self.gate.store(PAUSED_GATE.to_u64(), Ordering::SeqCst);
    }

    /// Whether no thread may open the ledger now.
    pub(crate) fn is_paused(&self) -> bool {
        self.gate() == PAUSED_GATE
    }

    /// Lets threads open the ledger again.
    pub(crate) fn resume(&self) {
        self.gate.store(self.epoch().to_u64(), Ordering::SeqCst);
    }

    /// Starts recording in the current epoch. A period of 1 means every allocation.
    pub(crate) fn begin(&self, mode: RecordingMode, period: u64) {
        self.period.store(period, Ordering::SeqCst);
        self.mode.store(mode as u8, Ordering::SeqCst);
    }

    /// Ends the recording. Dumps still contain it.
    pub(crate) fn stop(&self) {
        self.mode.store(RecordingMode::Off as u8, Ordering::SeqCst);
    }
}

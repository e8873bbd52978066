//! The content of a datagram, and the words of its text form.
//!
//! A datagram is text of at most [`MAX_DATAGRAM_BYTES`] bytes. Its first line is [`FIRST_LINE`].
//! Each of the other lines is `key=value`. In values, `%` and control characters stand as `%` and
//! two hex digits. The last line is `mac=` and 64 hex digits, if the datagram is signed. Each line
//! ends with a line feed.

/// Largest number of bytes of a datagram. A larger one might be sent in pieces.
pub const MAX_DATAGRAM_BYTES: usize = 1200;

/// The first line of each datagram, which names its form and the version of that form.
pub(crate) const FIRST_LINE: &str = "heapprof wiretap 1";

/// The beginning of the signature's line.
pub(crate) const MAC_PREFIX: &str = "mac=";

/// Largest number of a datagram, and largest number of datagrams that a sender may report as sent.
/// It keeps the sums of a million senders below 2^63.
pub(crate) const MAX_SEQ: u64 = 1_000_000_000_000;
/// The latest time, in milliseconds since 1970: the end of the year 9999.
pub(crate) const MAX_TIME_MS: u64 = 253_402_300_799_999;
/// Longest time that loading a module may have taken, in microseconds: an hour.
pub(crate) const MAX_LOAD_US: u64 = 3_600_000_000;

/// A datagram that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WiretapDatagram {
    /// The name of the sender's machine.
    pub host: String,
    /// The number that the sender has drawn for this image of its process.
    pub sender: u64,
    /// The sender's process.
    pub pid: u32,
    /// The parent of the sender's process.
    pub parent: u32,
    /// The number of this datagram among the sender's, from 1. The last datagram has the number of
    /// the one before it.
    pub seq: u64,
    /// When the datagram was sent, in milliseconds since 1970 UTC.
    pub ms: u64,
    /// The event that the datagram reports.
    pub event: WiretapEvent,
}

/// An event that a datagram reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WiretapEvent {
    /// Code ran.
    Alive {
        /// The name of the code.
        code: String,
        /// The place from which the code was called; may be empty.
        site: String,
    },
    /// A module was loaded, or was to be.
    Load {
        /// The file of the module.
        code: String,
        /// The place that asked for the module; may be empty.
        site: String,
        /// The outcome of the load.
        outcome: ModuleOutcome,
        /// The time that the load took, in microseconds.
        us: u64,
    },
    /// The sender has ended.
    End {
        /// Number of datagrams that the sender had sent before.
        count: u64,
    },
}

/// The outcome of loading a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModuleOutcome {
    /// The module was loaded.
    Loaded,
    /// The module was found, and could not be loaded.
    Failed,
    /// The module was not found.
    Missing,
}

impl ModuleOutcome {
    /// All outcomes.
    pub const ALL: [Self; 3] = [Self::Loaded, Self::Failed, Self::Missing];

    /// Returns the outcome's word in datagrams.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Failed => "failed",
            Self::Missing => "missing",
        }
    }
}

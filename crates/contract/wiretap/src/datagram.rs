//! The content of a datagram, and the keywords of its text form.
//!
//! A datagram is text of at most [`MAX_DATAGRAM_BYTES`] bytes. Its first line is [`FIRST_LINE`].
//! Each of the other lines is `key=value`. In values, `%` and control characters are written as `%`
//! and two hex digits. If the datagram is signed, its last line is `mac=` and 64 hex digits. Each
//! line ends with a line feed.

/// Maximum size of a datagram in bytes. A larger one might be sent in fragments.
pub const MAX_DATAGRAM_BYTES: usize = 1200;

/// The first line of each datagram: the name and version of the form.
pub(crate) const FIRST_LINE: &str = "heapprof wiretap 1";

/// The beginning of the signature's line.
pub(crate) const MAC_PREFIX: &str = "mac=";

/// Largest allowed number of a datagram, and largest count that an `end` datagram may report. The
/// limit keeps sums over a million senders below 2^63.
pub(crate) const MAX_SEQ: u64 = 1_000_000_000_000;
/// Latest allowed time of a datagram, in milliseconds since 1970: the end of the year 9999.
pub(crate) const MAX_TIME_MS: u64 = 253_402_300_799_999;
/// Longest time that the loading of a module may take, in microseconds: an hour.
pub(crate) const MAX_LOAD_US: u64 = 3_600_000_000;

/// A decoded datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WiretapDatagram {
    /// The name of the sender's machine.
    pub host: String,
    /// A random number that the sender has chosen for its process. The sender chooses a new number
    /// after an exec.
    pub sender: u64,
    /// The id of the sender's process.
    pub pid: u32,
    /// The id of the parent of the sender's process.
    pub parent: u32,
    /// The sequence number of this datagram at its sender, from 1. An `end` datagram repeats the
    /// number of the previous datagram.
    pub seq: u64,
    /// The time at which the datagram was sent, in milliseconds since 1970 UTC.
    pub ms: u64,
    /// The event that the datagram reports.
    pub event: WiretapEvent,
}

/// An event that a datagram reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WiretapEvent {
    /// A part of the program's code ran.
    Alive {
        /// The name of the code.
        code: String,
        /// The place from which the code was called; may be empty.
        site: String,
    },
    /// A program has loaded a module, or has failed to load it.
    Load {
        /// The file of the module.
        code: String,
        /// The place that requested the module; may be empty.
        site: String,
        /// The outcome of the load.
        outcome: ModuleOutcome,
        /// The time that the load took, in microseconds.
        us: u64,
    },
    /// The sender has ended.
    End {
        /// Number of datagrams that the sender had sent before this one.
        count: u64,
    },
}

/// The outcome of loading a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModuleOutcome {
    /// The module was loaded.
    Loaded,
    /// The module was found, but could not be loaded.
    Failed,
    /// The module was not found.
    Missing,
}

impl ModuleOutcome {
    /// All outcomes.
    pub const ALL: [Self; 3] = [Self::Loaded, Self::Failed, Self::Missing];

    /// Returns the keyword of the outcome in datagrams.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Failed => "failed",
            Self::Missing => "missing",
        }
    }
}

//! What a datagram says, and the words that it says it with.
//!
//! A datagram is text of at most [`MAX_DATAGRAM_BYTES`] bytes. Its first line is [`FIRST_LINE`].
//! Each of the other lines is `key=value`. In values, `%` and control characters stand as `%` and
//! two hex digits. The last line is `mac=` and 64 hex digits, if the datagram is signed. Each line
//! ends with a line feed.

/// The most bytes of a datagram. A larger one might be sent in pieces.
pub const MAX_DATAGRAM_BYTES: usize = 1200;

/// The first line of each datagram: what it is, and the version of its form.
pub(crate) const FIRST_LINE: &str = "heapprof wiretap 1";

/// What the line of the signature begins with.
pub(crate) const MAC_PREFIX: &str = "mac=";

/// The largest number of a datagram, and the most datagrams that a sender may say it has sent. It
/// keeps the sums of a million senders below 2^63.
pub(crate) const MAX_SEQ: u64 = 1_000_000_000_000;
/// The latest time: the end of the year 9999.
pub(crate) const MAX_TIME_MS: u64 = 253_402_300_799_999;
/// The most microseconds that loading a module may have taken: an hour.
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
    /// The parent of that process.
    pub parent: u32,
    /// The number of this datagram among the sender's, from 1. The last datagram has the number of
    /// the one before it.
    pub seq: u64,
    /// When it was sent, in milliseconds since 1970 UTC.
    pub ms: u64,
    /// What it says.
    pub event: WiretapEvent,
}

/// What a datagram says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WiretapEvent {
    /// Code ran.
    Alive {
        /// The name of the code.
        code: String,
        /// Where it was called from; may be empty.
        site: String,
    },
    /// A module was loaded, or was to be.
    Load {
        /// The file of the module.
        code: String,
        /// Where it was asked for; may be empty.
        site: String,
        /// What became of it.
        outcome: ModuleOutcome,
        /// How many microseconds it took.
        us: u64,
    },
    /// The sender has ended.
    End {
        /// How many datagrams it had sent before.
        count: u64,
    },
}

/// What became of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModuleOutcome {
    /// It was loaded.
    Loaded,
    /// It was found, and could not be loaded.
    Failed,
    /// It was not found.
    Missing,
}

impl ModuleOutcome {
    /// All outcomes.
    pub const ALL: [Self; 3] = [Self::Loaded, Self::Failed, Self::Missing];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Failed => "failed",
            Self::Missing => "missing",
        }
    }
}

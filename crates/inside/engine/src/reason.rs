//! Reasons for dumps, and which of these dumps are the last.

/// The reason for a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DumpReason {
    /// The program ends.
    Exit = 0,
    /// The program calls exec.
    Exec,
    /// The interval has passed.
    Interval,
    /// The heap has grown.
    Growth,
    /// The heap is at a new peak.
    Peak,
    /// Much was allocated.
    Allocated,
    /// Much was freed.
    Freed,
    /// A signal requested the dump.
    Signal,
    /// The program requested the dump.
    Request,
    /// A signal ends the program.
    Terminated,
    /// The program enters a sandbox in which a dump would end it.
    Sandbox,
    /// The user of `record --live` requested a profile.
    Live,
}

impl DumpReason {
    const ALL: [(Self, &'static str); 12] = [
        (Self::Exit, "exit"),
        (Self::Exec, "exec"),
        (Self::Interval, "interval"),
        (Self::Growth, "growth"),
        (Self::Peak, "peak"),
        (Self::Allocated, "allocated"),
        (Self::Freed, "freed"),
        (Self::Signal, "signal"),
        (Self::Request, "request"),
        (Self::Terminated, "terminated by a signal"),
        (Self::Sandbox, "sandbox"),
        (Self::Live, "live view"),
    ];

    /// Whether nothing is recorded after this dump.
    pub(crate) fn ends_program(self) -> bool {
        matches!(self, Self::Exit | Self::Terminated | Self::Sandbox)
    }

    /// Whether a time or the heap's size triggers this dump. False for a dump that is requested.
    pub(crate) fn is_automatic(self) -> bool {
        matches!(
            self,
            Self::Interval | Self::Growth | Self::Peak | Self::Allocated | Self::Freed
        )
    }

    pub(crate) fn from_number(n: u8) -> Self {
        Self::ALL[usize::from(n) % Self::ALL.len()].0
    }

    /// Returns the text for the reason in the profile's comment.
    pub fn text(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether this dump is the last dump of the program image.
    pub(crate) fn is_last(self) -> bool {
        self.ends_program() || self == Self::Exec
    }
}

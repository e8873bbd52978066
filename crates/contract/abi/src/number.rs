//! Numbers of the ledger's entries. Each kind of entry has its own type of number, so that they
//! can't be mixed up.

macro_rules! number {
    ($(#[$doc:meta])* pub struct $name:ident(u32);) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            /// Returns the number with this value.
            #[inline(always)]
            #[must_use]
            pub const fn from_u32(value: u32) -> Self {
                Self(value)
            }

            /// Returns the value of the number, as in the ledger.
            #[inline(always)]
            #[must_use]
            pub const fn to_u32(self) -> u32 {
                self.0
            }
        }
    };
}

/// Adds conversions between numbers that count from 0 and indices in a table.
macro_rules! index {
    ($($name:ident)*) => {$(
        impl $name {
            /// Returns the number of the entry at this index of its table.
            #[inline(always)]
            #[must_use]
            pub const fn from_index(index: usize) -> Self {
                Self(index as u32)
            }

            /// Returns the index of the number's entry in its table.
            #[inline(always)]
            #[must_use]
            pub const fn to_index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

number! {
    /// Number of a stack, from 0: its index in [`LedgerHeader::stack`](super::LedgerHeader::stack)
    /// and in each thread's counters.
    pub struct StackNumber(u32);
}

number! {
    /// Number of an interpreter frame, from 0: its index in
    /// [`LedgerHeader::frame`](super::LedgerHeader::frame).
    pub struct FrameNumber(u32);
}

number! {
    /// Number of a thread, from 1. The thread's name is in
    /// [`LedgerHeader::name`](super::LedgerHeader::name).
    pub struct ThreadNumber(u32);
}

number! {
    /// Generation of the mappings of code, from 0. A new generation begins when other code is
    /// mapped at an address that was in use. The first generation is the default.
    #[derive(Default)]
    pub struct MappingGeneration(u32);
}

index!(StackNumber FrameNumber);

impl ThreadNumber {
    /// Returns the index of the thread in the table of names; `None` for 0, which is no thread.
    #[inline(always)]
    #[must_use]
    pub const fn to_index(self) -> Option<usize> {
        match self.0.checked_sub(1) {
            Some(index) => Some(index as usize),
            None => None,
        }
    }
}

impl MappingGeneration {
    /// The first generation. Stacks that have no addresses belong to it, too.
    pub const FIRST: Self = Self(0);
}

/// Number of a recording in its process, from 1; 0 before the first recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct RecordingEpoch(u64);

impl RecordingEpoch {
    /// Returns the number with this value.
    #[inline(always)]
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        Self(value)
    }

    /// Returns the value of the number, as in the ledger.
    #[inline(always)]
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0
    }
}

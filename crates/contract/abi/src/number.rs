//! Numbers by which the ledger names things. Each kind has a type of its own, so that none is taken
//! for another.

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

            /// Returns the number as it stands in the ledger.
            #[inline(always)]
            #[must_use]
            pub const fn to_u32(self) -> u32 {
                self.0
            }
        }
    };
}

/// Gives numbers that begin with 0 their place in a table.
macro_rules! index {
    ($($name:ident)*) => {$(
        impl $name {
            /// Returns the number of what has this place in its table.
            #[inline(always)]
            #[must_use]
            pub const fn from_index(index: usize) -> Self {
                Self(index as u32)
            }

            /// Returns the place in tables by this number.
            #[inline(always)]
            #[must_use]
            pub const fn to_index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

number! {
    /// Number of a stack, from 0: its place in [`LedgerHeader::stack`](super::LedgerHeader::stack)
    /// and in each thread's counters.
    pub struct StackNumber(u32);
}

number! {
    /// Number of a frame of an interpreter, from 0: its place in
    /// [`LedgerHeader::frame`](super::LedgerHeader::frame).
    pub struct FrameNumber(u32);
}

number! {
    /// Number of a thread, from 1, whose name is in
    /// [`LedgerHeader::name`](super::LedgerHeader::name).
    pub struct ThreadNumber(u32);
}

number! {
    /// Generation of the mappings of code, from 0. The next one begins when an address gets another
    /// meaning. The first one is the default.
    #[derive(Default)]
    pub struct MappingGeneration(u32);
}

index!(StackNumber FrameNumber);

impl ThreadNumber {
    /// Returns the place of the thread in the table of names; `None` for 0, which no thread has.
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
    /// The first generation. Stacks without addresses belong to it.
    pub const FIRST: Self = Self(0);
}

/// Number of a recording in its process, from 1; 0 before the first one.
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

    /// Returns the number as it stands in the ledger.
    #[inline(always)]
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0
    }
}

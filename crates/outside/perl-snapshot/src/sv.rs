//! The head of a value: its type, its flags, and where the rest is.

pub(crate) use heapprof_perl::sv::*;

use crate::PerlAddress;
use crate::reader::PerlMemoryReader;

/// The head of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueHead {
    pub(crate) at: PerlAddress,
    /// Where its body is.
    pub(crate) any: PerlAddress,
    pub(crate) references: u32,
    pub(crate) flags: u32,
    /// What it has by itself: a number, or where its text, its elements or its slots are.
    pub(crate) own: u64,
}

impl ValueHead {
    pub(crate) fn new(at: PerlAddress, bytes: &[u8; HEAD_SIZE as usize]) -> Self {
        let word = |i: usize| {
            let word = bytes[8 * i..].first_chunk();
            u64::from_le_bytes(*word.unwrap_or(&[0; 8]))
        };
        Self {
            at,
            any: word(0),
            references: word(1) as u32,
            flags: (word(1) >> 32) as u32,
            own: word(2),
        }
    }

    pub(crate) fn read(reader: &PerlMemoryReader<'_>, at: PerlAddress) -> Self {
        let bytes = reader.bytes(at, HEAD_SIZE).first_chunk();
        Self::new(at, bytes.unwrap_or(&[0; HEAD_SIZE as usize]))
    }

    pub(crate) fn kind(&self) -> u32 {
        self.flags & TYPE_MASK
    }

    pub(crate) fn has_flags(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether it is neither a number nor a text nor a reference.
    pub(crate) fn is_undefined(&self) -> bool {
        self.flags & IS_DEFINED == 0
    }

    /// Whether it is a symbol, with slots for a scalar, an array and so on.
    pub(crate) fn is_symbol(&self) -> bool {
        matches!(self.kind(), GLOB | LVALUE)
            && self.flags & (IS_PRIVATE_TEXT | HAS_SLOTS) == HAS_SLOTS
    }

    /// Whether it has a text in a buffer of its own.
    pub(crate) fn has_text(&self) -> bool {
        let may_have = matches!(self.kind(), TEXT..REGEXP | LVALUE);
        may_have && self.own != 0 && !self.has_flags(IS_REFERENCE) && !self.is_symbol()
    }
}

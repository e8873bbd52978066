//! The head of a value: its type, its flags, and the address of its body.

pub(crate) use heapprof_perl::sv::*;

use crate::PerlAddress;
use crate::reader::PerlMemoryReader;

/// The head of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueHead {
    pub(crate) at: PerlAddress,
    /// Address of the body.
    pub(crate) any: PerlAddress,
    pub(crate) references: u32,
    pub(crate) flags: u32,
    /// The last word of the head: a number, or the address of the value's text, elements or slots.
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

    /// Whether the value is neither a number nor a text nor a reference.
    pub(crate) fn is_undefined(&self) -> bool {
        self.flags & IS_DEFINED == 0
    }

    /// Whether the value is a symbol: a glob with slots for a scalar, an array and so on.
    pub(crate) fn is_symbol(&self) -> bool {
        matches!(self.kind(), GLOB | LVALUE)
            && self.flags & (IS_PRIVATE_TEXT | HAS_SLOTS) == HAS_SLOTS
    }

    /// Whether the value has a text in a buffer.
    pub(crate) fn has_text(&self) -> bool {
        let may_have = matches!(self.kind(), TEXT..REGEXP | LVALUE);
        may_have && self.own != 0 && !self.has_flags(IS_REFERENCE) && !self.is_symbol()
    }
}

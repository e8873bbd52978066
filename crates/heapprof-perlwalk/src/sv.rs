//! The head of a value: its type, its flags, and where the rest is. The numbers are those of Perl's
//! sv.h from 5.22 to 5.42.

use crate::Address;
use crate::reader::Reader;

/// The size of a head.
pub(crate) const HEAD: u64 = 24;

// Types.
pub(crate) const INTEGER: u32 = 1;
pub(crate) const NUMBER: u32 = 2;
pub(crate) const TEXT: u32 = 3;
pub(crate) const INVLIST: u32 = 4;
pub(crate) const MAGICAL: u32 = 7;
pub(crate) const REGEXP: u32 = 8;
pub(crate) const GLOB: u32 = 9;
pub(crate) const LVALUE: u32 = 10;
pub(crate) const ARRAY: u32 = 11;
pub(crate) const HASH: u32 = 12;
pub(crate) const CODE: u32 = 13;
pub(crate) const FORMAT: u32 = 14;
pub(crate) const IO: u32 = 15;
pub(crate) const OBJECT: u32 = 16;
/// How many there are.
pub(crate) const TYPES: usize = 17;

// Flags.
const TYPE: u32 = 0xff;
pub(crate) const IS_INTEGER: u32 = 0x1100;
pub(crate) const IS_FLOAT: u32 = 0x2200;
const IS_ANYTHING: u32 = 0xff00;
pub(crate) const IS_REFERENCE: u32 = 0x0800;
pub(crate) const IS_TEXT: u32 = 0x4400;
/// Of a text.
pub(crate) const IS_UTF8: u32 = 0x2000_0000;
const IS_PRIVATE_TEXT: u32 = 0x4000;
const HAS_SLOTS: u32 = 0x8000;
pub(crate) const IS_BLESSED: u32 = 0x0010_0000;
/// A text's beginning was cut off. Of a hash: it knows more than keys and values.
pub(crate) const HAS_MORE: u32 = 0x0200_0000;
pub(crate) const IS_SHARED: u32 = 0x1000_0000;
/// Of a reference.
pub(crate) const IS_WEAK: u32 = 0x8000_0000;
/// Of an integer.
pub(crate) const IS_UNSIGNED: u32 = 0x8000_0000;
/// Of an array: its elements are counted.
pub(crate) const IS_COUNTING: u32 = 0x4000_0000;
/// Of an array: its elements are counted as soon as somebody else may see it, as of `@_`.
pub(crate) const WILL_COUNT: u32 = 0x8000_0000;

/// Where the bodies of all types from texts on have these.
pub(crate) const CLASS: u64 = 0;
pub(crate) const MAGIC: u64 = 8;
pub(crate) const USED: u64 = 0x10;
pub(crate) const LENGTH: u64 = 0x18;

/// The head of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sv {
    pub(crate) at: Address,
    /// Where its body is.
    pub(crate) any: Address,
    pub(crate) references: u32,
    pub(crate) flags: u32,
    /// What it has by itself: a number, or where its text, its elements or its slots are.
    pub(crate) own: u64,
}

impl Sv {
    pub(crate) fn new(at: Address, bytes: &[u8; HEAD as usize]) -> Self {
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

    pub(crate) fn read(reader: &Reader<'_>, at: Address) -> Self {
        let bytes = reader.bytes(at, HEAD).first_chunk();
        Self::new(at, bytes.unwrap_or(&[0; HEAD as usize]))
    }

    pub(crate) fn kind(&self) -> u32 {
        self.flags & TYPE
    }

    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether it is neither a number nor a text nor a reference.
    pub(crate) fn is_undefined(&self) -> bool {
        self.flags & IS_ANYTHING == 0
    }

    /// Whether it is a symbol, with slots for a scalar, an array and so on.
    pub(crate) fn is_symbol(&self) -> bool {
        matches!(self.kind(), GLOB | LVALUE)
            && self.flags & (IS_PRIVATE_TEXT | HAS_SLOTS) == HAS_SLOTS
    }

    /// Whether it has a text in a buffer of its own.
    pub(crate) fn has_text(&self) -> bool {
        let may_have = matches!(self.kind(), TEXT..REGEXP | LVALUE);
        may_have && self.own != 0 && !self.has(IS_REFERENCE) && !self.is_symbol()
    }
}

//! The words of a stack: addresses of native frames, frames of interpreters, and labels.
//!
//! A word that is not an address of code has the highest bits `10`. No address of code has these
//! bits.

use crate::ledger::word::{FRAME, KIND_MASK, LABEL, THREAD, UNNAMED};
use crate::{FrameAddress, FrameNumber, ThreadNumber};

/// The meaning of a word of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameWord {
    /// The address of a native frame.
    Address(FrameAddress),
    /// A frame of an interpreter; `None` if there was no memory for it.
    Frame(Option<FrameNumber>),
    /// A provider's label for the whole stack: the provider's number, and the label.
    Label(usize, u64),
    /// The thread to which the stack belongs.
    Thread(ThreadNumber),
}

/// Number of bits of a provider's label.
const LABEL_BITS: u32 = 48;

impl FrameWord {
    /// Returns the meaning of `word`.
    #[inline]
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        match word & KIND_MASK {
            FRAME if word == UNNAMED => Self::Frame(None),
            FRAME => Self::Frame(Some(FrameNumber::from_u32(word as u32))),
            LABEL => {
                let provider = word >> LABEL_BITS & 0xff;
                Self::Label(provider as usize, word & ((1 << LABEL_BITS) - 1))
            }
            THREAD => Self::Thread(ThreadNumber::from_u32(word as u32)),
            _ => Self::Address(FrameAddress::from_word(word)),
        }
    }

    /// Whether `word` is a label of the whole stack instead of one of its frames. Labels are the
    /// newest words of a stack.
    #[inline]
    #[must_use]
    pub fn is_label(word: u64) -> bool {
        matches!(Self::from_word(word), Self::Label(..) | Self::Thread(_))
    }

    /// Returns the word with this meaning.
    #[inline]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        match self {
            Self::Address(address) => address.to_word(),
            Self::Frame(Some(number)) => FRAME | number.to_u32() as u64,
            Self::Frame(None) => UNNAMED,
            Self::Label(provider, label) => {
                LABEL | (provider as u64) << LABEL_BITS | label & ((1 << LABEL_BITS) - 1)
            }
            Self::Thread(number) => THREAD | number.to_u32() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_what_it_was_made_of() {
        for word in [
            FrameWord::Frame(Some(FrameNumber::from_u32(0))),
            FrameWord::Frame(Some(FrameNumber::from_u32(7_000_000))),
            FrameWord::Frame(None),
            FrameWord::Label(0, 0),
            FrameWord::Label(7, (1 << LABEL_BITS) - 1),
            FrameWord::Thread(ThreadNumber::from_u32(0)),
            FrameWord::Thread(ThreadNumber::from_u32(u32::MAX)),
            FrameWord::Address(FrameAddress::from_word(1)),
            FrameWord::Address(FrameAddress::from_word(0x7fff_ffff_f000)),
            // Such addresses occur in the kernel's code and with five levels of page tables.
            FrameWord::Address(FrameAddress::from_word(0x00ff_ffff_ffff_f000)),
            FrameWord::Address(FrameAddress::from_word(0xffff_ffff_8000_0000)),
        ] {
            assert_eq!(FrameWord::from_word(word.to_word()), word);
        }
    }
}

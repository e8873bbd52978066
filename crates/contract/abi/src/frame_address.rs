//! Type for the addresses in a stack, and its conversion to an address inside the frame's code.

/// Address of a frame's code, as it is stored in a stack.
///
/// A frame that has made a call is stored with its return address. This address lies after the
/// call, and maybe after the end of the function. A frame that was interrupted (by a signal, or by
/// the beginning of a walk) is stored with the address of its next instruction plus one. In both
/// cases, the address minus one lies in the code that the frame runs: see
/// [`lookup_address`](Self::lookup_address).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct FrameAddress(u64);

impl FrameAddress {
    /// Makes a frame address from a return address.
    #[inline(always)]
    #[must_use]
    pub const fn from_return_address(address: u64) -> Self {
        Self(address)
    }

    /// Makes a frame address from the address of the frame's next instruction.
    #[inline(always)]
    #[must_use]
    pub const fn from_instruction(address: u64) -> Self {
        Self(address.wrapping_add(1))
    }

    /// Makes a frame address from a word of a stack.
    #[inline(always)]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the address as a word of a stack.
    #[inline(always)]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns an address inside the frame's call or instruction. It is the key to look up
    /// unwinding rules, functions and files.
    #[inline(always)]
    #[must_use]
    pub const fn lookup_address(self) -> u64 {
        self.0.wrapping_sub(1)
    }

    /// Whether the address is zero. A zero ends a stack.
    #[inline(always)]
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_before_its_return_address_and_an_instruction_where_it_is() {
        let call = FrameAddress::from_return_address(0x1000);
        assert_eq!((call.to_word(), call.lookup_address()), (0x1000, 0xfff));
        let interrupted = FrameAddress::from_instruction(0x1000);
        assert_eq!(interrupted.lookup_address(), 0x1000);
        assert_eq!(FrameAddress::from_word(interrupted.to_word()), interrupted);
        assert!(FrameAddress::from_word(0).is_zero() && !call.is_zero());
    }
}

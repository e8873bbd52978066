//! Addresses of frames, and at which address the code of a frame is looked up.

/// Address of a frame's code, as it stands in a stack.
///
/// The frame of a call has its return address, which lies behind the call, and may lie behind the
/// function. The frame of an instruction, where a signal came or a walk began, has the address of
/// the instruction plus one. So the code of both is found by the same rule:
/// [`lookup_address`](Self::lookup_address).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct FrameAddress(u64);

impl FrameAddress {
    /// Returns the address of a frame that goes on at `address` when its callee returns.
    #[inline(always)]
    #[must_use]
    pub const fn from_return_address(address: u64) -> Self {
        Self(address)
    }

    /// Returns the address of a frame that was about to run the instruction at exactly `address`.
    #[inline(always)]
    #[must_use]
    pub const fn from_instruction(address: u64) -> Self {
        Self(address.wrapping_add(1))
    }

    /// Returns the address that stands in a stack as `word`.
    #[inline(always)]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the word that stands for the address in a stack.
    #[inline(always)]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns an address in the call or the instruction at which the frame is. Rules, functions
    /// and files are looked up by it.
    #[inline(always)]
    #[must_use]
    pub const fn lookup_address(self) -> u64 {
        self.0.wrapping_sub(1)
    }

    /// Whether the address is zero, which ends a stack.
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

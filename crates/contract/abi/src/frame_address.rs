//! Addresses of frames, and the address by which the code of a frame is found.

/// Address of a frame's code, as it is stored in a stack.
///
/// For the frame of a call, this is the return address, which lies behind the call, and maybe
/// behind the function. For the frame of an instruction (at a signal, or where a walk begins), it
/// is the address of the instruction plus one. So [`lookup_address`](Self::lookup_address) is right
/// for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct FrameAddress(u64);

impl FrameAddress {
    /// Returns the address of a frame that will continue at `address` when its callee returns.
    #[inline(always)]
    #[must_use]
    pub const fn from_return_address(address: u64) -> Self {
        Self(address)
    }

    /// Returns the address of a frame whose next instruction is at `address`.
    #[inline(always)]
    #[must_use]
    pub const fn from_instruction(address: u64) -> Self {
        Self(address.wrapping_add(1))
    }

    /// Returns the address that a stack's `word` contains.
    #[inline(always)]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the word by which a stack contains the address.
    #[inline(always)]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns an address inside the frame's call or instruction, by which unwinding rules,
    /// functions and files are found.
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

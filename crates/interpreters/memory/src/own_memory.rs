//! Reads this process's own memory directly.

use crate::Memory;

/// This process's own memory. Reading an unmapped address ends the process. Reads in the first
/// page, where nothing is ever mapped, fail instead.
#[derive(Clone, Copy, Debug)]
pub struct OwnMemory(());

/// Lowest address that is read. Lower addresses are null pointers with an offset.
const MIN_VALID_ADDRESS: u64 = 4096;

impl OwnMemory {
    /// Returns this process's memory.
    ///
    /// # Safety
    /// The caller must only read addresses that are mapped and readable, or in the first page. It
    /// must not call [`known_fields`](Memory::known_fields) with an address in the first page.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// Reads a `$type` at `$at`; `None` for an address in the first page.
macro_rules! word {
    ($at:ident, $type:ty) => {
        // SAFETY: the caller of `OwnMemory::new` promised that the address can be read.
        ($at >= MIN_VALID_ADDRESS).then(|| unsafe { ($at as *const $type).read_unaligned() })
    };
}

impl Memory for OwnMemory {
    #[inline]
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        if at < MIN_VALID_ADDRESS {
            return false;
        }
        // SAFETY: the caller of `OwnMemory::new` promised that the address can be read. The memory
        // may change meanwhile, but any content is valid bytes.
        unsafe { core::ptr::copy((at as *const u8).cast(), to.as_mut_ptr(), to.len()) };
        true
    }

    #[inline(always)]
    fn fields<const N: usize>(self, at: u64, distances: [u32; N]) -> Option<[u64; N]> {
        if at < MIN_VALID_ADDRESS {
            return None;
        }
        self.known_fields(at, distances)
    }

    #[inline(always)]
    fn known_fields<const N: usize>(self, at: u64, distances: [u32; N]) -> Option<[u64; N]> {
        debug_assert!(at >= MIN_VALID_ADDRESS);
        let mut fields = [0; N];
        for (field, distance) in fields.iter_mut().zip(distances) {
            let at = at.wrapping_add(distance.into()) as *const u64;
            // SAFETY: the caller of `OwnMemory::new` promised that the addresses can be read.
            *field = unsafe { at.read_unaligned() };
        }
        Some(fields)
    }

    #[inline(always)]
    fn u64(self, at: u64) -> Option<u64> {
        word!(at, u64)
    }

    #[inline(always)]
    fn u32(self, at: u64) -> Option<u32> {
        word!(at, u32)
    }

    #[inline(always)]
    fn u16(self, at: u64) -> Option<u16> {
        word!(at, u16)
    }

    #[inline(always)]
    fn u8(self, at: u64) -> Option<u8> {
        word!(at, u8)
    }
}

//! Reads the memory of a process, for code that finds an interpreter's structures in it.
//!
//! A walker of an interpreter is generic over [`Memory`]. So the same walk runs inside the process,
//! where memory is read directly, and outside of it, where each read may fail. [`loaded_modules`]
//! finds the loaded objects and their symbols in a [`Memory`].
//!
//! This crate must not depend on an interpreter, an allocator or a profile.
#![no_std]

pub mod loaded_modules;
mod own_memory;

pub use own_memory::OwnMemory;

/// Memory that can be read by address.
pub trait Memory: Copy {
    /// Fills `to` with the bytes at `at`. Returns whether all of them could be read.
    fn read(self, at: u64, to: &mut [u8]) -> bool;

    /// Reads the 8 bytes at `at`, in the machine's byte order.
    #[inline(always)]
    fn u64(self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }

    /// Reads the 4 bytes at `at`, in the machine's byte order.
    #[inline(always)]
    fn u32(self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes).then(|| u32::from_ne_bytes(bytes))
    }

    /// Reads the 2 bytes at `at`, in the machine's byte order.
    #[inline(always)]
    fn u16(self, at: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        self.read(at, &mut bytes).then(|| u16::from_ne_bytes(bytes))
    }

    /// Reads the byte at `at`.
    #[inline(always)]
    fn u8(self, at: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.read(at, &mut bytes).then(|| bytes[0])
    }

    /// Reads 8 bytes at each distance of `distances` from `at`, for example the fields of a
    /// structure.
    #[inline(always)]
    fn fields<const N: usize>(self, at: u64, distances: [u32; N]) -> Option<[u64; N]> {
        let mut fields = [0; N];
        for (field, distance) in fields.iter_mut().zip(distances) {
            *field = self.u64(at.checked_add(distance.into())?)?;
        }
        Some(fields)
    }

    /// Does the same as [`fields`](Self::fields), but an implementation may leave out checks of the
    /// address. The caller knows that `at` is readable: a structure was read there before, and is
    /// still in use.
    #[inline(always)]
    fn known_fields<const N: usize>(self, at: u64, distances: [u32; N]) -> Option<[u64; N]> {
        self.fields(at, distances)
    }

    /// Copies the bytes at `at` into `to`, up to a zero. Returns the number of bytes before the
    /// zero, or `to.len()` if there is no zero among the first `to.len()` bytes. `None` if they
    /// can't be read.
    fn text(self, at: u64, to: &mut [u8]) -> Option<usize> {
        const CHUNK_LEN: u64 = 64;
        let mut done = 0;
        while done < to.len() {
            // Each part lies in one page, so that a text can be read that ends before an unmapped
            // page.
            let from = at.checked_add(done as u64)?;
            let part = (CHUNK_LEN - from % CHUNK_LEN) as usize;
            let end = to.len().min(done + part);
            if !self.read(from, &mut to[done..end]) {
                return None;
            }
            if let Some(zero) = to[done..end].iter().position(|&byte| byte == 0) {
                return Some(done + zero);
            }
            done = end;
        }
        Some(done)
    }
}

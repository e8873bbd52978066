//! The memory of a process, as somebody reads it who looks for an interpreter's structures.
//!
//! A walker of an interpreter is generic over [`Memory`]. So the same walk runs in the process
//! itself, where it reads directly, and outside of it, where each read may fail. [`loaded`] finds
//! the loaded objects and their symbols in such a memory.
//!
//! It must never know an interpreter, an allocator or a profile.
#![no_std]

pub mod loaded;
mod own;

pub use own::OwnMemory;

/// Memory that can be read by address.
pub trait Memory: Copy {
    /// Fills `to` with what is at `at`. Returns whether all of it could be read.
    fn read(self, at: u64, to: &mut [u8]) -> bool;

    /// The 8 bytes at `at`, in the machine's order.
    #[inline(always)]
    fn u64(self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }

    /// The 4 bytes at `at`, in the machine's order.
    #[inline(always)]
    fn u32(self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes).then(|| u32::from_ne_bytes(bytes))
    }

    /// The 2 bytes at `at`, in the machine's order.
    #[inline(always)]
    fn u16(self, at: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        self.read(at, &mut bytes).then(|| u16::from_ne_bytes(bytes))
    }

    /// The byte at `at`.
    #[inline(always)]
    fn u8(self, at: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.read(at, &mut bytes).then(|| bytes[0])
    }

    /// The 8 bytes at each of these distances behind `at`, as of a structure's fields.
    #[inline(always)]
    fn fields<const N: usize>(self, at: u64, distances: [u32; N]) -> Option<[u64; N]> {
        let mut fields = [0; N];
        for (field, distance) in fields.iter_mut().zip(distances) {
            *field = self.u64(at.checked_add(distance.into())?)?;
        }
        Some(fields)
    }

    /// As [`fields`](Self::fields), of an address that is known to be readable now, and no null
    /// pointer: of a structure that was read before and is in use still.
    #[inline(always)]
    fn known_fields<const N: usize>(self, at: u64, distances: [u32; N]) -> Option<[u64; N]> {
        self.fields(at, distances)
    }

    /// Puts the bytes at `at` into `to`, up to a zero. Returns how many come before it, or
    /// `to.len()` if there is none among so many. `None` if they can't be read.
    fn text(self, at: u64, to: &mut [u8]) -> Option<usize> {
        const CHUNK_LEN: u64 = 64;
        let mut done = 0;
        while done < to.len() {
            // A part lies in one page, so that a text before a page that is not there can be read.
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

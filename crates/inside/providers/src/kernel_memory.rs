//! Reads this process's own memory by system calls.

use std::cell::Cell;

use heapprof_memory::Memory;
use heapprof_platform::sys;

/// Access to this process's own memory by system calls. If an address is not mapped, a read fails,
/// but does no harm.
#[derive(Clone, Copy)]
pub(crate) struct KernelMemory<'a> {
    /// Whether a read failed.
    pub(crate) failed: &'a Cell<bool>,
}

/// Lowest address that is read. Lower addresses are null pointers with an offset; reads of them
/// fail without setting `failed`.
const MIN_VALID_ADDRESS: u64 = 4096;

/// Maximum span in bytes of fields that are read together in one system call.
const MAX_FIELD_SPAN: usize = 160;

impl Memory for KernelMemory<'_> {
    fn fields<const N: usize>(self, at: u64, distances: [u32; N]) -> Option<[u64; N]> {
        let (least, most) = (*distances.iter().min()?, *distances.iter().max()?);
        let mut room = [0; MAX_FIELD_SPAN];
        let span = (most - least) as usize + 8;
        let mut fields = [0; N];
        let Some(room) = room.get_mut(..span) else {
            for (field, distance) in fields.iter_mut().zip(distances) {
                *field = self.u64(at.checked_add(distance.into())?)?;
            }
            return Some(fields);
        };
        if !self.read(at.checked_add(least.into())?, room) {
            return None;
        }
        for (field, distance) in fields.iter_mut().zip(distances) {
            let from = (distance - least) as usize;
            *field = u64::from_ne_bytes(*room[from..].first_chunk()?);
        }
        Some(fields)
    }

    fn read(self, at: u64, to: &mut [u8]) -> bool {
        let is_read = at >= MIN_VALID_ADDRESS && sys::read_memory(at as usize, to) == to.len();
        if !is_read && at >= MIN_VALID_ADDRESS {
            self.failed.set(true);
        }
        is_read
    }
}

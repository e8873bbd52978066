//! This process's own memory, read by the kernel.

use std::cell::Cell;

use heapprof_collect::sys;
use heapprof_memory::Memory;

/// This process's own memory, read by the kernel, so that what is not there is no more than a
/// failure.
#[derive(Clone, Copy)]
pub struct Kernel<'a> {
    /// Whether a read failed.
    pub failed: &'a Cell<bool>,
}

/// Addresses below it are null pointers with an offset. That they can't be read proves nothing.
const FIRST: u64 = 4096;

impl Memory for Kernel<'_> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        let is_read = at >= FIRST && sys::read_memory(at as usize, to) == to.len();
        if !is_read && at >= FIRST {
            self.failed.set(true);
        }
        is_read
    }
}

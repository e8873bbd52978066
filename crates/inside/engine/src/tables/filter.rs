//! The filter of addresses: shows whether a sampled block may begin at an address. It has a byte
//! for each of 65,536 slots. So a free of a block that was not sampled costs one load.
//!
//! The hooks read it from assembly. A slot counts its sampled blocks, and sticks at 255. In exact
//! mode all slots stick.

use std::sync::atomic::{AtomicU8, Ordering};

use heapprof_platform::sys;

std::arch::global_asm!(
    ".pushsection .bss.heapprof_filter,\"aw\",@nobits",
    ".balign 64",
    ".globl heapprof_filter",
    ".hidden heapprof_filter",
    ".type heapprof_filter,@object",
    "heapprof_filter:",
    ".zero 65536",
    ".size heapprof_filter, 65536",
    ".popsection",
);

/// Value of a slot that counts as having a recorded block for as long as the recording takes.
pub(crate) const STUCK_SLOT: u8 = 255;

const SLOT_COUNT: usize = 1 << 16;

/// The filter of addresses that may be recorded blocks.
#[repr(transparent)]
pub(crate) struct AddressFilter([AtomicU8; SLOT_COUNT]);

unsafe extern "C" {
    #[link_name = "heapprof_filter"]
    safe static HOOKS_FILTER: AddressFilter;
}

/// Returns the filter that the hooks read. The engine of the hooks fills it.
pub(crate) const fn hooks_filter() -> &'static AddressFilter {
    &HOOKS_FILTER
}

impl AddressFilter {
    /// Creates an empty filter.
    #[cfg(test)]
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; SLOT_COUNT])
    }

    /// Returns how many bytes of the filter are resident.
    pub(crate) fn resident(&self) -> usize {
        sys::resident(self.0.as_ptr().cast(), SLOT_COUNT)
    }

    #[inline(always)]
    fn slot(&self, address: usize) -> &AtomicU8 {
        &self.0[(address >> 4) % SLOT_COUNT]
    }

    /// Whether `address` may be the address of a recorded block.
    #[inline(always)]
    pub(crate) fn may_hold(&self, address: usize) -> bool {
        self.slot(address).load(Ordering::Relaxed) != 0
    }

    /// Records that a recorded block begins at `address`.
    pub(crate) fn add(&self, address: usize) {
        let up = |n: u8| (n != STUCK_SLOT).then(|| n + 1);
        let slot = self.slot(address);
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, up);
    }

    /// Records that a recorded block at `address` ended.
    pub(crate) fn remove(&self, address: usize) {
        let down = |n: u8| (n != STUCK_SLOT && n != 0).then(|| n - 1);
        let slot = self.slot(address);
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, down);
    }

    /// Sets all slots to `value`.
    pub(crate) fn fill(&self, value: u8) {
        if value != 0 || self.0.iter().any(|s| s.load(Ordering::Relaxed) != 0) {
            self.0
                .iter()
                .for_each(|s| s.store(value, Ordering::Relaxed));
        }
    }
}

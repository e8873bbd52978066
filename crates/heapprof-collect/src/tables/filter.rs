//! Which addresses may be those of sampled blocks: a byte for each of 65,536 slots, so that other
//! frees cost one load.
//!
//! The hooks read it from assembly. A slot counts its sampled blocks, and sticks at 255. In exact
//! mode all slots stick.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::platform::sys;

#[cfg(target_arch = "x86_64")]
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

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    #[link_name = "heapprof_filter"]
    safe static FILTER: [AtomicU8; SLOTS];
}

#[cfg(not(target_arch = "x86_64"))]
static FILTER: [AtomicU8; SLOTS] = [const { AtomicU8::new(0) }; SLOTS];

const SLOTS: usize = 1 << 16;

/// The value of a slot that always may hold something.
pub(crate) const STUCK: u8 = 255;

/// How many bytes of the filter are in memory.
pub(crate) fn resident() -> usize {
    sys::resident(FILTER.as_ptr().cast(), SLOTS)
}

#[inline(always)]
fn slot(address: usize) -> &'static AtomicU8 {
    &FILTER[(address >> 4) % SLOTS]
}

/// Whether `address` may be a block that is recorded.
#[inline(always)]
pub fn may_hold(address: usize) -> bool {
    slot(address).load(Ordering::Relaxed) != 0
}

pub(crate) fn add(address: usize) {
    let up = |n: u8| (n != STUCK).then(|| n + 1);
    let _ = slot(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, up);
}

pub(crate) fn remove(address: usize) {
    let down = |n: u8| (n != STUCK && n != 0).then(|| n - 1);
    let _ = slot(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, down);
}

pub(crate) fn fill(value: u8) {
    if value != 0 || FILTER.iter().any(|s| s.load(Ordering::Relaxed) != 0) {
        FILTER
            .iter()
            .for_each(|s| s.store(value, Ordering::Relaxed));
    }
}

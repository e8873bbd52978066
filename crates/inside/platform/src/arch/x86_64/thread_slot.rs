//! The storage of each thread's slot: initial-exec storage, which is read without a call.

use std::arch::{asm, global_asm};

/// Length of the slot in bytes. The slot has a cache line for itself.
pub(crate) const THREAD_SLOT_LEN: usize = 64;

global_asm!(
    ".pushsection .tbss.heapprof_tls,\"awT\",@nobits",
    ".balign 64",
    ".globl heapprof_tls",
    ".hidden heapprof_tls",
    ".type heapprof_tls,@object",
    "heapprof_tls:",
    ".zero {len}",
    ".size heapprof_tls, {len}",
    ".popsection",
    len = const THREAD_SLOT_LEN,
);

/// Returns the address of this thread's slot, which is all zeros when the thread starts.
#[inline(always)]
pub(crate) fn thread_slot() -> *mut u8 {
    let slot;
    // SAFETY: adds the variable's offset to the thread pointer, which fs:0 holds by the ABI.
    unsafe {
        asm!("mov {0}, qword ptr [rip + heapprof_tls@GOTTPOFF]",
             "add {0}, qword ptr fs:[0]",
             out(reg) slot, options(pure, readonly, nostack));
    }
    slot
}

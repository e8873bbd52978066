//! The storage of each thread's slot: initial-exec storage, which is read without a call.
//!
//! musl loads no library with such storage into a running program. There the slot lies in the block
//! that musl makes for the library in each thread, and its place differs from thread to thread. A
//! copy of the library is prepared for this before it is loaded: `heapprof_slot_sites` lists each
//! instruction that reads the place of the slot, beside other code that finds the slot through the
//! thread's list of blocks. The copy jumps to that code. `late_library.rs` of heapprof-attach
//! prepares it.

use std::arch::{asm, global_asm};

/// Length of the slot in bytes. The slot has cache lines for itself: what each event reads and
/// writes is in the first.
pub(crate) const THREAD_SLOT_LEN: usize = 128;

global_asm!(
    ".pushsection .tbss.heapprof_tls,\"awT\",@nobits",
    ".balign 64",
    ".globl heapprof_tls",
    ".hidden heapprof_tls",
    ".type heapprof_tls,@object",
    // A second name for accesses through the loader's list of blocks: linkers turn these into
    // initial-exec accesses where one name has both.
    ".globl heapprof_tls_late",
    ".hidden heapprof_tls_late",
    ".type heapprof_tls_late,@object",
    "heapprof_tls:",
    "heapprof_tls_late:",
    ".zero {len}",
    ".size heapprof_tls, {len}",
    ".popsection",
    len = const THREAD_SLOT_LEN,
);

/// Returns the address of this thread's slot, which is all zeros when the thread starts.
#[cfg(not(feature = "late-library"))]
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

#[cfg(feature = "late-library")]
global_asm!(
    ".pushsection .data.heapprof_tls_module,\"aw\",@progbits",
    ".balign 8",
    ".globl heapprof_tls_module",
    ".hidden heapprof_tls_module",
    ".type heapprof_tls_module,@object",
    "heapprof_tls_module: .quad 0",
    ".size heapprof_tls_module, 8",
    ".popsection",
);

#[cfg(feature = "late-library")]
unsafe extern "C" {
    /// The number of this library among those with thread-local storage, as the loader counts them.
    /// Only the prepared copy uses it, and sets it when it starts.
    #[link_name = "heapprof_tls_module"]
    pub safe static TLS_MODULE: std::sync::atomic::AtomicUsize;
}

/// Assembly that lists an instruction of at least 5 bytes, and the code to which the prepared copy
/// jumps instead. Both are labels.
#[cfg(feature = "late-library")]
#[macro_export]
macro_rules! slot_site {
    ($site:literal, $late:literal) => {
        concat!(
            ".pushsection heapprof_slot_sites,\"aR\",@progbits\n.long ",
            $site,
            " - .\n.long ",
            $late,
            " - .\n.popsection"
        )
    };
}

/// Assembly that puts the address of this thread's block of the library into a register. musl's
/// list of blocks is at fs:8.
#[cfg(feature = "late-library")]
#[macro_export]
macro_rules! late_block {
    ($register:literal) => {
        concat!(
            "mov ",
            $register,
            ", qword ptr [rip + heapprof_tls_module]\nshl ",
            $register,
            ", 3\nadd ",
            $register,
            ", qword ptr fs:[8]\nmov ",
            $register,
            ", qword ptr [",
            $register,
            "]"
        )
    };
}

/// Returns the address of this thread's slot, which is all zeros when the thread starts.
#[cfg(feature = "late-library")]
#[inline(always)]
pub(crate) fn thread_slot() -> *mut u8 {
    let slot;
    // SAFETY: adds the variable's offset to the thread pointer, which fs:0 holds by the ABI. The
    // other code adds the variable's offset to the address of the library's block.
    unsafe {
        asm!("2: mov {0}, qword ptr [rip + heapprof_tls@GOTTPOFF]",
             "add {0}, qword ptr fs:[0]",
             "3:",
             ".pushsection .text.heapprof_late_slot,\"ax\",@progbits",
             "4:",
             late_block!("{0}"),
             "lea {0}, [{0} + heapprof_tls@DTPOFF]",
             "jmp 3b",
             ".popsection",
             slot_site!("2b", "4b"),
             out(reg) slot, options(pure, readonly, nostack));
    }
    slot
}

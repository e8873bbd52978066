//! `__tls_get_addr` for this library only. std's thread-locals call this function, and libc's
//! version may allocate.
//!
//! The library is loaded at the start, so its thread-local block is at a fixed distance from the
//! thread pointer. Initial-exec access to one variable of the block gives this distance. The
//! function adds the offset that its caller passes. So it calls no function outside the library,
//! and allocates nothing.
//!
//! A copy of the library that is prepared for musl has no such distance. There the function reads
//! musl's list of blocks. musl makes a block for each library and thread when it loads the library
//! or starts the thread.

use std::arch::{asm, naked_asm};
use std::sync::atomic::Ordering;

use heapprof_platform::arch::TLS_MODULE;
use heapprof_platform::slot_site;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.heapprof_tls_get_addr,\"ax\",@progbits",
    ".globl __tls_get_addr",
    ".hidden __tls_get_addr",
    ".type __tls_get_addr,@function",
    "__tls_get_addr:",
    ".cfi_startproc",
    // rdi: { module, offset in the module's block }
    "2: mov rax, qword ptr [rip + heapprof_tls@GOTTPOFF]",
    "add rax, qword ptr [rdi + 8]",
    "add rax, qword ptr fs:[0]",
    "sub rax, qword ptr [rip + 1f]",
    "ret",
    "3: mov rax, qword ptr [rdi]",
    "shl rax, 3",
    "add rax, qword ptr fs:[8]",
    "mov rax, qword ptr [rax]",
    "add rax, qword ptr [rdi + 8]",
    "ret",
    ".cfi_endproc",
    ".size __tls_get_addr, . - __tls_get_addr",
    ".popsection",
    ".pushsection .data.rel.ro.heapprof_tls_offset,\"aw\",@progbits",
    ".balign 8",
    "1: .quad heapprof_tls@DTPOFF",
    ".popsection",
    slot_site!("2b", "3b"),
);

/// Whether this is a copy of the library that musl has loaded into a running program.
pub fn is_late() -> bool {
    TLS_MODULE.load(Ordering::Relaxed) != 0
}

/// Finds the number of this library, if this is a copy that is prepared for musl. Runs before
/// anything that uses a thread's slot.
pub fn prepare() {
    let distance: usize;
    // SAFETY: reads a word that the loader has filled; the loader of the copy leaves it zero.
    unsafe {
        asm!("mov {}, qword ptr [rip + heapprof_tls@GOTTPOFF]",
             out(reg) distance, options(pure, readonly, nostack, preserves_flags));
    }
    if distance == 0 {
        // SAFETY: the function has no arguments.
        TLS_MODULE.store(unsafe { find_module() }, Ordering::Relaxed);
    }
}

/// Returns the number of this library among those with thread-local storage.
#[unsafe(naked)]
unsafe extern "C" fn find_module() -> usize {
    naked_asm!(
        ".cfi_startproc",
        // The sequence that linkers know for a call of this function, which leaves rdi as it is.
        "data16 lea rdi, [rip + heapprof_tls_late@TLSGD]",
        ".value 0x6666",
        "rex64 call __tls_get_addr@PLT",
        "mov rax, qword ptr [rdi]",
        "ret",
        ".cfi_endproc",
    )
}

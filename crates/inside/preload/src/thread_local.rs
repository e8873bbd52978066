//! `__tls_get_addr` for this library only. std's thread-locals call this function, and libc's
//! version may allocate.
//!
//! The library is loaded at the start, so its thread-local block is at a fixed distance from the
//! thread pointer. Initial-exec access to one variable of the block gives this distance. The
//! function adds the offset that its caller passes. So it calls no function outside the library,
//! and allocates nothing.

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.heapprof_tls_get_addr,\"ax\",@progbits",
    ".globl __tls_get_addr",
    ".hidden __tls_get_addr",
    ".type __tls_get_addr,@function",
    "__tls_get_addr:",
    ".cfi_startproc",
    // rdi: { module, offset in the module's block }
    "mov rax, qword ptr [rip + heapprof_tls@GOTTPOFF]",
    "add rax, qword ptr [rdi + 8]",
    "add rax, qword ptr fs:[0]",
    "sub rax, qword ptr [rip + 1f]",
    "ret",
    ".cfi_endproc",
    ".size __tls_get_addr, . - __tls_get_addr",
    ".popsection",
    ".pushsection .data.rel.ro.heapprof_tls_offset,\"aw\",@progbits",
    ".balign 8",
    "1: .quad heapprof_tls@DTPOFF",
    ".popsection",
);

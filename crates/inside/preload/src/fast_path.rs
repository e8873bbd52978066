//! Fast path for an allocation that is not recorded: a few instructions, then a jump to the real
//! function.
//!
//! malloc subtracts its size plus one (so that empty blocks count) from the thread's countdown. If
//! the countdown has not run out, malloc jumps to the real function. Otherwise it jumps to the
//! recording function, and passes its call site, too. (A copy of the library that is prepared for
//! musl finds the countdown in another way.) free looks up one byte by the address. Both hooks
//! leave the stack unchanged, so that the real function returns to the program.

use std::arch::naked_asm;

use heapprof_engine::CallSite;
use heapprof_platform::{late_block, slot_site};

use crate::family;
use crate::hook::label;
use heapprof_providers::python;

/// Hook for malloc.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut u8 {
    naked_asm!(
        label!(malloc),
        ".cfi_startproc",
        "3: mov rax, qword ptr [rip + heapprof_tls@GOTTPOFF]",
        "stc",
        "sbb qword ptr fs:[rax], rdi",
        "4: jb 2f",
        "jmp qword ptr [rip + heapprof_real]",
        "2: mov rsi, rsp",
        "mov rdx, rbp",
        "jmp {chosen}",
        "5:",
        late_block!("rax"),
        "stc",
        "sbb qword ptr [rax + heapprof_tls@DTPOFF], rdi",
        "jmp 4b",
        ".cfi_endproc",
        slot_site!("3b", "5b"),
        chosen = sym chosen_malloc,
    )
}

/// Hook for free.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(address: *mut u8) {
    naked_asm!(
        label!(free),
        ".cfi_startproc",
        "mov rax, rdi",
        "shr rax, 4",
        "movzx eax, ax",
        "lea rcx, [rip + heapprof_filter]",
        "cmp byte ptr [rcx + rax], 0",
        "jne 2f",
        "jmp qword ptr [rip + heapprof_real + 8]",
        "2: jmp {chosen}",
        ".cfi_endproc",
        chosen = sym chosen_free,
    )
}

/// Makes and records an allocation that the countdown selected.
unsafe extern "C" fn chosen_malloc(size: usize, slot: usize, bp: usize) -> *mut u8 {
    family::record_allocation(size, CallSite { slot, bp }, |real| {
        // SAFETY: malloc's contract, passed on.
        unsafe { (real.malloc)(size) }
    })
}

/// Handles a free of a block that may be recorded.
unsafe extern "C" fn chosen_free(address: *mut u8) {
    if !python::is_released(address) {
        family::release(address);
    }
    // SAFETY: free's contract, passed on.
    unsafe { (crate::real_functions::real().free)(address) }
}

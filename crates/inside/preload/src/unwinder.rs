//! Substitutes for the unwinder's functions that std refers to, for this library only. They are
//! never called, because panics abort in this library.
//!
//! Without them the library would pull libgcc_s into every program.

use std::arch::global_asm;

macro_rules! never {
    ($($name:literal),*) => {
        $(global_asm!(
            ".pushsection .text.heapprof_unwinder,\"ax\",@progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            // Returns 0: no frames, nothing found.
            "xor eax, eax",
            "ret",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
        );)*
    };
}
never!(
    "_Unwind_Backtrace",
    "_Unwind_GetDataRelBase",
    "_Unwind_GetIP",
    "_Unwind_GetIPInfo",
    "_Unwind_GetLanguageSpecificData",
    "_Unwind_GetRegionStart",
    "_Unwind_GetTextRelBase",
    "_Unwind_Resume",
    "_Unwind_RaiseException",
    "_Unwind_DeleteException",
    "_Unwind_SetGR",
    "_Unwind_SetIP"
);

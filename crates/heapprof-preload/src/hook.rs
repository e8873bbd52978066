//! How a hook with an ordinary function behind it tells where it was called from.

/// Defines an exported hook that passes its arguments on with the place of the call behind them.
macro_rules! hook {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $slot:literal, $bp:literal => $to:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $slot, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {to}",
                ".cfi_endproc",
                to = sym $to,
            )
        }
    };
}
pub(crate) use hook;

/// Defines an exported hook before whose real function `before` is called. The arguments, which may be variadic, stay where they
/// are; `real` gives the function by the hook's number.
macro_rules! announced {
    ($name:ident, $index:literal, $before:path, $real:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> std::ffi::c_int {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                ".cfi_adjust_cfa_offset 56",
                "call {before}",
                concat!("mov edi, ", $index),
                "call {real}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                "jmp r11",
                ".cfi_endproc",
                before = sym $before,
                real = sym $real,
            )
        }
    };
}
pub(crate) use announced;

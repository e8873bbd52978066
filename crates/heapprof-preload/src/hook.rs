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

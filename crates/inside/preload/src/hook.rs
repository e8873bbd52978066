//! Macros for hooks that are implemented by ordinary functions. Such a function either receives the
//! call site of the hook, or runs before the real function.

/// Defines an exported hook, which calls a function. The function gets the hook's arguments, and
/// then the hook's call site.
macro_rules! hook {
    (
        $name:ident($($argument:ident: $type:ty),*) -> $result:ty,
        $slot:literal, $bp:literal => $to:path
    ) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            std::arch::naked_asm!(
                $crate::hook::label!($name),
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

/// Defines a second name for a hook, which is visible only in this library. Under the exported
/// name, the loader may find another library's function.
macro_rules! label {
    ($name:ident) => {
        concat!(
            ".globl heapprof_hook_",
            stringify!($name),
            "\n.hidden heapprof_hook_",
            stringify!($name),
            "\nheapprof_hook_",
            stringify!($name),
            ":"
        )
    };
}
pub(crate) use label;

/// Assembly of a hook that first calls `before`, and then jumps to the real function. Both get the
/// program's arguments, which may be variadic. `at` is the offset of the function in `table`, an
/// array of [`HookedFunction`](crate::real_functions::HookedFunction).
macro_rules! announce {
    () => {
        "push rdi
        .cfi_adjust_cfa_offset 8
        push rsi
        .cfi_adjust_cfa_offset 8
        push rdx
        .cfi_adjust_cfa_offset 8
        push rcx
        .cfi_adjust_cfa_offset 8
        push r8
        .cfi_adjust_cfa_offset 8
        push r9
        .cfi_adjust_cfa_offset 8
        push rax
        .cfi_adjust_cfa_offset 8
        call {before}
        lea rdi, [rip + {table} + {at}]
        call {real}
        mov r11, rax
        pop rax
        .cfi_adjust_cfa_offset -8
        pop r9
        .cfi_adjust_cfa_offset -8
        pop r8
        .cfi_adjust_cfa_offset -8
        pop rcx
        .cfi_adjust_cfa_offset -8
        pop rdx
        .cfi_adjust_cfa_offset -8
        pop rsi
        .cfi_adjust_cfa_offset -8
        pop rdi
        .cfi_adjust_cfa_offset -8
        jmp r11"
    };
}
pub(crate) use announce;

/// Declares hooks made with [`announce`] for a list of functions: the exported hooks, a table of
/// the real functions, and the indices in this table.
macro_rules! announced {
    ($before:path, $table:ident, $place:ident: $($name:ident),* $(,)?) => {
        /// Indices of the functions in the table.
        #[allow(non_camel_case_types)]
        enum $place {
            $($name),*
        }

        /// The real functions behind the hooks.
        static $table: [$crate::real_functions::HookedFunction; [$(stringify!($name)),*].len()] =
            [$($crate::real_functions::HookedFunction::new($crate::hook::name!($name))),*];

        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() -> std::ffi::c_int {
                std::arch::naked_asm!(
                    $crate::hook::label!($name),
                    ".cfi_startproc",
                    $crate::hook::announce!(),
                    ".cfi_endproc",
                    before = sym $before,
                    table = sym $table,
                    at = const $place::$name as usize
                        * size_of::<$crate::real_functions::HookedFunction>(),
                    real = sym $crate::real_functions::go_on_to,
                )
            }
        )*
    };
}
pub(crate) use announced;

/// Makes a C string from the name of a function.
macro_rules! name {
    ($name:ident) => {
        const {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier holds no zero"),
            }
        }
    };
}
pub(crate) use name;

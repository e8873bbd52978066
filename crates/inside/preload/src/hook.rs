//! Hooks with ordinary functions behind them, which get the place of the hook's call, or are called
//! before the real function.

/// Defines an exported hook that passes on its arguments, and after them the place of the call.
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

/// A second name of a hook, which only this library sees: by the exported name the loader may find
/// another library's function.
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

/// The assembly of a hook that calls `before`, with the program's arguments in their registers, and
/// then goes on to the real function. By then the arguments, which may be variadic, are where they
/// were again. `at` is the offset of the function in `table`, an array of
/// [`HookedFunction`](crate::real_functions::HookedFunction).
macro_rules! announce {
    () => {
        "push rdi
        push rsi
        push rdx
        push rcx
        push r8
        push r9
        push rax
        .cfi_adjust_cfa_offset 56
        call {before}
        lea rdi, [rip + {table} + {at}]
        call {real}
        mov r11, rax
        pop rax
        pop r9
        pop r8
        pop rcx
        pop rdx
        pop rsi
        pop rdi
        .cfi_adjust_cfa_offset -56
        jmp r11"
    };
}
pub(crate) use announce;

/// Declares, from one list of functions with hooks of [`announce`]: the table of the real
/// functions, their indices in it, and the exported hooks.
macro_rules! announced {
    ($before:path, $table:ident, $place:ident: $($name:ident),* $(,)?) => {
        /// The indices of the functions in their table.
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

/// The name of a function as a C string.
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

//! The hooks for a program that was not started with the library.

use std::ffi::CStr;

use crate::hook::{announce, name};
use crate::real_functions::{self, HookedFunction, go_on_to};
use crate::{end, sandbox};

use super::opened_objects;
use super::slots::SlotHook;

/// Declares the exported hook functions, and a table of all hooks.
macro_rules! hooks {
    (
        $(frees $frees:ident)* ; $(makes $makes:ident)* ;
        $(deletes $deletes:ident)* ; $(news $news:ident)* ;
        $(other $other:ident $label:literal)* ;
    ) => {
        unsafe extern "C" {
            $(#[link_name = concat!("heapprof_hook_", stringify!($frees))] fn $frees();)*
            $(#[link_name = concat!("heapprof_hook_", stringify!($makes))] fn $makes();)*
            $(#[link_name = concat!("heapprof_hook_", stringify!($deletes))] fn $deletes();)*
            $(#[link_name = concat!("heapprof_hook_", stringify!($news))] fn $news();)*
            $(#[link_name = $label] fn $other();)*
        }

        /// The hooks for all functions whose slots may be pointed at this library.
        pub static HOOKS: [SlotHook; [
            $(stringify!($frees),)* $(stringify!($makes),)* $(stringify!($deletes),)*
            $(stringify!($news),)* $(stringify!($other),)*
        ].len()] = [
            $(hook(name!($frees), $frees, true, false, true),)*
            $(hook(name!($makes), $makes, false, false, true),)*
            $(hook(name!($deletes), $deletes, true, true, true),)*
            $(hook(name!($news), $news, false, true, true),)*
            $(hook(name!($other), $other, false, false, false),)*
        ];
    };
}

const fn hook(
    name: &'static CStr,
    ours: unsafe extern "C" fn(),
    frees: bool,
    is_operator: bool,
    is_allocator: bool,
) -> SlotHook {
    SlotHook {
        name,
        ours,
        frees,
        is_operator,
        is_allocator,
    }
}

hooks! {
    frees free frees realloc frees reallocarray
    frees cfree frees free_sized frees free_aligned_sized;
    makes malloc makes calloc makes memalign makes aligned_alloc makes posix_memalign
    makes valloc makes pvalloc;
    deletes _ZdlPv deletes _ZdlPvRKSt9nothrow_t deletes _ZdlPvm
    deletes _ZdlPvSt11align_val_t deletes _ZdlPvSt11align_val_tRKSt9nothrow_t
    deletes _ZdlPvmSt11align_val_t
    deletes _ZdaPv deletes _ZdaPvRKSt9nothrow_t deletes _ZdaPvm
    deletes _ZdaPvSt11align_val_t deletes _ZdaPvSt11align_val_tRKSt9nothrow_t
    deletes _ZdaPvmSt11align_val_t;
    news _Znwm news _ZnwmRKSt9nothrow_t
    news _ZnwmSt11align_val_t news _ZnwmSt11align_val_tRKSt9nothrow_t
    news _Znam news _ZnamRKSt9nothrow_t
    news _ZnamSt11align_val_t news _ZnamSt11align_val_tRKSt9nothrow_t;
    other dlclose "heapprof_hook_dlclose"
    other prctl "heapprof_hook_prctl"
    other syscall "heapprof_hook_syscall"
    other dlopen "heapprof_opens_dlopen"
    other dlmopen "heapprof_opens_dlmopen"
    other dlsym "heapprof_opens_dlsym"
    other dlvsym "heapprof_opens_dlvsym";
}

static DLOPEN: HookedFunction = HookedFunction::new(c"dlopen");
static DLMOPEN: HookedFunction = HookedFunction::new(c"dlmopen");
static DLSYM: HookedFunction = HookedFunction::new(c"dlsym");
static DLVSYM: HookedFunction = HookedFunction::new(c"dlvsym");

/// Sets the real functions behind all hooks outside of the malloc family. `find` returns the
/// function to which the slots with a given name pointed before.
pub fn prepare(find: impl Fn(&CStr) -> *const std::ffi::c_void) {
    for behind in [&DLOPEN, &DLMOPEN, &DLSYM, &DLVSYM] {
        behind.set_function(find(behind.name()));
    }
    end::set_real_functions(&find);
    sandbox::set_real_functions(&find);
    real_functions::ALIGNED_ALLOC.find();
}

/// Defines a hook that calls `before`, and then jumps to the loader's function with the same name.
/// It jumps instead of calling, because the loader checks the address of the caller.
macro_rules! opens {
    ($label:literal, $before:path, $behind:ident) => {
        std::arch::global_asm!(
            ".pushsection .text.heapprof_opens,\"ax\",@progbits",
            concat!(".globl ", $label),
            concat!(".hidden ", $label),
            concat!(".type ", $label, ",@function"),
            concat!($label, ":"),
            ".cfi_startproc",
            announce!(),
            ".cfi_endproc",
            concat!(".size ", $label, ", . - ", $label),
            ".popsection",
            before = sym $before,
            table = sym $behind,
            at = const 0,
            real = sym go_on_to,
        );
    };
}
opens!("heapprof_opens_dlopen", opened_objects::before_open, DLOPEN);
opens!(
    "heapprof_opens_dlmopen",
    opened_objects::before_open,
    DLMOPEN
);
opens!(
    "heapprof_opens_dlsym",
    opened_objects::before_symbol_lookup,
    DLSYM
);
opens!(
    "heapprof_opens_dlvsym",
    opened_objects::before_symbol_lookup,
    DLVSYM
);

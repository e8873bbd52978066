//! Hooks for C++'s operators new and delete. They matter for allocators that define their own
//! operators.
//!
//! Usually the operators call malloc and free, and a hook only jumps to its operator. An
//! allocator's own operators do not call malloc and free. So calls to such operators are counted
//! and recorded like calls to malloc and free.
//!
//! For an operator that throws, the hook calls the form that does not throw, so that no exception
//! passes through Rust code. If this call fails, the hook jumps to the throwing form, with the
//! program's arguments and without a frame of this library on the stack.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use heapprof_engine::{CallSite, ENGINE};

use crate::family;
use crate::hook::{label, name};
use crate::real_functions::{self, next, object, real as allocator};

type OperatorSlots = [AtomicPtr<c_void>; COUNT];

/// The function to which the hook of each operator jumps: the real operator, or this library's
/// recording operator. All are null until an operator is first used.
static TARGET: OperatorSlots = [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT];
/// The real operators.
static REAL: OperatorSlots = [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT];

/// Returns the real operator: the definition that the loader finds next after this library's, or
/// else the definition in a C++ library that was loaded only for a plugin.
fn find(name: &CStr) -> *mut c_void {
    if let Some(found) = next(name) {
        return found.cast_mut();
    }
    let mut found: *mut c_void = std::ptr::null_mut();
    for library in [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"] {
        // SAFETY: looks up a library that is loaded already, and a function in it.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !handle.is_null() && found.is_null() {
                found = libc::dlsym(handle, name.as_ptr());
            }
        }
    }
    // SAFETY: this clears the loader's error. A missing function is no error of the program.
    unsafe { libc::dlerror() };
    found
}

/// Finds all operators. Returns the function that the hook of the operator `index` jumps to.
extern "C" fn resolve(index: usize) -> *mut c_void {
    ENGINE
        .lifecycle()
        .with_reentrancy_guard(|| choose_targets(NAMES.map(find)));
    TARGET[index].load(Ordering::Acquire)
}

/// Sets the real operators to the results of `find`, for a program that was not started with the
/// library.
pub fn set_real_operators(find: impl Fn(&CStr) -> *const c_void) {
    choose_targets(NAMES.map(|name| find(name).cast_mut()));
}

/// Chooses for each operator the function to which its hook jumps. `all` holds the real operators.
fn choose_targets(all: [*mut c_void; COUNT]) {
    let malloc = object(allocator().malloc as *const c_void);
    let foreign = !real_functions::is_libc(allocator().malloc as *const c_void);
    for (i, found) in all.into_iter().enumerate() {
        let is_delete = i >= FIRST_DELETE;
        // A new that throws is called in the form that doesn't. That form must not lead back here,
        // as the C++ library's form does: it calls the throwing one. If the form is the C++
        // library's, the operators are passed on, and call the allocator's malloc in the end.
        let called = if is_delete { found } else { all[i | 1] };
        let is_its_own = |function| foreign && object(function) == malloc;
        let target = match found.is_null() {
            true if is_delete => crate::fast_path::free as *mut c_void,
            // There is no C++ library at all: the plugin is linked with its own copy, whose
            // throwing form is out of reach.
            true if i & 2 == 0 => crate::fast_path::malloc as *mut c_void,
            true => allocate_aligned as *mut c_void,
            false if is_its_own(found) && is_its_own(called) => LOOKING[i] as *mut c_void,
            false => found,
        };
        REAL[i].store(found, Ordering::Release);
        TARGET[i].store(target, Ordering::Release);
    }
}

extern "C" fn allocate_aligned(size: usize, align: usize) -> *mut u8 {
    // SAFETY: memalign's contract, passed on.
    unsafe { crate::family::memalign(align, size) }
}

/// Allocates for operator `I` (`new(size)` or `new(size, align)`), and records the allocation if
/// the countdown selects it. Does not throw.
unsafe extern "C" fn chosen_new<const I: usize>(
    size: usize,
    align: usize,
    _: usize,
    slot: usize,
    bp: usize,
) -> *mut u8 {
    let make = || {
        // The reference to std::nothrow only chooses the overload.
        let nothrow = (&raw const TARGET).cast::<c_void>();
        let function = REAL[I | 1].load(Ordering::Acquire);
        // SAFETY: the types are those of the operators, by their mangled names.
        unsafe {
            if I & 2 == 0 {
                type NewFn = unsafe extern "C" fn(usize, *const c_void) -> *mut u8;
                std::mem::transmute::<*mut c_void, NewFn>(function)(size, nothrow)
            } else {
                type AlignedNewFn = unsafe extern "C" fn(usize, usize, *const c_void) -> *mut u8;
                std::mem::transmute::<*mut c_void, AlignedNewFn>(function)(size, align, nothrow)
            }
        }
    };
    if ENGINE.events().charge(size) {
        family::record_allocation(size, CallSite { slot, bp }, |_| make())
    } else {
        make()
    }
}

unsafe extern "C" fn chosen_delete(address: *mut u8) {
    if ENGINE.events().may_hold(address as usize) {
        family::release(address);
    }
}

/// Declares all operators by their names in the Itanium ABI: numbers, names, exported hooks and
/// recording operators.
macro_rules! operators {
    (new: $($new:ident)*; delete: $($delete:ident)*;) => {
        /// The number of each operator.
        #[allow(non_camel_case_types)]
        enum Number {
            $($new,)*
            $($delete,)*
        }

        const COUNT: usize = FIRST_DELETE + [$(stringify!($delete)),*].len();
        const FIRST_DELETE: usize = [$(stringify!($new)),*].len();
        const NAMES: [&CStr; COUNT] = [$(name!($new),)* $(name!($delete),)*];

        $(hook!($new);)*
        $(hook!($delete);)*

        /// This library's recording operators.
        mod looking {
            use super::*;

            $(look!($new, chosen_new::<{ Number::$new as usize }>);)*
            $(look!($delete, chosen_delete);)*
        }

        /// The recording operators, by number.
        static LOOKING: [unsafe extern "C" fn(); COUNT] =
            [$(looking::$new,)* $(looking::$delete,)*];
    };
}

/// Defines the exported hook of an operator, which jumps to the operator's function in `TARGET`.
macro_rules! hook {
    ($name:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                label!($name),
                ".cfi_startproc",
                "mov rax, qword ptr [rip + {target} + {at}]",
                "test rax, rax",
                "je 2f",
                "jmp rax",
                "2: push rdi",
                "push rsi",
                "push rdx",
                ".cfi_adjust_cfa_offset 24",
                "mov edi, {number}",
                "call {resolve}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                "jmp rax",
                ".cfi_endproc",
                target = sym TARGET,
                at = const 8 * Number::$name as usize,
                number = const Number::$name as usize,
                resolve = sym resolve,
            )
        }
    };
}

/// Defines the recording operator for an operator. A recording delete ends with a jump to the real
/// operator. A recording new returns to its caller if it succeeds; otherwise it jumps to the real
/// operator, which may throw.
macro_rules! look {
    ($name:ident, $chosen:path) => {
        #[unsafe(naked)]
        #[allow(non_snake_case)]
        pub(super) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                ".cfi_adjust_cfa_offset 24",
                "lea rcx, [rsp + 24]",
                "mov r8, rbp",
                "call {chosen}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                ".if {number} < {first_delete}",
                "test rax, rax",
                "je 2f",
                "ret",
                ".endif",
                "2: jmp qword ptr [rip + {real} + {at}]",
                ".cfi_endproc",
                chosen = sym $chosen,
                real = sym REAL,
                at = const 8 * Number::$name as usize,
                number = const Number::$name as usize,
                first_delete = const FIRST_DELETE,
            )
        }
    };
}

operators! {
    // Each throwing new stands before its form that does not throw.
    new:
        _Znwm _ZnwmRKSt9nothrow_t
        _ZnwmSt11align_val_t _ZnwmSt11align_val_tRKSt9nothrow_t
        _Znam _ZnamRKSt9nothrow_t
        _ZnamSt11align_val_t _ZnamSt11align_val_tRKSt9nothrow_t;
    delete:
        _ZdlPv _ZdlPvRKSt9nothrow_t _ZdlPvm
        _ZdlPvSt11align_val_t _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdlPvmSt11align_val_t
        _ZdaPv _ZdaPvRKSt9nothrow_t _ZdaPvm
        _ZdaPvSt11align_val_t _ZdaPvSt11align_val_tRKSt9nothrow_t _ZdaPvmSt11align_val_t;
}

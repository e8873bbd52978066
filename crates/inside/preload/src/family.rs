//! Hooks for the functions of malloc's family besides malloc and free. Each hook calls its real
//! function.

use std::ffi::{c_int, c_void};

use heapprof_engine::{CallSite, ENGINE};

use crate::hook::{hook, label};
use crate::real_functions::{ALIGNED_ALLOC, RealFunctions, fail, real};
use crate::{start, start_state};
use heapprof_providers::python::note_realloc;

/// Makes an allocation that the countdown selected, and records it.
#[inline(always)]
pub fn record_allocation(
    size: usize,
    frame: CallSite,
    make: impl FnOnce(&RealFunctions) -> *mut u8,
) -> *mut u8 {
    if !start_state::is_done() {
        // SAFETY: the frame's slot holds the hook's return address.
        start::at_first_allocation(unsafe { (frame.slot as *const *const c_void).read() });
    }
    ENGINE.events().allocate(size, frame, || make(real()))
}

/// Makes an allocation for a hook that has no assembly fast path, and records it if the countdown
/// selects it.
#[inline(always)]
fn allocate_counted(
    size: usize,
    slot: usize,
    bp: usize,
    make: impl FnOnce(&RealFunctions) -> *mut u8,
) -> *mut u8 {
    if ENGINE.events().charge(size) {
        record_allocation(size, CallSite { slot, bp }, make)
    } else {
        make(real())
    }
}

/// Records the free of a block, if its allocation was recorded. The caller frees the block
/// afterwards.
#[inline(always)]
pub fn release(address: *mut u8) {
    if !address.is_null() {
        ENGINE.events().release(address);
    }
}

hook!(calloc(n: usize, each: usize) -> *mut u8, "rdx", "rcx" => chosen_calloc);
unsafe extern "C" fn chosen_calloc(n: usize, each: usize, slot: usize, bp: usize) -> *mut u8 {
    // The real calloc refuses products that overflow.
    // SAFETY: calloc's contract, passed on.
    allocate_counted(n.saturating_mul(each), slot, bp, |real| unsafe {
        (real.calloc)(n, each)
    })
}

hook!(realloc(old: *mut u8, size: usize) -> *mut u8, "rdx", "rcx" => chosen_realloc);
unsafe extern "C" fn chosen_realloc(old: *mut u8, size: usize, slot: usize, bp: usize) -> *mut u8 {
    if old.is_null() {
        // SAFETY: realloc's contract, passed on. realloc of null is malloc, in the way that the
        // other allocator chooses.
        return allocate_counted(size, slot, bp, |real| unsafe { (real.realloc)(old, size) });
    }
    note_realloc(old);
    // SAFETY: realloc's contract, passed on.
    ENGINE
        .events()
        .reallocate(old, size, CallSite { slot, bp }, || unsafe {
            (real().realloc)(old, size)
        })
}

hook!(reallocarray(old: *mut u8, n: usize, each: usize) -> *mut u8, "rcx", "r8" => chosen_reallocarray);
unsafe extern "C" fn chosen_reallocarray(
    old: *mut u8,
    n: usize,
    each: usize,
    slot: usize,
    bp: usize,
) -> *mut u8 {
    match n.checked_mul(each) {
        // SAFETY: reallocarray's contract is realloc's.
        Some(size) => unsafe { chosen_realloc(old, size, slot, bp) },
        None => fail(libc::ENOMEM),
    }
}

hook!(memalign(align: usize, size: usize) -> *mut u8, "rdx", "rcx" => chosen_memalign);
unsafe extern "C" fn chosen_memalign(align: usize, size: usize, slot: usize, bp: usize) -> *mut u8 {
    // SAFETY: memalign's contract, passed on.
    allocate_counted(size, slot, bp, |real| unsafe {
        (real.memalign)(align, size)
    })
}

hook!(aligned_alloc(align: usize, size: usize) -> *mut u8, "rdx", "rcx" => chosen_aligned_alloc);
unsafe extern "C" fn chosen_aligned_alloc(
    align: usize,
    size: usize,
    slot: usize,
    bp: usize,
) -> *mut u8 {
    allocate_counted(size, slot, bp, |real| match real.aligned_alloc {
        // SAFETY: aligned_alloc's contract, passed on.
        Some(aligned_alloc) => unsafe { aligned_alloc(align, size) },
        // malloc is libc's, so aligned_alloc is, too.
        None => match ALIGNED_ALLOC.get() {
            // SAFETY: memalign's contract; older glibcs have one function for both.
            none if none.is_null() => unsafe { (real.memalign)(align, size) },
            // SAFETY: libc's own, as it is declared.
            libc => unsafe {
                type AlignedAllocFn = unsafe extern "C" fn(usize, usize) -> *mut u8;
                std::mem::transmute::<*const c_void, AlignedAllocFn>(libc)(align, size)
            },
        },
    })
}

hook!(posix_memalign(result: *mut *mut u8, align: usize, size: usize) -> c_int, "rcx", "r8" => chosen_posix_memalign);
unsafe extern "C" fn chosen_posix_memalign(
    result: *mut *mut u8,
    align: usize,
    size: usize,
    slot: usize,
    bp: usize,
) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let mut status = 0;
    let block = allocate_counted(size, slot, bp, |real| match real.posix_memalign {
        Some(posix_memalign) => {
            let mut block = std::ptr::null_mut();
            // SAFETY: posix_memalign's contract, passed on.
            status = unsafe { posix_memalign(&raw mut block, align, size) };
            if status == 0 {
                block
            } else {
                std::ptr::null_mut()
            }
        }
        // SAFETY: memalign takes any power of two. If it fails it sets errno, as glibc's
        // posix_memalign does too.
        None => unsafe {
            let block = (real.memalign)(align, size);
            if block.is_null() {
                status = libc::ENOMEM;
            }
            block
        },
    });
    if status == 0 {
        // SAFETY: the caller's pointer, by contract.
        unsafe { *result = block };
    }
    status
}

hook!(valloc(size: usize) -> *mut u8, "rsi", "rdx" => chosen_valloc);
unsafe extern "C" fn chosen_valloc(size: usize, slot: usize, bp: usize) -> *mut u8 {
    // SAFETY: valloc's contract, passed on.
    allocate_counted(size, slot, bp, |real| unsafe { (real.valloc)(size) })
}

hook!(pvalloc(size: usize) -> *mut u8, "rsi", "rdx" => chosen_pvalloc);
unsafe extern "C" fn chosen_pvalloc(size: usize, slot: usize, bp: usize) -> *mut u8 {
    // SAFETY: pvalloc's contract, passed on.
    allocate_counted(size, slot, bp, |real| unsafe { (real.pvalloc)(size) })
}

/// Defines hooks for the other names of free. The hooks ignore sizes and alignments, which are
/// hints.
macro_rules! frees {
    ($($name:ident($($hint:ident),*))*) => {
        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(address: *mut u8, $($hint: usize),*) {
                std::arch::naked_asm!(label!($name), "jmp {released}", released = sym release_and_free)
            }
        )*
    };
}
frees! {
    cfree()
    free_sized(_size)
    free_aligned_sized(_align, _size)
}

unsafe extern "C" fn release_and_free(address: *mut u8) {
    if ENGINE.events().may_hold(address as usize) {
        release(address);
    }
    // SAFETY: free's contract, passed on.
    unsafe { (real().free)(address) }
}

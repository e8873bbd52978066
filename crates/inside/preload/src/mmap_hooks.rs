//! Hooks for mmap and its family, which record mappings as allocations if the user requests it.
//! libc's own mappings do not call these hooks.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_engine::{ENGINE, is_inside_allocator, is_inside_engine};
use heapprof_platform::sys;

use crate::real_functions::HookedFunction;

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

/// Sets whether mappings are counted from now on.
pub fn enable(enabled: bool) {
    IS_ENABLED.store(enabled, Ordering::Relaxed);
}

/// Whether this thread's mappings are counted. What an allocator maps is its reserve, and its
/// blocks are counted instead.
fn is_counted() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
        && ENGINE.lifecycle().is_running()
        && !is_inside_engine()
        && !is_inside_allocator()
}

static MMAP: HookedFunction = HookedFunction::new(c"mmap");
static MMAP64: HookedFunction = HookedFunction::new(c"mmap64");
static MUNMAP: HookedFunction = HookedFunction::new(c"munmap");
static MREMAP: HookedFunction = HookedFunction::new(c"mremap");

/// Looks up the real functions behind this module's hooks. It is called at the library's start.
pub fn prepare() {
    for function in [&MMAP, &MMAP64, &MUNMAP, &MREMAP] {
        function.find();
    }
}

/// Calls the function behind a hook with the program's arguments. If another library defines the
/// function before libc does, its definition is called; otherwise the system call `n` is made, as
/// libc does. Returns the result in the kernel's form: a negative errno on failure.
unsafe fn call(behind: &HookedFunction, n: libc::c_long, args: [usize; 6]) -> isize {
    type MappingCallFn =
        unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> *mut c_void;
    // SAFETY: the caller gives the arguments of the function, which may take fewer than six. Only
    // the lower half of munmap's result counts.
    unsafe {
        let Some(other) = behind.interposed() else {
            return sys::call(n, args);
        };
        let [a, b, c, d, e, f] = args;
        let result = std::mem::transmute::<*const c_void, MappingCallFn>(other)(a, b, c, d, e, f);
        if result as usize as c_int == -1 {
            return -(*libc::__errno_location() as isize);
        }
        result as isize
    }
}

/// Converts the kernel's result to libc's convention: MAP_FAILED and errno on failure.
fn to_libc_result(result: isize) -> *mut c_void {
    if (-4095..0).contains(&result) {
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = -result as c_int };
        return libc::MAP_FAILED;
    }
    result as *mut c_void
}

/// Defines one of the names of mmap. Its arguments fill all six registers, so no register is left
/// for the call site. `EngineEvents::caller` finds the call site on the stack instead, which works
/// only if this library has a single frame there.
macro_rules! mmap {
    ($name:ident, $behind:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            len: usize,
            prot: c_int,
            flags: c_int,
            fd: c_int,
            offset: i64,
        ) -> *mut c_void {
            let (prot, flags, fd) = (prot as usize, flags as usize, fd as usize);
            let args = [at as usize, len, prot, flags, fd, offset as usize];
            // SAFETY: mmap's contract.
            let mapped = to_libc_result(unsafe { call(&$behind, libc::SYS_mmap, args) });
            if mapped != libc::MAP_FAILED && is_counted() {
                ENGINE
                    .events()
                    .map(mapped as usize, len, ENGINE.events().caller());
            }
            mapped
        }
    };
}
mmap!(mmap, MMAP);
mmap!(mmap64, MMAP64);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: munmap's contract.
    let kernel = || unsafe { call(&MUNMAP, libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) };
    to_libc_result(match is_counted() {
        true => count_unmapping(&MUNMAP, at as usize, len, kernel),
        false => kernel(),
    }) as isize as c_int
}

/// Makes an unmapping call, and records the end of the mappings. The map of regions is locked only
/// during the kernel's call. It is not locked while another library's function runs, because that
/// function may wait for a lock.
fn count_unmapping(
    behind: &HookedFunction,
    at: usize,
    len: usize,
    kernel: impl FnOnce() -> isize,
) -> isize {
    if behind.interposed().is_none() {
        return ENGINE.events().unmap(at, len, kernel);
    }
    let said = kernel();
    if said >= 0 {
        ENGINE.events().unmap(at, len, || 0);
    }
    said
}

/// Hook for mremap. The fifth argument, the new address, is variadic in C. It is passed in the
/// fifth register all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let args = [at as usize, old, new, flags as usize, to as usize, 0];
    // SAFETY: mremap's contract.
    let kernel = || unsafe { call(&MREMAP, libc::SYS_mremap, args) };
    if !is_counted() {
        return to_libc_result(kernel());
    }
    // Memory that is moved away without being unmapped is still there.
    let gone = if flags & libc::MREMAP_DONTUNMAP == 0 {
        old
    } else {
        0
    };
    let moved = to_libc_result(count_unmapping(&MREMAP, at as usize, gone, kernel));
    if moved != libc::MAP_FAILED {
        ENGINE
            .events()
            .map(moved as usize, new, ENGINE.events().caller());
    }
    moved
}

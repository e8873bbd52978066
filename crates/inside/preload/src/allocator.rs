//! Asks glibc's allocator how much memory it got from the kernel, and how much of this memory is
//! free.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use heapprof_engine::{AllocatorUsage, ENGINE};

use crate::real_functions;

/// Result of glibc's `mallinfo2`: `struct mallinfo2` as declared in malloc.h.
#[repr(C)]
struct MallInfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// Address of glibc's function `mallinfo2`; null before glibc 2.33, which introduced it.
static MALLINFO2: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Looks up `mallinfo2`.
pub fn prepare() {
    let found = real_functions::next(c"mallinfo2").filter(|&found| real_functions::is_libc(found));
    MALLINFO2.store(found.unwrap_or_default().cast_mut(), Ordering::Release);
    ENGINE.dumps().set_allocator_query(query_allocator);
}

/// Returns how much memory glibc's allocator has; `None` if the program uses another allocator, or
/// if this glibc lacks `mallinfo2`.
fn query_allocator() -> Option<AllocatorUsage> {
    let ask = MALLINFO2.load(Ordering::Acquire).cast_const();
    if ask.is_null() || !real_functions::is_libc(real_functions::real().malloc as *const c_void) {
        return None;
    }
    type MallInfo2Fn = unsafe extern "C" fn() -> MallInfo2;
    // SAFETY: glibc declares the function so. It takes the allocator's locks, which no thread keeps
    // for long: this thread is in no handler.
    let info = unsafe { std::mem::transmute::<*const c_void, MallInfo2Fn>(ask)() };
    Some(AllocatorUsage {
        mapped: info.arena as u64 + info.hblkhd as u64,
        free: info.fordblks as u64,
    })
}

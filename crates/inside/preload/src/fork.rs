//! Hook for registering fork handlers of the program's libraries: they are registered behind
//! heapprof's handlers.

use std::ffi::{c_int, c_void};

use crate::atfork;
use crate::start;

/// Registers a library's fork handlers after heapprof's. libc calls handlers in reverse order
/// before a fork, so heapprof's run last: when the library's handlers wait for the library's locks,
/// heapprof's locks are not taken yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    prepare: *const c_void,
    parent: *const c_void,
    child: *const c_void,
    dso: *mut c_void,
) -> c_int {
    start::begin_early();
    // SAFETY: the arguments are passed on as they came.
    unsafe { atfork::register_with_libc(prepare, parent, child, dso) }
}

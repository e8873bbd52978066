//! Hook of the function by which libraries register fork handlers. The libraries' handlers are
//! registered after heapprof's handlers.

use std::ffi::{c_int, c_void};

use crate::atfork;
use crate::start;

/// Registers a library's fork handlers after heapprof's handlers. Before a fork, libc calls
/// handlers in reverse order, so heapprof's handlers run last. So heapprof's locks are not taken
/// yet while a library's handlers wait for the library's locks.
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

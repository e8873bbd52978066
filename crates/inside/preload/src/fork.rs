//! The hook for fork handlers of the program's libraries: it registers them behind ours.

use std::ffi::{c_int, c_void};

use crate::atfork;
use crate::start;

/// Registers a library's fork handlers. Ours come first in the list, so before a fork they run
/// last: the library's handlers wait for the library's locks while ours are not taken yet.
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

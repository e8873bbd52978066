//! Detects whether the library was loaded at the program's start or later, into a running program.

use std::ffi::{CStr, c_void};

use heapprof_abi::letter::LIBRARY_PATH_PREFIX;

/// Whether an attaching process loaded the library. If so, the library's file has the name that the
/// attaching process chose, and the library does nothing before it reads the letter.
pub fn is_loaded_so() -> bool {
    // SAFETY: zeros are a valid answer, and the function fills it in.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let own = is_loaded_so as *const c_void;
    // SAFETY: the function reads the address.
    let is_known = unsafe { libc::dladdr(own, &raw mut found) } != 0;
    if !is_known || found.dli_fname.is_null() {
        return false;
    }
    // SAFETY: the loader's name of the object, which stays.
    let name = unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes();
    name.starts_with(LIBRARY_PATH_PREFIX.as_bytes())
}

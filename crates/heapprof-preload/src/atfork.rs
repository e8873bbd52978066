//! libc's list of what is called around a fork.

use std::ffi::{c_int, c_void};

use crate::real::Behind;

static REGISTER_ATFORK: Behind = Behind::new(c"__register_atfork");

type Handler = unsafe extern "C" fn();

/// Registers handlers of ours for good. libc takes those of a library away when it is closed, and
/// of all at the program's end, when a thread may be in between: it would not come to the second
/// handler, which gives back what the first one took.
pub fn register(prepare: Handler, parent: Handler, child: Handler) {
    let [prepare, parent, child] = [prepare, parent, child].map(|handler| handler as *const c_void);
    // SAFETY: functions of this library, which is never unloaded.
    unsafe { registered(prepare, parent, child, std::ptr::null_mut()) };
}

/// libc's own function.
///
/// # Safety
/// As of that: handlers or null, and the library that they are of.
pub unsafe fn registered(
    prepare: *const c_void,
    parent: *const c_void,
    child: *const c_void,
    dso: *mut c_void,
) -> c_int {
    type RegisterAtfork =
        unsafe extern "C" fn(*const c_void, *const c_void, *const c_void, *mut c_void) -> c_int;
    // SAFETY: what has this name in libc has this type; the rest is the caller's contract.
    unsafe {
        let real = REGISTER_ATFORK.or_missing();
        std::mem::transmute::<*const c_void, RegisterAtfork>(real)(prepare, parent, child, dso)
    }
}

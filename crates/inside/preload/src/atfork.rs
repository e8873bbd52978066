//! Registers functions that libc calls before and after a fork.

use std::ffi::{c_int, c_void};

use heapprof_platform::weak;

use crate::real_functions::HookedFunction;

static REGISTER_ATFORK: HookedFunction = HookedFunction::new(c"__register_atfork");
/// The same function in musl, which never removes a handler.
static PTHREAD_ATFORK: HookedFunction = HookedFunction::new(c"pthread_atfork");

type AtForkHandler = unsafe extern "C" fn();

/// Registers fork handlers that belong to no library, so that they are never removed. libc removes
/// a library's handlers when the library is closed, and the handlers of all libraries when the
/// program ends. If a thread forked at that moment, the first handler would take locks, and libc
/// would not call the handler that releases them.
pub fn register(prepare: AtForkHandler, parent: AtForkHandler, child: AtForkHandler) {
    let [prepare, parent, child] = [prepare, parent, child].map(|handler| handler as *const c_void);
    // SAFETY: functions of this library, which is never unloaded.
    unsafe { register_with_libc(prepare, parent, child, std::ptr::null_mut()) };
}

/// Registers a handler that is called only in forked children. It belongs to no library, so it is
/// never removed.
pub fn register_child(child: AtForkHandler) {
    let none = std::ptr::null();
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { register_with_libc(none, none, child as *const c_void, std::ptr::null_mut()) };
}

/// Calls libc's own `__register_atfork`, or else `pthread_atfork`.
///
/// # Safety
/// The handlers are valid or null, and `dso` is the library that they belong to.
pub unsafe fn register_with_libc(
    prepare: *const c_void,
    parent: *const c_void,
    child: *const c_void,
    dso: *mut c_void,
) -> c_int {
    type RegisterAtForkFn =
        unsafe extern "C" fn(*const c_void, *const c_void, *const c_void, *mut c_void) -> c_int;
    let real = match weak::is_glibc() {
        true => REGISTER_ATFORK.or_missing(),
        false => PTHREAD_ATFORK.or_missing(),
    };
    // SAFETY: libc's function has this type, or lacks the last argument, which it then ignores; the
    // rest is the caller's contract.
    unsafe {
        std::mem::transmute::<*const c_void, RegisterAtForkFn>(real)(prepare, parent, child, dso)
    }
}

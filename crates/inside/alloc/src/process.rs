//! Handlers for the process's forks and its end.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_engine::{DumpReason, ENGINE};

/// Whether a dump at exit was requested.
static DUMPS_AT_EXIT: AtomicBool = AtomicBool::new(false);

/// Registers the fork handlers. Later calls do nothing, because registered handlers are never
/// removed.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !register_for_good() {
            // SAFETY: these are functions of the program, or of a library. When a library is
            // closed, its handlers go with it.
            unsafe {
                libc::pthread_atfork(
                    Some(before_fork),
                    Some(after_fork_in_parent),
                    Some(after_fork_in_child),
                );
            }
        }
    });
}

/// Registers fork handlers that belong to no file, so that they are never removed. Returns false if
/// that is not possible.
///
/// glibc removes a file's handlers when it runs the file's destructors. For the program's own file,
/// this happens when the program ends. If a thread forks at that moment, the first handler has
/// taken locks, but glibc would not call the second handler, which releases them.
#[cfg(target_env = "gnu")]
fn register_for_good() -> bool {
    type RegisteredForkHandler = Option<unsafe extern "C" fn()>;
    unsafe extern "C" {
        fn __register_atfork(
            prepare: RegisteredForkHandler,
            parent: RegisteredForkHandler,
            child: RegisteredForkHandler,
            file: *mut libc::c_void,
        ) -> libc::c_int;
    }
    // SAFETY: the call only reads a number.
    let program = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    let own = ENGINE
        .lifecycle()
        .object_at(before_fork as *const () as usize);
    // SAFETY: they are functions of the program, which is never unloaded.
    own.is_some()
        && own == ENGINE.lifecycle().object_at(program)
        && unsafe {
            __register_atfork(
                Some(before_fork),
                Some(after_fork_in_parent),
                Some(after_fork_in_child),
                std::ptr::null_mut(),
            ) == 0
        }
}

#[cfg(not(target_env = "gnu"))]
fn register_for_good() -> bool {
    false
}

/// Registers `end` to be called when the process exits.
pub(crate) fn call_at_exit(end: extern "C" fn()) {
    // SAFETY: it is a function of this crate, which stays as long as the program or library does.
    unsafe {
        libc::atexit(end);
    }
}

/// Requests a dump when the process exits. Forked children make a dump, too.
pub(crate) fn dump_at_exit() {
    if DUMPS_AT_EXIT.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: it is a function of this crate, which stays as long as the program or library does.
    unsafe {
        libc::atexit(make_last_dump);
    }
}

extern "C" fn make_last_dump() {
    if ENGINE.lifecycle().is_running() {
        // At the exit there is no caller left to report an error to.
        ENGINE.dumps().dump_at_end(DumpReason::Exit);
    }
}

unsafe extern "C" fn before_fork() {
    ENGINE.forks().before();
}

unsafe extern "C" fn after_fork_in_parent() {
    ENGINE.forks().in_parent();
}

unsafe extern "C" fn after_fork_in_child() {
    ENGINE.forks().in_child();
}

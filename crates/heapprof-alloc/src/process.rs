//! What the process does around a recording: it forks, and it ends.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_collect::{self as collect, Reason};

/// Whether the last dump was asked for.
static AT_EXIT: AtomicBool = AtomicBool::new(false);

/// Registers for forks. Once, for what is registered stays.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !register_for_good() {
            // SAFETY: functions of the program, or of a library that takes them with it when it is
            // closed.
            unsafe {
                libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
            }
        }
    });
}

/// glibc takes the handlers of each file away when it runs that file's destructors, the program's
/// at its end. A thread that forks just then would not come to the second one, which gives back
/// what the first one took. So the program's own are registered as nobody's.
#[cfg(target_env = "gnu")]
fn register_for_good() -> bool {
    type Handler = Option<unsafe extern "C" fn()>;
    unsafe extern "C" {
        fn __register_atfork(
            prepare: Handler,
            parent: Handler,
            child: Handler,
            file: *mut libc::c_void,
        ) -> libc::c_int;
    }
    // SAFETY: it asks for a number.
    let program = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    let own = collect::object_at(before_fork as *const () as usize);
    // SAFETY: functions of the program, which stays.
    own.is_some()
        && own == collect::object_at(program)
        && unsafe {
            __register_atfork(
                Some(before_fork),
                Some(in_parent),
                Some(in_child),
                std::ptr::null_mut(),
            ) == 0
        }
}

#[cfg(not(target_env = "gnu"))]
fn register_for_good() -> bool {
    false
}

/// Asks for a dump when the process exits, forked children's included.
pub(crate) fn dump_at_exit() {
    if AT_EXIT.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: as above.
    unsafe {
        libc::atexit(last_dump);
    }
}

extern "C" fn last_dump() {
    if collect::is_running() {
        // Nobody is left to be told of an error.
        collect::dump_at_end(Reason::Exit);
    }
}

unsafe extern "C" fn before_fork() {
    collect::before_fork();
}

unsafe extern "C" fn in_parent() {
    collect::after_fork_in_parent();
}

unsafe extern "C" fn in_child() {
    collect::after_fork_in_child();
}

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
        // SAFETY: functions of the program, or of a library of its that must stay, as its allocator does.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
        }
    });
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
        let _ = collect::dump(Reason::Exit);
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

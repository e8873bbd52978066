//! Hooks on functions after which the ledger can't be moved to its file any more. A move needs a
//! process with only one thread, a free file descriptor, and a way to reach the ledger keeper. The
//! hooks move the ledger before they call the function.
//!
//! setsid has such a hook because the ledger keeper must know the process that begins a session: by
//! this process, it recognizes the other processes of the session.

use heapprof_engine::ENGINE;

use crate::hook::announced;
use crate::other_root;

/// Moves the ledger to its file. Runs before each of the hooked functions.
unsafe extern "C" fn before_call() {
    ENGINE.lifecycle().move_ledger_to_file();
}

/// Runs before chroot.
unsafe extern "C" fn before_chroot() {
    ENGINE.lifecycle().move_ledger_to_file();
    other_root::prepare_to_leave();
}

/// Looks up the real functions behind this module's hooks. It is called at the library's start.
pub fn prepare() {
    for function in BEHIND.iter().chain(&CHROOT) {
        function.find();
    }
}

announced! { before_chroot, CHROOT, PlaceOfChroot: chroot }
announced! {
    before_call, BEHIND, LedgerCall:
    pthread_create, thrd_create, setrlimit, setrlimit64, prlimit, prlimit64, mount, setsid,
    // libc begins a thread of its own for these.
    timer_create, mq_notify, getaddrinfo_a, aio_read, aio_read64, aio_write, aio_write64, aio_fsync,
    aio_fsync64, lio_listio, lio_listio64,
}

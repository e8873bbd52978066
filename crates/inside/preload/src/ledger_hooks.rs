//! Hooks on functions after which a ledger that waits for its file could not be moved to it any
//! more. The ledger can be moved only while the process has one thread. The ledger keeper must be
//! within reach then, and a file descriptor must be free. The leader of a session must be known,
//! because other processes are known by it.

use heapprof_engine::ENGINE;

use crate::hook::announced;

/// Moves the ledger to its file before each of these functions.
unsafe extern "C" fn before_call() {
    ENGINE.lifecycle().move_ledger_to_file();
}

/// Looks up the real functions behind our hooks. It is called at the start.
pub fn prepare() {
    for function in &BEHIND {
        function.find();
    }
}

announced! {
    before_call, BEHIND, LedgerCall:
    pthread_create, thrd_create, setrlimit, setrlimit64, prlimit, prlimit64, chroot, mount, setsid,
    // libc begins a thread of its own for these.
    timer_create, mq_notify, getaddrinfo_a, aio_read, aio_read64, aio_write, aio_write64, aio_fsync,
    aio_fsync64, lio_listio, lio_listio64,
}

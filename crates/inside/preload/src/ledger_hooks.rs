//! Functions after which books that wait for their file could not have it any more: the books can
//! be moved only while the process has one thread, and whoever takes the file is to be reached,
//! with a descriptor that is free. The leader of a session is to be known, because others are known
//! by it.

use heapprof_engine::ENGINE;

use crate::hook::announced;

/// Called before each of these functions.
unsafe extern "C" fn before_call() {
    ENGINE.lifecycle().move_ledger_to_file();
}

/// Looks up what stands behind our functions. It is called at the start.
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

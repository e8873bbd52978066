//! Functions after which books that wait for their file could not have it any more: the books can
//! be moved only while the process has one thread, and whoever takes the file is to be reached,
//! with a descriptor that is free.

use heapprof_collect::ENGINE;

use crate::hook::announced;

/// Called before each of these functions.
unsafe extern "C" fn before() {
    ENGINE.lifecycle().keep_books();
}

/// Looks up what stands behind our functions. It is called at the start.
pub fn prepare() {
    for function in &BEHIND {
        function.find();
    }
}

announced! {
    before, BEHIND, Place:
    pthread_create, thrd_create, setrlimit, setrlimit64, prlimit, prlimit64, chroot, mount,
}

//! Functions that begin a thread. Books that wait for their file can be moved only while the process
//! has one thread, so they do not wait any longer then.

use heapprof_collect::ENGINE;

use crate::hook::announced;

/// Called before a thread begins.
unsafe extern "C" fn before_thread() {
    ENGINE.lifecycle().keep_books();
}

/// Looks up what stands behind our functions. It is called at the start.
pub fn prepare() {
    for function in &BEHIND {
        function.find();
    }
}

announced! { before_thread, BEHIND, Place: pthread_create, thrd_create }

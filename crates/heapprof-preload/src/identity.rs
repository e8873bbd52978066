//! Functions that act on all threads of a process, or only while it has one: new identities and
//! namespaces.
//!
//! libc gives each thread the new identity, and ends the program if one thread may not have it. The
//! kernel denies some namespaces to a process with two threads. So our own thread ends before.

use heapprof_collect::ENGINE;

use crate::hook::announced;

/// Called before any of these functions.
unsafe extern "C" fn before() {
    ENGINE.lifecycle().end_clock();
}

announced! {
    before, BEHIND, Place:
    setuid, setgid, seteuid, setegid, setreuid, setregid, setresuid, setresgid, setgroups,
    initgroups, unshare, setns,
}

/// Looks up what stands behind our functions. It is called at the start.
pub fn prepare() {
    for function in &BEHIND {
        function.find();
    }
}

//! What a process does to all of its threads, or only while it has one: new identities and namespaces.
//!
//! libc gives each thread the new identity, and ends the program where one thread may not have it; the kernel denies some
//! namespaces to a process with two. So our own thread is gone before.

use std::ffi::c_void;

use heapprof_collect as collect;

use crate::hook::announced;
use crate::real::Behind;

/// Before any of them.
unsafe extern "C" fn before() {
    collect::end_clock();
}

static BEHIND: [Behind; 12] = [
    Behind::new(c"setuid"),
    Behind::new(c"setgid"),
    Behind::new(c"seteuid"),
    Behind::new(c"setegid"),
    Behind::new(c"setreuid"),
    Behind::new(c"setregid"),
    Behind::new(c"setresuid"),
    Behind::new(c"setresgid"),
    Behind::new(c"setgroups"),
    Behind::new(c"initgroups"),
    Behind::new(c"unshare"),
    Behind::new(c"setns"),
];

/// Looks up what stands behind ours. At the start.
pub fn prepare() {
    for function in &BEHIND {
        function.find();
    }
}

unsafe extern "C" fn real(index: usize) -> *const c_void {
    BEHIND[index].or_missing()
}

announced!(setuid, 0, before, real);
announced!(setgid, 1, before, real);
announced!(seteuid, 2, before, real);
announced!(setegid, 3, before, real);
announced!(setreuid, 4, before, real);
announced!(setregid, 5, before, real);
announced!(setresuid, 6, before, real);
announced!(setresgid, 7, before, real);
announced!(setgroups, 8, before, real);
announced!(initgroups, 9, before, real);
announced!(unshare, 10, before, real);
announced!(setns, 11, before, real);

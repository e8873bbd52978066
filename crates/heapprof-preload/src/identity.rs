//! Functions that act on all threads of a process, or only while it has one: new identities and
//! namespaces.
//!
//! libc gives each thread the new identity, and ends the program if one thread may not have it. The
//! kernel denies some namespaces to a process with two threads. So our own thread ends before.

use heapprof_collect as collect;

use crate::hook::announced;
use crate::real::Behind;

/// Called before any of these functions.
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

/// Looks up what stands behind our functions. It is called at the start.
pub fn prepare() {
    for function in &BEHIND {
        function.find();
    }
}

announced!(setuid, before, BEHIND, 0);
announced!(setgid, before, BEHIND, 1);
announced!(seteuid, before, BEHIND, 2);
announced!(setegid, before, BEHIND, 3);
announced!(setreuid, before, BEHIND, 4);
announced!(setregid, before, BEHIND, 5);
announced!(setresuid, before, BEHIND, 6);
announced!(setresgid, before, BEHIND, 7);
announced!(setgroups, before, BEHIND, 8);
announced!(initgroups, before, BEHIND, 9);
announced!(unshare, before, BEHIND, 10);
announced!(setns, before, BEHIND, 11);

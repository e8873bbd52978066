//! Whether a filter of system calls that the program is about to install would kill it for a dump: a child tries.

use std::ffi::CStr;

use crate::sys::call;

/// How long the child may take, in naps of a millisecond.
const PATIENCE: u32 = 2_000;

/// Installs a filter in a child of this process by the system call `n` with `args`, and tries what dumps and events call.
/// True where the child lived, or the filter can't be installed at all.
///
/// The child is a copy, runs nothing of the program's, and sends it no signal.
pub fn survives(n: libc::c_long, args: [usize; 6]) -> bool {
    if makes_first_process() {
        return false;
    }
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: a new anonymous mapping.
    let page = unsafe { call(libc::SYS_mmap, [0, 4096, prot, shared, usize::MAX, 0]) };
    if page < 0 {
        return false;
    }
    let lived = page as *mut u32;
    // SAFETY: without flags a copy of this process, of this thread alone, that ends without a signal to its parent.
    let child = unsafe { call(libc::SYS_clone, [0; 6]) };
    if child == 0 {
        // SAFETY: the child's own copy of everything; the page is shared with the parent, which waits.
        unsafe {
            // It dies without a core: it is no crash of the program's.
            call(
                libc::SYS_prctl,
                [libc::PR_SET_DUMPABLE as usize, 0, 0, 0, 0, 0],
            );
            if call(n, args) < 0 || try_all(page as usize) {
                lived.write_volatile(1);
            }
            loop {
                call(libc::SYS_exit_group, [0; 6]);
                call(libc::SYS_exit, [0; 6]);
            }
        }
    }
    let ended = child > 0 && wait(child as usize);
    // SAFETY: the page is mapped, and the child gone or killed.
    unsafe {
        let lived = lived.read_volatile() == 1;
        call(libc::SYS_munmap, [page as usize, 4096, 0, 0, 0, 0]);
        ended && lived
    }
}

/// Whether the next child is the first process of a namespace of its own, which ends with that process.
fn makes_first_process() -> bool {
    let leads_to = |link: &CStr| {
        let mut text = [0u8; 64];
        let at = libc::AT_FDCWD as usize;
        let (link, to) = (link.as_ptr() as usize, text.as_mut_ptr() as usize);
        // SAFETY: the path ends in a zero byte, and the kernel writes no more than there is room for.
        unsafe { call(libc::SYS_readlinkat, [at, link, to, text.len(), 0, 0]) };
        text
    };
    leads_to(c"/proc/thread-self/ns/pid") != leads_to(c"/proc/thread-self/ns/pid_for_children")
}

/// Makes each call once, with arguments like those of a dump's that do nothing here.
unsafe fn try_all(page: usize) -> bool {
    let here = libc::AT_FDCWD as usize;
    let none = c"/nonexistent/heapprof".as_ptr() as usize;
    let null = c"/dev/null".as_ptr() as usize;
    let maps = c"/proc/thread-self/maps".as_ptr() as usize;
    let to_write =
        (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_CLOEXEC)
            as usize;
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // A child's copy of the stack: what the calls fill lies behind the flag in the page.
    let buffer = page + 64;
    // SAFETY: valid arguments all; what they open, map and block is the child's, which ends next.
    unsafe {
        let own = call(libc::SYS_getpid, [0; 6]) as usize;
        call(libc::SYS_getppid, [0; 6]);
        call(libc::SYS_gettid, [0; 6]);
        call(libc::SYS_rt_sigprocmask, [0, 0, buffer, 8, 0, 0]);
        let read = call(
            libc::SYS_openat,
            [here, maps, libc::O_CLOEXEC as usize, 0, 0, 0],
        );
        if read >= 0 {
            call(libc::SYS_read, [read as usize, buffer, 64, 0, 0, 0]);
            call(libc::SYS_close, [read as usize, 0, 0, 0, 0, 0]);
        }
        let written = call(libc::SYS_openat, [here, null, to_write, 0o666, 0, 0]);
        if written >= 0 {
            call(libc::SYS_write, [written as usize, buffer, 1, 0, 0, 0]);
            call(libc::SYS_close, [written as usize, 0, 0, 0, 0, 0]);
        }
        call(libc::SYS_readlinkat, [here, none, buffer, 64, 0, 0]);
        call(libc::SYS_renameat2, [here, none, here, none, 0, 0]);
        call(libc::SYS_unlinkat, [here, none, 0, 0, 0, 0]);
        let mapped = call(libc::SYS_mmap, [0, 8192, prot, private, usize::MAX, 0]);
        if mapped > 0 {
            let mapped = mapped as usize;
            call(
                libc::SYS_madvise,
                [mapped, 4096, libc::MADV_DONTNEED as usize, 0, 0, 0],
            );
            call(libc::SYS_mremap, [mapped, 8192, 4096, 0, 0, 0]);
            call(libc::SYS_munmap, [mapped, 4096, 0, 0, 0, 0]);
        }
        let (local, remote) = ([buffer, 8], [page, 8]);
        let (local, remote) = (local.as_ptr() as usize, remote.as_ptr() as usize);
        call(libc::SYS_process_vm_readv, [own, local, 1, remote, 1, 0]);
        const RLIMIT_STACK: usize = libc::RLIMIT_STACK as usize;
        call(libc::SYS_prlimit64, [0, RLIMIT_STACK, 0, buffer, 0, 0]);
        call(libc::SYS_mincore, [page, 4096, buffer, 0, 0, 0]);
        let (no_signal, now) = ([0u64], [0u64, 0]);
        let (no_signal, now) = (no_signal.as_ptr() as usize, now.as_ptr() as usize);
        call(libc::SYS_rt_sigtimedwait, [no_signal, 0, now, 8, 0, 0]);
        call(
            libc::SYS_rt_sigaction,
            [libc::SIGTERM as usize, 0, buffer, 8, 0, 0],
        );
        call(libc::SYS_tgkill, [own, own, 0, 0, 0, 0]);
        const WAKE: usize = 1 | 128;
        call(libc::SYS_futex, [buffer, WAKE, 1, 0, 0, 0]);
        const PR_SET_VMA: usize = 0x5356_4d41;
        call(libc::SYS_prctl, [PR_SET_VMA, 0, page, 0, 0, 0]);
        const PRIVATE_EXPEDITED: usize = 1 << 3;
        call(libc::SYS_membarrier, [PRIVATE_EXPEDITED, 0, 0, 0, 0, 0]);
        let time = [0u64, 1];
        call(libc::SYS_nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]);
        call(
            libc::SYS_clock_gettime,
            [libc::CLOCK_REALTIME as usize, buffer, 0, 0, 0, 0],
        );
        call(libc::SYS_sched_yield, [0; 6]);
    }
    true
}

/// Waits for the child to end; kills it when that takes too long (a filter may hand calls to somebody who does not answer).
fn wait(child: usize) -> bool {
    const ANY_KIND: usize = 0x4000_0000; // __WALL
    let reap = |options: usize| {
        // SAFETY: no status is asked for.
        unsafe { call(libc::SYS_wait4, [child, 0, options | ANY_KIND, 0, 0, 0]) }
    };
    for _ in 0..PATIENCE {
        match reap(libc::WNOHANG as usize) {
            0 => {}
            // Ended; or the program's own wait has seen it.
            _ => return true,
        }
        let time = [0u64, 1_000_000];
        // SAFETY: the time is valid.
        unsafe { call(libc::SYS_nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
    // SAFETY: a child of our own that nobody else waits for.
    unsafe { call(libc::SYS_kill, [child, libc::SIGKILL as usize, 0, 0, 0, 0]) };
    reap(0);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Strict mode lets nothing but read, write and exit be; a call that fails changes nothing.
    #[test]
    fn strict_mode_is_not_survived() {
        const STRICT: usize = 1;
        let set = |mode| {
            let args = [libc::PR_SET_SECCOMP as usize, mode, 0, 0, 0, 0];
            survives(libc::SYS_prctl, args)
        };
        assert!(!set(STRICT));
        assert!(set(77));
        assert!(survives(libc::SYS_getpid, [0; 6]));
    }
}

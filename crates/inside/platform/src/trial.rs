//! Tries, in a child process, a filter of system calls that the program is about to install. The
//! child shows whether the filter would kill the program at a dump.

use std::sync::atomic::AtomicU32;

use crate::sys::{self, EngineFile, PAGE_SIZE, call};

/// Longest time that the child may take, in naps of a millisecond.
const CHILD_TIMEOUT: u32 = 2_000;

/// Whether a process survives a filter of system calls, which the system call `n` installs with
/// `args`. A child of this process installs the filter, and makes the system calls of dumps, of
/// events, and of an inspection of an executable. The result is also true if the filter can't be
/// installed at all.
pub fn survives(n: libc::c_long, args: [usize; 6]) -> bool {
    lives_through(|| {
        // SAFETY: the child has its own copy of everything, and only it gets the filter.
        if unsafe { call(n, args) } >= 0 {
            try_all();
        }
    })
}

/// Whether this process, with its present filters, survives the system calls that keep the ledger
/// in a file. The result is also true if a filter only denies these calls.
pub fn may_share_ledger() -> bool {
    lives_through(|| {
        let Ok(file) = sys::memory_file(2 * PAGE_SIZE) else {
            return;
        };
        let at = sys::map_file(&file, 0, PAGE_SIZE);
        if !at.is_null() {
            let behind = sys::map_behind(at, PAGE_SIZE);
            if !behind.is_null() {
                // SAFETY: both are pages of this child's own.
                unsafe { sys::move_over(behind, at, PAGE_SIZE) };
            }
        }
        let _ = sys::hand_over(&[&file], c"/nonexistent/heapprof", b"");
        sys::try_to_send(&file);
    })
}

/// Runs `work` in a child of this process. Returns whether the child lived until `work` was done.
///
/// The child is a copy of this process. It runs none of the program's code, and sends the program
/// no signal.
fn lives_through(work: impl FnOnce()) -> bool {
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
    // SAFETY: without flags, this makes a copy of this process that has only this thread. The copy
    // ends without a signal to its parent.
    let child = unsafe { call(libc::SYS_clone, [0; 6]) };
    if child == 0 {
        // SAFETY: the child has its own copy of everything. The page is shared with the parent,
        // which waits.
        unsafe {
            // The child dies without a core, because its death is no crash of the program.
            call(
                libc::SYS_prctl,
                [libc::PR_SET_DUMPABLE as usize, 0, 0, 0, 0, 0],
            );
            work();
            lived.write_volatile(1);
            loop {
                call(libc::SYS_exit_group, [0; 6]);
                call(libc::SYS_exit, [0; 6]);
            }
        }
    }
    let ended = child > 0 && wait_for_end(child as usize);
    // SAFETY: the page is mapped, and the child has ended or was killed.
    unsafe {
        let lived = lived.read_volatile() == 1;
        call(libc::SYS_munmap, [page as usize, 4096, 0, 0, 0, 0]);
        ended && lived
    }
}

/// Whether the next child would be the first process of a new namespace of process ids. Such a
/// namespace ends with its first process.
pub fn makes_first_process() -> bool {
    let (mut own, mut children) = ([0; 64], [0; 64]);
    sys::read_link(c"/proc/thread-self/ns/pid", &mut own)
        != sys::read_link(c"/proc/thread-self/ns/pid_for_children", &mut children)
}

/// Makes the system calls of dumps and events in the child, through the functions that dumps and
/// events call. The arguments are chosen so that nothing changes outside the child, which ends
/// next.
fn try_all() {
    let none = c"/nonexistent/heapprof";
    let mut buffer = [0; 64];
    let place = buffer.as_mut_ptr() as usize;
    let own = sys::process_id() as usize;
    sys::parent_id();
    sys::thread_id();
    sys::thread_name();
    sys::restore_signals(sys::block_signals());
    sys::take_back_signal(libc::EPIPE);
    if let Ok(file) = EngineFile::open(c"/proc/thread-self/maps", libc::O_RDONLY, 0) {
        file.read(&mut buffer);
        file.read_at(&mut buffer, 0);
    }
    let to_write = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_NOFOLLOW;
    if let Ok(file) = EngineFile::open(c"/dev/null", to_write, 0o666) {
        let _ = file.write_all(b"x");
        file.has_room(&mut sys::WaitTimeout::new());
        file.stat();
    }
    sys::read_link(none, &mut buffer);
    sys::is_executable(none);
    sys::working_folder(&mut buffer);
    sys::effective_user();
    if let Ok(folder) = EngineFile::open(c"/", libc::O_PATH | libc::O_DIRECTORY, 0) {
        let none = c"nonexistent/heapprof";
        sys::stat_in(&folder, none, false);
        let _ = sys::rename_in(&folder, none, none);
        sys::unlink_in(&folder, none);
        let _ = sys::make_folder_in(&folder, none);
        sys::set_mode_in(&folder, none, 0);
    }
    let mapped = sys::map(8192);
    if !mapped.is_null() {
        sys::resident(mapped, 8192);
        // SAFETY: no other code uses the mapping.
        unsafe {
            sys::discard(mapped, 4096);
            let smaller = sys::remap(mapped, 8192, 4096);
            sys::unmap(smaller, 4096);
        }
    }
    sys::read_memory(place, &mut [0; 8]);
    let word = AtomicU32::new(0);
    sys::futex_wait(&word, 1);
    sys::futex_wake(&word);
    sys::barrier();
    sys::yield_now();
    sys::nap();
    // SAFETY: the arguments are valid; the limit, the action and the time are only read. libc may
    // read the clock without the kernel.
    unsafe {
        const RLIMIT_STACK: usize = libc::RLIMIT_STACK as usize;
        call(libc::SYS_prlimit64, [0, RLIMIT_STACK, 0, place, 0, 0]);
        let action = [libc::SIGTERM as usize, 0, place, 8, 0, 0];
        call(libc::SYS_rt_sigaction, action);
        call(libc::SYS_tgkill, [own, own, 0, 0, 0, 0]);
        // This file descriptor does not exist.
        call(libc::SYS_fchmod, [usize::MAX, 0o600, 0, 0, 0, 0]);
        const REALTIME: usize = libc::CLOCK_REALTIME as usize;
        call(libc::SYS_clock_gettime, [REALTIME, place, 0, 0, 0, 0]);
    }
}

/// Waits for the child to end. Kills it if that takes too long, because a filter may pass calls to
/// a process that does not answer. Returns whether the child ended in time.
fn wait_for_end(child: usize) -> bool {
    for _ in 0..CHILD_TIMEOUT {
        // The child has ended, or the program's own wait has seen its end.
        if sys::has_ended(child) {
            return true;
        }
        sys::sleep(1_000_000);
    }
    // SAFETY: a child of the engine for which no other code waits.
    unsafe { call(libc::SYS_kill, [child, libc::SIGKILL as usize, 0, 0, 0, 0]) };
    sys::reap(child);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a process does not survive strict mode, which allows only read, write and exit. A
    /// call that fails to install a filter changes nothing.
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

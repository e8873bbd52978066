//! Threads of programs of musl, whose loader and C library are one file without unwinding tables.
//!
//! So the calls that such a thread is in can't be found. But neither musl nor an allocator calls a
//! function of the program while it has a lock that loading needs. A thread can be diverted that
//!
//! * runs other code than theirs, or waits in a system call that musl does not make with such a
//!   lock,
//! * runs no signal handler that has interrupted this code,
//! * and has no address on its stack that may be the return address of an allocator, or of a
//!   function of musl that waits with a lock. Such addresses may also be left from earlier calls.
//!   Then the thread is not used, although it would be safe.

use std::ops::Range;

use crate::process::{TargetProcess, contains_address};
use crate::region::AttachRegion;
use crate::thread::StoppedThread;

/// Maximum length of a stack that is searched for a signal handler, in bytes.
pub(crate) const MAX_STACK_LEN: u64 = 16 << 20;
/// Number of words of a stack that are searched for return addresses.
const MAX_RETURN_WORDS: usize = (64 << 10) / 8;

/// System calls in which musl may wait with no lock that loading needs. (The loader reads files,
/// too; it is on the stack then.)
const HARMLESS_CALLS: [i64; 34] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_flock,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
    libc::SYS_restart_syscall,
];

/// Functions of musl that wait with a lock in a call that is harmless elsewhere, or that call
/// functions of the program with one.
const LOCKING_FUNCTIONS: [&str; 6] = [
    "dlopen",
    "fork",
    "_Fork",
    "pthread_atfork",
    "pthread_barrier_wait",
    "pthread_create",
];

/// The distance from the program counter to the code segment in the registers that the kernel saves
/// for a signal handler, in words (`struct sigcontext_64`).
const SEGMENTS_AFTER_PC: usize = 2;
/// The segments of a 64-bit program: the code segment, two that are 0, and the one of the stack,
/// which older kernels leave out.
const USER_SEGMENTS: [u64; 2] = [0x0033, 0x002b_0000_0000_0033];

/// The code of a program of musl that may run with a lock.
pub(crate) struct LockingCode {
    musl: Vec<Range<u64>>,
    /// musl's data, in which its own locks are.
    musl_data: Vec<Range<u64>>,
    /// The code of an allocator that replaces musl's, of heapprof's library and of its region.
    allocator_and_own: Vec<Range<u64>>,
    functions: Vec<Range<u64>>,
}

impl LockingCode {
    /// Finds the code in a program of musl. Returns `None` if musl is not found.
    pub(crate) fn new(process: &TargetProcess, region: Option<AttachRegion>) -> Option<Self> {
        let path = &process.map_of(process.loader())?.path;
        let mut musl_data: Vec<Range<u64>> = Vec::new();
        for map in process.maps.iter().filter(|map| map.is_writable) {
            let is_behind = musl_data.last().is_some_and(|last| last.end == map.start);
            // A part of the data is not in the file.
            if map.path == *path || map.path.is_empty() && is_behind {
                musl_data.push(map.range());
            }
        }
        let musl = process.loader_code();
        let allocator = process.symbol("malloc").map(|found| found.address);
        let allocator = allocator.filter(|&at| !contains_address(&musl, at));
        let allocator = allocator.map(|at| process.code_of(at)).unwrap_or_default();
        let ours = process.own_code().chain(region.map(AttachRegion::code));
        let functions = LOCKING_FUNCTIONS.iter();
        let functions = functions.filter_map(|name| process.symbol(name));
        let functions = functions.map(|of| of.address..of.address + of.size);
        let is_found = !musl.is_empty() && !musl_data.is_empty();
        is_found.then(|| Self {
            musl,
            musl_data,
            allocator_and_own: allocator.into_iter().chain(ours).collect(),
            functions: functions.collect(),
        })
    }

    /// Whether a thread may be without a lock, by its program counter, and by the number and the
    /// first argument of the system call that it is in.
    pub(crate) fn is_left(&self, pc: u64, call: Option<(i64, u64)>) -> bool {
        if !contains_address(&self.musl, pc) {
            return !contains_address(&self.allocator_and_own, pc);
        }
        match call {
            Some((libc::SYS_futex, at)) => !contains_address(&self.musl_data, at),
            Some((number, _)) => HARMLESS_CALLS.contains(&number),
            None => false,
        }
    }

    /// Whether the words of a thread's stack show that the thread may be in this code.
    pub(crate) fn is_on_stack(&self, stack: &[u64]) -> bool {
        let mut returns = stack.iter().take(MAX_RETURN_WORDS);
        returns.any(|&at| {
            contains_address(&self.functions, at) || contains_address(&self.allocator_and_own, at)
        }) || self.has_handler(stack)
    }

    /// Whether a signal handler runs on a stack, and has interrupted this code. The kernel puts the
    /// registers of the interrupted code there.
    fn has_handler(&self, stack: &[u64]) -> bool {
        stack.windows(SEGMENTS_AFTER_PC + 1).any(|words| {
            let pc = words[0];
            USER_SEGMENTS.contains(&words[SEGMENTS_AFTER_PC])
                && (contains_address(&self.musl, pc)
                    || contains_address(&self.allocator_and_own, pc))
        })
    }
}

/// Lets a thread tell the kernel that the program will use barriers for all threads. musl makes one
/// when it loads a library with thread-local memory. Otherwise it sends a signal to each thread
/// instead, and ignores this signal from then on. Older kernels do not know the call.
pub(crate) fn register_barrier(process: &TargetProcess, thread: &StoppedThread) {
    const REGISTER_PRIVATE_EXPEDITED: u64 = 1 << 4;
    if let Some(at) = process.system_call() {
        let arguments = [REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0];
        let _ = thread.call(at, libc::SYS_membarrier, arguments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUSL: u64 = 0x7000_0000;
    const MUSL_DATA: u64 = 0x7002_0000;
    const ALLOCATOR: u64 = 0x6000_0000;
    const FORK: u64 = 0x7000_3000;
    const PROGRAM: u64 = 0x5000_0000;

    fn code() -> LockingCode {
        let page = |at: u64| std::iter::once(at..at + 0x1000).collect();
        LockingCode {
            musl: std::iter::once(MUSL..MUSL + 0x10000).collect(),
            musl_data: page(MUSL_DATA),
            allocator_and_own: page(ALLOCATOR),
            functions: page(FORK),
        }
    }

    #[test]
    fn a_place_is_safe_by_its_code_and_its_system_call() {
        let mapping = Some((libc::SYS_mmap, 0));
        for (pc, call, expected) in [
            (PROGRAM, None, true),
            (PROGRAM, mapping, true),
            (ALLOCATOR, None, false),
            (ALLOCATOR, Some((libc::SYS_read, 0)), false),
            (MUSL, None, false),
            (MUSL, mapping, false),
            (MUSL, Some((libc::SYS_read, 0)), true),
            (MUSL, Some((libc::SYS_epoll_pwait, 0)), true),
            // A lock of the program, and one of musl.
            (MUSL, Some((libc::SYS_futex, PROGRAM)), true),
            (MUSL, Some((libc::SYS_futex, MUSL_DATA + 8)), false),
        ] {
            assert_eq!(code().is_left(pc, call), expected, "{pc:x} {call:?}");
        }
    }

    #[test]
    fn calls_and_interrupted_calls_are_found_on_a_stack() {
        for (word, segments, expected) in [
            (FORK + 8, 7, true),
            (ALLOCATOR + 8, 7, true),
            (MUSL + 8, 7, false),
            (PROGRAM, 7, false),
            // The registers that the kernel has saved for a signal handler.
            (MUSL + 8, 0x002b_0000_0000_0033, true),
            (MUSL + 8, 0x33, true),
            (PROGRAM, 0x33, false),
        ] {
            let mut stack = vec![7; 100];
            (stack[20], stack[20 + SEGMENTS_AFTER_PC]) = (word, segments);
            let found = code().is_on_stack(&stack);
            assert_eq!(found, expected, "{word:x} {segments:x}");
        }
        assert!(!code().is_on_stack(&[]));
        // A handler is found as deep as a stack is, a return address near its end alone.
        let mut deep = vec![7; MAX_RETURN_WORDS + 100];
        deep[MAX_RETURN_WORDS + 1] = ALLOCATOR + 8;
        assert!(!code().is_on_stack(&deep));
        deep[MAX_RETURN_WORDS + 1 + SEGMENTS_AFTER_PC] = 0x33;
        assert!(code().is_on_stack(&deep));
    }
}

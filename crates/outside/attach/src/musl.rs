//! Threads of programs of musl, whose loader and C library are one file without unwinding tables.
//!
//! So the calls that such a thread is in can't be found. But neither musl nor an allocator calls a
//! function of the program while it has a lock that loading needs. A thread can be diverted that
//!
//! * runs other code than theirs, or waits in a system call that musl does not make with such a
//!   lock,
//! * runs no signal handler that has interrupted this code,
//! * and, as far as its stack shows, is not in a fork, in the loader, or at its end. Addresses on a
//!   stack may be left from earlier calls, so after a while they no longer count.

use std::ops::Range;

use heapprof_process::maps::ProcessMapping;

use crate::process::TargetProcess;
use crate::region::AttachRegion;
use crate::thread::StoppedThread;

/// Maximum number of bytes of a stack in which a signal handler is searched.
pub(crate) const MAX_STACK_SCAN: u64 = 16 << 20;

/// System calls in which musl may wait with no lock that loading needs. (The loader reads files,
/// too, but for a moment only, and is on the stack then.)
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

/// Functions of musl in which a thread is not diverted, even if they call functions of the program.
const FORBIDDEN_FUNCTIONS: [&str; 10] = [
    "dlopen",
    "dlclose",
    "fork",
    "_Fork",
    "vfork",
    "posix_spawn",
    "pthread_atfork",
    "pthread_create",
    "pthread_exit",
    "exit",
];

/// The distance from the program counter to the code segment in the registers that the kernel saves
/// for a signal handler, in words (`struct sigcontext_64`).
const SEGMENTS_AFTER_PC: usize = 2;
/// The segments of a 64-bit program: the code segment, two that are 0, and the one of the stack,
/// which older kernels leave out.
const USER_SEGMENTS: [u64; 2] = [0x0033, 0x002b_0000_0000_0033];

/// The code of a program of musl that may run with a lock.
pub(crate) struct MuslCode {
    musl: Vec<Range<u64>>,
    /// The code of an allocator that replaces musl's, of heapprof's library and of its region.
    others: Vec<Range<u64>>,
    /// musl's data, in which all of its own locks are.
    data: Vec<Range<u64>>,
}

/// Whether an address lies in one of several ranges.
fn contains(all: &[Range<u64>], at: u64) -> bool {
    all.iter().any(|range| range.contains(&at))
}

impl MuslCode {
    /// Finds the code in a program of musl.
    pub(crate) fn new(process: &TargetProcess, region: Option<AttachRegion>) -> Self {
        let loader = process.map_of(process.loader());
        let is_musl = |map: &ProcessMapping| loader.is_some_and(|musl| musl.path == map.path);
        let mut data: Vec<Range<u64>> = Vec::new();
        for map in process.maps.iter().filter(|map| map.is_writable) {
            let is_behind = data.last().is_some_and(|before| before.end == map.start);
            // A part of the data is not in the file.
            if is_musl(map) || map.path.is_empty() && is_behind {
                data.push(map.range());
            }
        }
        let musl = process.loader_code();
        let allocator = process.symbol("malloc").map(|found| found.address);
        let allocator = allocator.filter(|&at| !contains(&musl, at));
        let allocator = allocator.map(|at| process.code_of(at)).unwrap_or_default();
        let ours = process.own_code().chain(region.map(AttachRegion::code));
        Self {
            musl,
            others: allocator.into_iter().chain(ours).collect(),
            data,
        }
    }

    /// Returns the code that must not be on the stack of a diverted thread.
    pub(crate) fn forbidden_code(&self, process: &TargetProcess) -> Vec<Range<u64>> {
        let functions = FORBIDDEN_FUNCTIONS.iter();
        let functions = functions.filter_map(|name| process.symbol(name));
        let functions = functions.map(|of| of.address..of.address + of.size);
        functions.chain(self.others.iter().cloned()).collect()
    }

    /// Whether a stopped thread has taken no lock of musl or of the allocator. `stack` has the
    /// words of its stack.
    pub(crate) fn is_free(&self, stopped: &StoppedThread, stack: &[u64]) -> bool {
        let (pc, _) = stopped.place();
        if contains(&self.others, pc) || self.has_handler(stack) {
            return false;
        }
        if !contains(&self.musl, pc) {
            return true;
        }
        match stopped.call_in_kernel() {
            // Who waits for a lock of the program has none of musl's.
            Some((libc::SYS_futex, at)) => !contains(&self.data, at),
            Some((number, _)) => HARMLESS_CALLS.contains(&number),
            None => false,
        }
    }

    /// Whether a signal handler runs on a stack, and has interrupted this code. The kernel puts the
    /// registers of the interrupted code there.
    fn has_handler(&self, stack: &[u64]) -> bool {
        stack.windows(SEGMENTS_AFTER_PC + 1).any(|words| {
            let pc = words[0];
            USER_SEGMENTS.contains(&words[SEGMENTS_AFTER_PC])
                && (contains(&self.musl, pc) || contains(&self.others, pc))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words of a stack on which a handler runs that has interrupted code at `pc`.
    fn with_handler(pc: u64, segments: u64) -> Vec<u64> {
        let mut words = vec![7; 100];
        words[20] = pc;
        words[20 + SEGMENTS_AFTER_PC] = segments;
        words
    }

    #[test]
    fn a_handler_that_has_interrupted_musl_or_the_allocator_is_found() {
        let code = MuslCode {
            musl: std::iter::once(0x7000_0000..0x7001_0000).collect(),
            others: std::iter::once(0x6000_0000..0x6000_1000).collect(),
            data: Vec::new(),
        };
        for (pc, segments, expected) in [
            (0x7000_2000, 0x002b_0000_0000_0033, true),
            (0x7000_2000, 0x33, true),
            (0x6000_0010, 0x33, true),
            // It has interrupted the program's own code.
            (0x5000_2000, 0x33, false),
            // The address is left from a call.
            (0x7000_2000, 7, false),
        ] {
            let stack = with_handler(pc, segments);
            assert_eq!(code.has_handler(&stack), expected, "{pc:x} {segments:x}");
        }
        assert!(!code.has_handler(&[]));
    }
}

//! Threads of programs of musl, whose loader and C library are one file without unwinding tables.
//!
//! So the calls that such a thread is in can't be found. But musl calls no function of the program
//! while it has a lock that loading needs: neither the loader's, nor the allocator's, nor that of
//! the list of threads. A thread can be diverted that
//!
//! * runs other code, or waits in a system call that musl does not make with such a lock,
//! * runs no signal handler that has interrupted musl,
//! * and is not in a fork, in the loader, or at its end, as far as its stack shows.

use std::ops::Range;

use heapprof_memory::Memory;

use crate::process::TargetProcess;
use crate::thread::StoppedThread;

/// System calls in which musl may wait with no lock that loading needs. A read may be the loader's,
/// which then is on the stack.
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
const FORBIDDEN_FUNCTIONS: [&str; 11] = [
    "dlopen",
    "dlclose",
    "dl_iterate_phdr",
    "fork",
    "_Fork",
    "vfork",
    "posix_spawn",
    "pthread_atfork",
    "pthread_create",
    "pthread_exit",
    "exit",
];

/// The code to which signal handlers return: `mov rax, 15; syscall`.
const SIGNAL_RETURN_CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Offset of the interrupted program's registers from the return address of a signal handler, in
/// words: the kernel puts `struct ucontext` there.
const REGISTERS_OFFSET: usize = 6;
/// Places of registers among those, as in the kernel's `struct sigcontext_64`.
const PC: usize = REGISTERS_OFFSET + 16;
const SEGMENTS: usize = REGISTERS_OFFSET + 18;
/// The code segment of 64-bit programs.
const USER_CODE_SEGMENT: u64 = 0x33;

/// musl's file in a program.
pub(crate) struct MuslFile {
    code: Vec<Range<u64>>,
    data: Vec<Range<u64>>,
    /// The addresses of the code to which signal handlers return.
    signal_returns: Vec<u64>,
}

impl MuslFile {
    /// Finds musl in a program. Returns `None` if the code to which signal handlers return is not
    /// found.
    pub(crate) fn new(process: &TargetProcess) -> Option<Self> {
        let path = &process.map_of(process.loader())?.path;
        let (mut code, mut data): (Vec<_>, Vec<Range<u64>>) = (Vec::new(), Vec::new());
        for map in &process.maps {
            let is_behind = data.last().is_some_and(|before| before.end == map.start);
            match map.path == *path {
                true if map.is_code => code.push(map.range()),
                true if map.is_writable => data.push(map.range()),
                // The part of its data that is not in the file.
                false if map.is_writable && map.path.is_empty() && is_behind => {
                    data.push(map.range())
                }
                _ => {}
            }
        }
        let signal_returns = code.iter().flat_map(|range| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            // What can't be read has no such code in it.
            process.memory().read(range.start, &mut bytes);
            let all = bytes.windows(SIGNAL_RETURN_CODE.len()).zip(range.start..);
            let found = all.filter(|(code, _)| *code == SIGNAL_RETURN_CODE);
            found.map(|(_, at)| at).collect::<Vec<u64>>()
        });
        let signal_returns: Vec<u64> = signal_returns.collect();
        (!signal_returns.is_empty()).then_some(Self {
            code,
            data,
            signal_returns,
        })
    }

    /// Returns the code in which a diverted thread must not be, and to which it must not return.
    pub(crate) fn forbidden_code(&self, process: &TargetProcess) -> Vec<Range<u64>> {
        let functions = FORBIDDEN_FUNCTIONS.iter();
        let functions = functions.filter_map(|name| process.symbol(name));
        functions
            .map(|of| of.address..of.address + of.size)
            .collect()
    }

    /// Whether a stopped thread has taken no lock of musl. `stack` has the words of its stack.
    pub(crate) fn is_free(&self, stopped: &StoppedThread, stack: &[u64]) -> bool {
        let (pc, _) = stopped.place();
        let contains = |all: &[Range<u64>], at| all.iter().any(|range| range.contains(&at));
        if self.has_handler(stack) {
            return false;
        }
        if !contains(&self.code, pc) {
            return true;
        }
        match stopped.call_in_kernel() {
            // All of musl's own locks are in its data. Who waits for another one has none of them.
            Some((libc::SYS_futex, at)) => !contains(&self.data, at),
            Some((number, _)) => HARMLESS_CALLS.contains(&number),
            None => false,
        }
    }

    /// Whether a signal handler runs on a stack, and has interrupted musl. The address to which it
    /// returns may also be left from an earlier call; then no registers of a program follow.
    fn has_handler(&self, stack: &[u64]) -> bool {
        stack.windows(SEGMENTS + 1).any(|words| {
            self.signal_returns.contains(&words[0])
                && words[SEGMENTS] & 0xffff == USER_CODE_SEGMENT
                && self.code.iter().any(|range| range.contains(&words[PC]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURN: u64 = 0x7000_1000;

    /// Returns the words of a stack on which a handler runs that has interrupted code at `pc`.
    fn with_handler(pc: u64) -> Vec<u64> {
        let mut words = vec![7; 100];
        words[20] = RETURN;
        words[20 + PC] = pc;
        words[20 + SEGMENTS] = 0x002b_0000_0000_0033;
        words
    }

    #[test]
    fn a_handler_that_has_interrupted_musl_is_found() {
        let file = MuslFile {
            code: std::iter::once(0x7000_0000..0x7001_0000).collect(),
            data: Vec::new(),
            signal_returns: vec![RETURN],
        };
        assert!(file.has_handler(&with_handler(0x7000_2000)));
        // It has interrupted the program's own code.
        assert!(!file.has_handler(&with_handler(0x5000_2000)));
        // The address is left from a call of sigaction.
        let mut left = vec![RETURN; 3];
        assert!(!file.has_handler(&left));
        left.resize(100, RETURN);
        assert!(!file.has_handler(&left));
        assert!(!file.has_handler(&[]));
    }
}

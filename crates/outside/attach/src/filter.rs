//! Checks filters of system calls: whether they allow the calls that heapprof makes in a program.
//!
//! A filter is a program for the kernel's classic packet filter, over `struct seccomp_data`
//! (linux/seccomp.h, linux/bpf_common.h). Only a privileged user may read it.

use std::io;

use libc::{pid_t, sock_filter};

use crate::c_library::CLibrary;
use crate::thread::{PtraceRequest, ptrace};

/// The system calls that the stub and the library make, each with its third and fourth argument:
/// the rights and flags that some of the calls pass, or zeros.
const REQUIRED_CALLS: [(libc::c_long, u32, u32); 36] = [
    (libc::SYS_mmap, 3, 0x22),
    (libc::SYS_mmap, 5, 0x2),
    (libc::SYS_mprotect, 5, 0),
    (libc::SYS_mprotect, 3, 0),
    (libc::SYS_mprotect, 1, 0),
    (libc::SYS_munmap, 0, 0),
    (libc::SYS_mremap, 0, 1),
    (libc::SYS_madvise, 4, 0),
    (libc::SYS_memfd_create, 0, 0),
    (libc::SYS_write, 0, 0),
    (libc::SYS_read, 0, 0),
    (libc::SYS_pread64, 0, 0),
    (libc::SYS_openat, 0, 0),
    (libc::SYS_close, 0, 0),
    (libc::SYS_fstat, 0, 0),
    (libc::SYS_newfstatat, 0, 0),
    (libc::SYS_ftruncate, 0, 0),
    (libc::SYS_fcntl, 0, 0),
    (libc::SYS_lseek, 0, 0),
    (libc::SYS_readlink, 0, 0),
    (libc::SYS_readlinkat, 0, 0),
    (libc::SYS_rt_sigprocmask, 0, 0),
    (libc::SYS_rt_sigpending, 0, 0),
    (libc::SYS_rt_sigaction, 0, 0),
    (libc::SYS_futex, 0, 0),
    (libc::SYS_gettid, 0, 0),
    (libc::SYS_getpid, 0, 0),
    (libc::SYS_getppid, 0, 0),
    (libc::SYS_geteuid, 0, 0),
    (libc::SYS_membarrier, 0, 0),
    (libc::SYS_process_vm_readv, 0, 0),
    (libc::SYS_clock_gettime, 0, 0),
    (libc::SYS_sched_yield, 0, 0),
    (libc::SYS_prctl, 0, 0),
    (libc::SYS_mincore, 0, 0),
    (libc::SYS_tgkill, 0, 0),
];

/// Calls that a filter may refuse with an error, but not by killing the program: the library works
/// without them.
const OPTIONAL_CALLS: [libc::c_long; 11] = [
    libc::SYS_memfd_create,
    libc::SYS_membarrier,
    libc::SYS_process_vm_readv,
    libc::SYS_prctl,
    libc::SYS_readlinkat,
    libc::SYS_mincore,
    libc::SYS_fcntl,
    libc::SYS_ftruncate,
    libc::SYS_readlink,
    libc::SYS_madvise,
    libc::SYS_tgkill,
];

/// The decision of a filter about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterVerdict {
    Allowed,
    Fails,
    Ends,
}

/// Reads the filters of a stopped thread, the newest first.
///
/// # Errors
/// Only an administrator of the machine may read them.
pub(crate) fn read_filters(tid: u32) -> io::Result<Vec<Vec<sock_filter>>> {
    const GET_FILTER: PtraceRequest = 0x420c;
    const MAX_FILTERS: usize = 1000;
    let tid = pid_t::try_from(tid).map_err(|_| io::ErrorKind::NotFound)?;
    let mut all = Vec::new();
    for number in 0..MAX_FILTERS {
        let get = |to: *mut sock_filter| {
            // The kernel writes as many instructions as it has reported, or only reports their
            // number.
            let got = ptrace(GET_FILTER, tid, number, to as usize)?;
            usize::try_from(got).map_err(io::Error::other)
        };
        let len = match get(std::ptr::null_mut()) {
            Ok(len) => len,
            // There is no filter with this number.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
            Err(error) => return Err(error),
        };
        let none = sock_filter {
            code: 0,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let mut filter = vec![none; len];
        get(filter.as_mut_ptr())?;
        all.push(filter);
    }
    Ok(all)
}

/// Returns the numbers of the calls that the filters do not allow, although heapprof needs them.
pub(crate) fn denied_calls(filters: &[Vec<sock_filter>], c_library: CLibrary) -> Vec<libc::c_long> {
    let is_musl = c_library == CLibrary::Musl;
    // musl makes other calls without membarrier, and opens files by another call.
    let is_optional =
        |number| OPTIONAL_CALLS.contains(&number) && !(is_musl && number == libc::SYS_membarrier);
    let of_musl = is_musl.then_some((libc::SYS_open, 0, 0));
    let is_denied = |call: &(libc::c_long, u32, u32)| {
        filters
            .iter()
            .any(|filter| match run_filter(filter, *call) {
                FilterVerdict::Allowed => false,
                FilterVerdict::Fails => !is_optional(call.0),
                FilterVerdict::Ends => true,
            })
    };
    let denied = REQUIRED_CALLS.into_iter().chain(of_musl).filter(is_denied);
    denied.map(|(number, ..)| number).collect()
}

/// Runs a filter on a system call, given by its number and its third and fourth argument. The other
/// arguments are zeros.
fn run_filter(
    filter: &[sock_filter],
    (number, third, fourth): (libc::c_long, u32, u32),
) -> FilterVerdict {
    const ARCH_X86_64: u32 = 0xc000_003e;
    const LD: u16 = 0x00;
    const LDX: u16 = 0x01;
    const ST: u16 = 0x02;
    const STX: u16 = 0x03;
    const ALU: u16 = 0x04;
    const JMP: u16 = 0x05;
    const RET: u16 = 0x06;
    let data = |at: u32| match at {
        0 => number as u32,
        4 => ARCH_X86_64,
        // The data are the number, the machine, the address, and six arguments of two words, the
        // lower first.
        32 => third,
        40 => fourth,
        _ => 0,
    };
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0;
    while let Some(one) = filter.get(at) {
        at += 1;
        let operand = if one.code & 0x08 == 0 { one.k } else { x };
        match one.code & 0x07 {
            LD | LDX => {
                let value = match one.code & 0xe0 {
                    0x00 => one.k,
                    0x20 => data(one.k),
                    0x60 => memory[one.k as usize % 16],
                    // The length of the data.
                    0x80 => 64,
                    _ => return FilterVerdict::Ends,
                };
                *(if one.code & 0x07 == LD {
                    &mut a
                } else {
                    &mut x
                }) = value;
            }
            ST => memory[one.k as usize % 16] = a,
            STX => memory[one.k as usize % 16] = x,
            ALU => {
                a = match one.code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 => a.checked_div(operand).unwrap_or(0),
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.checked_shl(operand).unwrap_or(0),
                    0x70 => a.checked_shr(operand).unwrap_or(0),
                    0x80 => a.wrapping_neg(),
                    0x90 => a.checked_rem(operand).unwrap_or(0),
                    0xa0 => a ^ operand,
                    _ => return FilterVerdict::Ends,
                };
            }
            JMP => {
                let is_so = match one.code & 0xf0 {
                    0x00 => {
                        at += one.k as usize;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return FilterVerdict::Ends,
                };
                at += usize::from(if is_so { one.jt } else { one.jf });
            }
            RET => return verdict_from_action(if one.code & 0x18 == 0x10 { a } else { one.k }),
            // MISC: copies one of the two registers to the other.
            _ if one.code & 0x80 == 0 => x = a,
            _ => a = x,
        }
    }
    FilterVerdict::Ends
}

fn verdict_from_action(said: u32) -> FilterVerdict {
    const ALLOW: u32 = 0x7fff_0000;
    const LOG: u32 = 0x7ffc_0000;
    const ERRNO: u32 = 0x0005_0000;
    match said & 0xffff_0000 {
        ALLOW | LOG => FilterVerdict::Allowed,
        ERRNO => FilterVerdict::Fails,
        // The filter would end or trap the call, or hand it to a process that may never answer.
        _ => FilterVerdict::Ends,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const KILL: u32 = 0x8000_0000;

    fn one(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
        sock_filter { code, jt, jf, k }
    }

    /// Makes a filter that returns `then` for one system call, and `otherwise` for all others.
    fn about(number: libc::c_long, then: u32, otherwise: u32) -> Vec<sock_filter> {
        vec![
            one(LOAD, 4, 0, 0),
            one(EQUAL, 0xc000_003e, 1, 0),
            one(RETURN, KILL, 0, 0),
            one(LOAD, 0, 0, 0),
            one(EQUAL, number as u32, 0, 1),
            one(RETURN, then, 0, 0),
            one(RETURN, otherwise, 0, 0),
        ]
    }

    #[test]
    fn a_filter_is_asked_about_each_call() {
        const ALLOW: u32 = 0x7fff_0000;
        const EPERM: u32 = 0x0005_0001;
        let of = |number, then, otherwise| {
            denied_calls(&[about(number, then, otherwise)], CLibrary::Glibc)
        };
        assert_eq!(of(libc::SYS_ptrace, KILL, ALLOW), []);
        assert_eq!(of(libc::SYS_mmap, KILL, ALLOW), [libc::SYS_mmap; 2]);
        // A filter that checks rights.
        let rights = vec![
            one(LOAD, 32, 0, 0),
            one(EQUAL, 5, 0, 1),
            one(RETURN, KILL, 0, 0),
            one(RETURN, ALLOW, 0, 0),
        ];
        assert_eq!(
            denied_calls(&[rights], CLibrary::Glibc),
            [libc::SYS_mmap, libc::SYS_mprotect]
        );
        assert_eq!(of(libc::SYS_futex, EPERM, ALLOW), [libc::SYS_futex]);
        assert_eq!(of(libc::SYS_membarrier, EPERM, ALLOW), []);
        assert_eq!(
            of(libc::SYS_membarrier, KILL, ALLOW),
            [libc::SYS_membarrier]
        );
        assert_eq!(
            of(libc::SYS_read, ALLOW, KILL).len(),
            REQUIRED_CALLS.len() - 1
        );
        assert_eq!(
            denied_calls(&[vec![]], CLibrary::Glibc).len(),
            REQUIRED_CALLS.len()
        );
        assert_eq!(denied_calls(&[], CLibrary::Glibc), []);
    }

    /// Whether the instructions `instructions` compute `expected`. They run in a filter that allows
    /// a call only with this result.
    fn computes(instructions: &[sock_filter], expected: u32) -> bool {
        let mut filter = instructions.to_vec();
        filter.extend([
            one(EQUAL, expected, 0, 1),
            one(RETURN, 0x7fff_0000, 0, 0),
            one(RETURN, KILL, 0, 0),
        ]);
        run_filter(&filter, (7, 11, 13)) == FilterVerdict::Allowed
    }

    /// Tests the operations of linux/bpf_common.h, with a constant and with the register X.
    #[test]
    fn arithmetic_is_the_kernel_s() {
        const LOAD_NUMBER: u16 = 0x00;
        const LOAD_X: u16 = 0x01;
        for (operation, a, b, expected) in [
            (0x00, u32::MAX, 2, 1),
            (0x10, 1, 2, u32::MAX),
            (0x20, 1 << 31, 2, 0),
            (0x30, 7, 2, 3),
            (0x30, 7, 0, 0),
            (0x40, 5, 2, 7),
            (0x50, 6, 3, 2),
            (0x60, 3, 4, 48),
            (0x60, 3, 32, 0),
            (0x70, 48, 4, 3),
            (0x80, 1, 0, u32::MAX),
            (0x90, 7, 4, 3),
            (0x90, 7, 0, 0),
            (0xa0, 6, 3, 5),
        ] {
            let constant = [one(LOAD_NUMBER, a, 0, 0), one(0x04 | operation, b, 0, 0)];
            assert!(computes(&constant, expected), "{operation:#x} {a} {b}");
            let register = [
                one(LOAD_X, b, 0, 0),
                one(LOAD_NUMBER, a, 0, 0),
                one(0x0c | operation, 99, 0, 0),
            ];
            assert!(computes(&register, expected), "{operation:#x} {a} {b} in X");
        }
        assert_eq!(
            run_filter(&[one(0xb4, 1, 0, 0)], (7, 11, 13)),
            FilterVerdict::Ends
        );
    }

    #[test]
    fn words_are_loaded_and_stored() {
        let load = |at: u32| [one(LOAD, at, 0, 0)];
        // The call's number, the machine, the third and the fourth argument, and another one.
        for (at, expected) in [
            (0, 7),
            (4, 0xc000_003e),
            (32, 11),
            (40, 13),
            (16, 0),
            (36, 0),
        ] {
            assert!(computes(&load(at), expected), "{at}");
        }
        let through_memory = [
            one(0x00, 42, 0, 0),
            one(0x02, 3, 0, 0),
            one(0x00, 0, 0, 0),
            one(0x60, 3, 0, 0),
        ];
        assert!(computes(&through_memory, 42));
        let through_x = [
            one(0x00, 42, 0, 0),
            one(0x07, 0, 0, 0),
            one(0x00, 0, 0, 0),
            one(0x87, 0, 0, 0),
        ];
        assert!(computes(&through_x, 42));
        let x_through_memory = [one(0x01, 42, 0, 0), one(0x03, 5, 0, 0), one(0x60, 5, 0, 0)];
        assert!(computes(&x_through_memory, 42));
        assert!(
            computes(&[one(0x80, 0, 0, 0)], 64),
            "the length of the data"
        );
    }

    #[test]
    fn jumps_go_forwards_and_an_end_without_answer_ends_the_call() {
        // How a comparison with 5 turns out: equal, greater, at least, any common bit.
        for (code, a, expected) in [
            (0x15, 5, true),
            (0x15, 6, false),
            (0x25, 6, true),
            (0x25, 5, false),
            (0x35, 5, true),
            (0x35, 4, false),
            (0x45, 12, true),
            (0x45, 10, false),
        ] {
            let filter = [
                one(0x00, a, 0, 0),
                one(code, 5, 1, 0),
                one(RETURN, KILL, 0, 0),
                one(RETURN, 0x7fff_0000, 0, 0),
            ];
            let is_so = run_filter(&filter, (7, 0, 0)) == FilterVerdict::Allowed;
            assert_eq!(is_so, expected, "{code:#x} {a}");
        }
        let skips = [
            one(0x05, 1, 0, 0),
            one(RETURN, KILL, 0, 0),
            one(RETURN, 0x7fff_0000, 0, 0),
        ];
        assert_eq!(run_filter(&skips, (7, 0, 0)), FilterVerdict::Allowed);
        let beyond = [one(0x05, u32::MAX, 0, 0), one(RETURN, 0x7fff_0000, 0, 0)];
        assert_eq!(run_filter(&beyond, (7, 0, 0)), FilterVerdict::Ends);
    }

    #[test]
    fn an_answer_has_a_meaning() {
        for (said, expected) in [
            (0x7fff_0000, FilterVerdict::Allowed),
            (0x7fff_1234, FilterVerdict::Allowed),
            (0x7ffc_0000, FilterVerdict::Allowed),
            (0x0005_0026, FilterVerdict::Fails),
            // Kills the process, kills the thread, sends a signal, asks a tracer, asks a process.
            (0x8000_0000, FilterVerdict::Ends),
            (0x0000_0000, FilterVerdict::Ends),
            (0x0003_0000, FilterVerdict::Ends),
            (0x7ff0_0000, FilterVerdict::Ends),
            (0x7fc0_0000, FilterVerdict::Ends),
        ] {
            assert_eq!(verdict_from_action(said), expected, "{said:#x}");
            // The same answer from the register A.
            let filter = [one(0x00, said, 0, 0), one(0x16, 0, 0, 0)];
            assert_eq!(run_filter(&filter, (7, 0, 0)), expected, "{said:#x}");
        }
    }
}

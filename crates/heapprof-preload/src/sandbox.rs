//! seccomp: a program that is about to be killed for what a dump calls leaves its profile before, and is recorded no more.

use std::ffi::{c_int, c_void};

use heapprof_collect::{self as collect, sys};

use crate::real::Behind;
use crate::{end, signals};

static PRCTL: Behind = Behind::new(c"prctl");
static SYSCALL: Behind = Behind::new(c"syscall");

/// Looks up what stands behind ours. At the start.
pub fn prepare() {
    PRCTL.find();
    SYSCALL.find();
}

const STRICT: usize = libc::SECCOMP_MODE_STRICT as usize;
const FILTER: usize = libc::SECCOMP_MODE_FILTER as usize;

/// Before prctl.
unsafe extern "C" fn before_prctl(option: c_int, mode: usize, filter: usize) -> *const c_void {
    if option == libc::PR_SET_SECCOMP {
        let args = [option as usize, mode, filter, 0, 0, 0];
        let filters = mode == FILTER && filter != 0;
        before_filter(mode == STRICT, filters, libc::SYS_prctl, args);
    }
    PRCTL.get()
}

/// Before syscall, for the numbers that may install a filter.
unsafe extern "C" fn before_syscall(
    number: libc::c_long,
    first: usize,
    second: usize,
    third: usize,
) -> *const c_void {
    const SET_STRICT: usize = 0;
    const SET_FILTER: usize = 1;
    let args = [first, second, third, 0, 0, 0];
    match number {
        libc::SYS_seccomp => {
            // Libraries ask what the kernel knows by calls that can't succeed.
            let strict = first == SET_STRICT && second == 0 && third == 0;
            before_filter(strict, first == SET_FILTER && third != 0, number, args);
        }
        libc::SYS_prctl if first == libc::PR_SET_SECCOMP as usize => {
            before_filter(
                second == STRICT,
                second == FILTER && third != 0,
                number,
                args,
            );
        }
        _ => {}
    }
    SYSCALL.get()
}

/// Before a filter of system calls is installed, by this system call or one like it.
fn before_filter(strict: bool, filter: bool, number: libc::c_long, args: [usize; 6]) {
    /// Whoever asks for a listener answers calls itself, which nobody would do for a trial.
    const NEW_LISTENER: usize = 1 << 3;
    let listens = number == libc::SYS_seccomp && args[1] & NEW_LISTENER != 0;
    if !(strict || filter) || !collect::is_running() || !collect::is_own_process() {
        return;
    }
    // Its own end, and the threads that it makes, would be seen by the filter too.
    collect::end_clock();
    if filter && !listens {
        let mask = sys::block_signals();
        let survives = collect::survives(number, args);
        sys::restore_signals(mask);
        if survives {
            return;
        }
    }
    end::shut_in();
    signals::give_back();
}

/// prctl. Its arguments stay where they are.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl() -> c_int {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        ".cfi_adjust_cfa_offset 56",
        "call {before}",
        "mov r11, rax",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp r11",
        ".cfi_endproc",
        before = sym before_prctl,
    )
}

/// syscall, which futexes of whole runtimes come by: a few comparisons, for all but two numbers.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() -> isize {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {prctl}",
        "je 2f",
        "mov r11, qword ptr [rip + {behind} + {found}]",
        "test r11, r11",
        "je 2f",
        "jmp r11",
        "2: push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        ".cfi_adjust_cfa_offset 48",
        "call {before}",
        "mov r11, rax",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp r11",
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        behind = sym SYSCALL,
        found = const Behind::FOUND,
        before = sym before_syscall,
    )
}

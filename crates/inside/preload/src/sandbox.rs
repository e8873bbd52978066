//! Hooks for seccomp. If a filter would kill the program for a system call that a dump makes, the
//! library writes a last profile before the filter is installed, and ends the recording.

use std::ffi::{CStr, c_int, c_void};

use heapprof_engine::ENGINE;

use crate::hook::{announce, announced, label};
use crate::real_functions::{HookedFunction, go_on_to};
use crate::{end, entry_hooks, identity, signals};

static SYSCALL: HookedFunction = HookedFunction::new(c"syscall");

/// Looks up the real functions behind this module's hooks. It is called at the library's start.
pub fn prepare() {
    SYSCALL.find();
    for function in &PRCTL {
        function.find();
    }
}

/// Sets the real functions behind this module's hooks to the results of `find`, for a program that
/// was not started with the library.
pub fn set_real_functions(find: impl Fn(&CStr) -> *const c_void) {
    for function in PRCTL.iter().chain([&SYSCALL]) {
        function.set_function(find(function.name()));
    }
}

const STRICT_MODE: usize = libc::SECCOMP_MODE_STRICT as usize;
const FILTER_MODE: usize = libc::SECCOMP_MODE_FILTER as usize;

/// Runs before prctl, which the program calls directly or through syscall.
unsafe extern "C" fn before_prctl(option: c_int, mode: usize, filter: usize) {
    if option == libc::PR_SET_SECCOMP {
        let args = [option as usize, mode, filter, 0, 0, 0];
        let filters = mode == FILTER_MODE && filter != 0;
        before_filter(mode == STRICT_MODE, filters, libc::SYS_prctl, args);
    }
}

/// Runs before syscall, and handles system calls that may install a filter, or that change a
/// process's identity, namespaces or root folder.
unsafe extern "C" fn before_syscall(
    number: libc::c_long,
    first: usize,
    second: usize,
    third: usize,
) {
    const SET_STRICT: usize = 0;
    const SET_FILTER: usize = 1;
    match number {
        libc::SYS_seccomp => {
            // Libraries find out what the kernel can do by calls that can't succeed.
            let strict = first == SET_STRICT && second == 0 && third == 0;
            let args = [first, second, third, 0, 0, 0];
            before_filter(strict, first == SET_FILTER && third != 0, number, args);
        }
        // SAFETY: it reads its arguments.
        libc::SYS_prctl => unsafe { before_prctl(first as c_int, second, third) },
        _ => identity::before_syscall(number, [first, second, third]),
    }
}

/// Runs before a system call filter is installed. `number` and `args` are the system call that
/// installs it.
fn before_filter(strict: bool, filter: bool, number: libc::c_long, args: [usize; 6]) {
    /// Flag of a filter with a listener, for which the program answers system calls. Such a filter
    /// is not tried out in a child process, because the program would not answer the child's calls.
    const NEW_LISTENER: usize = 1 << 3;
    if strict || filter {
        entry_hooks::end();
    }
    let listens = number == libc::SYS_seccomp && args[1] & NEW_LISTENER != 0;
    if !(strict || filter)
        || !ENGINE.lifecycle().is_running()
        || !ENGINE.lifecycle().is_own_process()
    {
        return;
    }
    // Our own thread ends first: the filter would see its end, and the threads that it makes, too.
    ENGINE.lifecycle().end_clock();
    ENGINE.lifecycle().move_ledger_to_file();
    if filter && !listens && ENGINE.lifecycle().survives(number, args) {
        return;
    }
    end::shut_in();
    signals::give_back();
}

announced!(before_prctl, PRCTL, Prctl: prctl);

/// Hook for syscall. Whole runtimes make their futex calls through it, so a futex call costs only
/// one comparison, and other irrelevant numbers cost a few.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() -> isize {
    std::arch::naked_asm!(
        label!(syscall),
        ".cfi_startproc",
        "cmp rdi, {futex}",
        "je 3f",
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {prctl}",
        "je 2f",
        "cmp rdi, {unshare}",
        "je 2f",
        "cmp rdi, {setns}",
        "je 2f",
        "cmp rdi, {chroot}",
        "je 2f",
        "cmp rdi, {pivot_root}",
        "je 2f",
        "cmp rdi, {mount}",
        "je 2f",
        "cmp rdi, {setuid}",
        "je 2f",
        "cmp rdi, {setreuid}",
        "je 2f",
        "cmp rdi, {setresuid}",
        "je 2f",
        "cmp rdi, {capset}",
        "je 2f",
        "3:",
        "mov r11, qword ptr [rip + {table} + {at} + {found}]",
        "test r11, r11",
        "je 2f",
        "jmp r11",
        "2:",
        announce!(),
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        futex = const libc::SYS_futex,
        chroot = const libc::SYS_chroot,
        pivot_root = const libc::SYS_pivot_root,
        mount = const libc::SYS_mount,
        setuid = const libc::SYS_setuid,
        setreuid = const libc::SYS_setreuid,
        setresuid = const libc::SYS_setresuid,
        capset = const libc::SYS_capset,
        table = sym SYSCALL,
        at = const 0,
        found = const HookedFunction::FOUND_OFFSET,
        before = sym before_syscall,
        real = sym go_on_to,
    )
}

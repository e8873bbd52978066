//! The instruction by which a program calls the kernel.

use std::arch::asm;

/// Makes a system call. Returns its result, or the negated errno.
///
/// # Safety
/// The arguments fulfil the kernel's contract for the call number `n`.
pub unsafe fn call(n: libc::c_long, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: the caller vouches for the arguments; rcx and r11 are the registers that `syscall`
    // changes.
    unsafe {
        asm!("syscall", inlateout("rax") n as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

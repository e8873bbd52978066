//! Replacements for the processor's code, for processors that have no folder here. They compile for
//! aarch64, but never run, because heapprof records nothing on aarch64.

/// Makes a system call through libc, and restores errno. Returns the call's result, or the negated
/// errno.
///
/// # Safety
/// The arguments fulfil the kernel's contract for the call number `n`.
pub unsafe fn call(n: libc::c_long, args: [usize; 6]) -> isize {
    // SAFETY: the caller vouches for the arguments; errno is this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = libc::syscall(n, args[0], args[1], args[2], args[3], args[4], args[5]);
        let failed = *errno;
        *errno = before;
        if result == -1 {
            -(failed as isize)
        } else {
            result as isize
        }
    }
}

/// Name of the vDSO's function that reads a clock, on aarch64.
#[cfg(not(shuttle))]
pub(crate) const CLOCK_FUNCTION_NAME: &str = "__kernel_clock_gettime";

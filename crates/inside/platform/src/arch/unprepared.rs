//! What is left out where no instruction of a processor is named: on one without a folder here, and
//! in an interpreter.

/// Runs `calculate` with the program's floating point settings.
pub fn undisturbed(calculate: &mut dyn FnMut()) {
    calculate();
}

/// Loads nothing.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    let _ = at;
}

/// Makes no system call, because there is no kernel in an interpreter. Returns the negated errno
/// for a missing call.
///
/// # Safety
/// No requirement.
#[cfg(miri)]
pub unsafe fn call(_: libc::c_long, _: [usize; 6]) -> isize {
    -(libc::ENOSYS as isize)
}

//! Replacements for functions that need a processor's instructions. They are used on processors
//! that have no folder here, and in an interpreter (Miri).

/// Runs `calculate` with the current floating point settings.
pub fn undisturbed(calculate: &mut dyn FnMut()) {
    calculate();
}

/// Does nothing: no prefetch instruction is available.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    let _ = at;
}

/// Returns false: no thread is known to have a second stack of return addresses.
pub fn has_shadow_stack() -> bool {
    false
}

/// Makes no system call, because there is no kernel in an interpreter. Returns the negated errno
/// for an unknown system call.
///
/// # Safety
/// No requirement.
#[cfg(miri)]
pub unsafe fn call(_: libc::c_long, _: [usize; 6]) -> isize {
    -(libc::ENOSYS as isize)
}

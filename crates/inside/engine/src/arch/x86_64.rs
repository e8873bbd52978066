//! x86-64: registers, unwind rules, and signal frames.

pub(crate) mod registers;
pub(crate) mod rule;
#[cfg(target_arch = "x86_64")]
pub(crate) mod signal_frame;

/// Returns a return address without its pointer authentication code. x86-64 has no such code, so
/// the address stays as it is.
#[inline(always)]
pub(crate) fn strip_pointer_authentication(return_address: usize) -> usize {
    return_address
}

//! x86-64: registers, unwind rules, and the frame of a signal.

pub(crate) mod registers;
pub(crate) mod rule;
#[cfg(target_arch = "x86_64")]
pub(crate) mod signal_frame;

/// Returns the address to which a return goes, without what the processor signed it with: on this
/// one, the address itself.
#[inline(always)]
pub(crate) fn strip_pointer_authentication(return_address: usize) -> usize {
    return_address
}

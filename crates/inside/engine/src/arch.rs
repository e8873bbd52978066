//! What of a stack depends on the processor: the numbers of registers, how unwind rules are packed,
//! where a function is, and the frame of a signal. A rule's type is the processor's own, so that of
//! a processor with a link register can say that the return address is there.
//!
//! The rules of x86-64 are compiled on other processors, too. Nothing is unwound there, because no
//! call site is found.

#[cfg(not(target_arch = "x86_64"))]
mod portable;
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::{SIGNAL_FRAME_LEN, is_signal_frame};
pub(crate) use x86_64::registers::{
    FRAME_POINTER, RETURN_ADDRESS, RETURN_ADDRESS_OFFSET, STACK_POINTER,
};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::registers::{FunctionPosition, current_position};
pub(crate) use x86_64::rule::{UnwindRule, UnwindRuleKind};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::signal_frame::{SIGNAL_FRAME_LEN, is_signal_frame};
pub(crate) use x86_64::strip_pointer_authentication;

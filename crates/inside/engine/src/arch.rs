//! The parts of unwinding that depend on the processor: register numbers, packed unwind rules, the
//! position of the running function, and signal frames. Each processor defines its own type of
//! rules, because on some processors the return address is in a register, and not on the stack.
//!
//! Processors without a folder here compile the rules of x86-64. They unwind nothing, because they
//! find no call site.

#[cfg(not(target_arch = "x86_64"))]
mod portable;
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::{SIGNAL_FRAME_LEN, interrupted_registers, is_restorer, is_signal_frame};
pub(crate) use x86_64::registers::{
    FRAME_POINTER, RETURN_ADDRESS, RETURN_ADDRESS_OFFSET, STACK_POINTER,
};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::registers::{FunctionPosition, current_position};
pub(crate) use x86_64::rule::{UnwindRule, UnwindRuleKind};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::signal_frame::{
    SIGNAL_FRAME_LEN, interrupted_registers, is_restorer, is_signal_frame,
};
pub(crate) use x86_64::strip_pointer_authentication;

/// The registers of a thread that a signal has interrupted.
pub(crate) struct InterruptedRegisters {
    pub(crate) pc: usize,
    pub(crate) sp: usize,
    pub(crate) bp: usize,
}

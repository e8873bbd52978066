//! The code that depends on the program's processor: registers, instructions, and the stub that a
//! thread of the program runs. Programs for a processor without a folder here can't be attached to.

mod x86_64;

pub(crate) use x86_64::registers::{
    MAX_CALL_LEN, RETURN_ADDRESS, StoppedCall, ThreadRegisters, UnwoundRegisters, may_end_with_call,
};
pub(crate) use x86_64::signal_frame;
pub(crate) use x86_64::stub;
pub(crate) use x86_64::{IO_PGETEVENTS, SYSTEM_CALL};

//! What depends on the processor of the program: its registers, its instructions, and the code that
//! a thread of it runs. A processor without a folder here can't be attached to.

mod x86_64;

pub(crate) use x86_64::registers::{
    RETURN_ADDRESS, StoppedCall, ThreadRegisters, UnwoundRegisters,
};
pub(crate) use x86_64::stub;
pub(crate) use x86_64::{IO_PGETEVENTS, SYSTEM_CALL};

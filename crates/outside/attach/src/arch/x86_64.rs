//! x86-64: the stub, registers, signal frames, and the system call instruction.

pub(crate) mod registers;
pub(crate) mod signal_frame;
pub(crate) mod stub;

/// The instruction that makes a system call.
pub(crate) const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];

/// The number of the system call `io_pgetevents`, which libc does not name.
pub(crate) const IO_PGETEVENTS: i64 = 333;

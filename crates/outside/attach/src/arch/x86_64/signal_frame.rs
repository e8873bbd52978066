//! The registers that the kernel saves on the stack before it runs a signal handler: `rt_sigframe`,
//! which begins with the address of the code that ends the handler. `ucontext` follows.

/// Offset in the structure of the saved stack pointer.
pub(crate) const STACK_OFFSET: u64 = 0xa8;
/// Offset of the saved program counter.
pub(crate) const PC_OFFSET: u64 = 0xb0;
/// Offset of the saved code segment, which has two bytes.
pub(crate) const SEGMENT_OFFSET: u64 = 0xc0;
/// Distance from the saved program counter to the saved code segment, in words.
pub(crate) const SEGMENT_AFTER_PC: usize = (SEGMENT_OFFSET - PC_OFFSET) as usize / 8;
/// The code segment of 64-bit programs.
pub(crate) const CODE_SEGMENT: u64 = 0x33;
/// The code that ends a handler, in the ways in which C libraries write it: the system call
/// `rt_sigreturn`.
pub(crate) const RESTORERS: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
];

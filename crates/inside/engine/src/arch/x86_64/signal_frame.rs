//! The frame that the kernel makes for a signal's handler.
//!
//! The layout is that of Linux, `struct rt_sigframe` of arch/x86/include/asm/sigframe.h.

use heapprof_platform::sys;

use crate::arch::InterruptedRegisters;

/// Number of bytes of a signal frame that are read.
pub(crate) const SIGNAL_FRAME_LEN: usize = 200;

/// Offsets of the registers of the interrupted thread from the handler's return address.
const FRAME_POINTER: usize = 128;
const STACK_POINTER: usize = 168;
const INSTRUCTION_POINTER: usize = 176;

/// Whether a handler returns to the code at `pc`: code that calls sigreturn. It is recognized by
/// its instructions, as debuggers do, because in musl it has no unwind table.
pub(crate) fn is_restorer(pc: usize) -> bool {
    /// `mov $15, %rax; syscall` and `mov $15, %eax; syscall`.
    const LONG: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    const SHORT: [u8; 7] = [0xb8, 15, 0, 0, 0, 0x0f, 0x05];
    let mut code = [0; LONG.len()];
    let len = sys::read_memory(pc, &mut code);
    code[..len] == LONG || code[..len.min(SHORT.len())] == SHORT
}

/// Returns the registers of the thread that a signal has interrupted. `slot` is the address of the
/// return address of the signal's handler. `read` reads memory that may not be mapped.
pub(crate) fn interrupted_registers(
    slot: usize,
    read: &mut dyn FnMut(usize) -> Option<usize>,
) -> Option<InterruptedRegisters> {
    let mut word = |offset| read(slot.wrapping_add(offset));
    Some(InterruptedRegisters {
        pc: word(INSTRUCTION_POINTER)?,
        sp: word(STACK_POINTER)?,
        bp: word(FRAME_POINTER)?,
    })
}

/// Whether the word at `at` belongs to a signal handler's frame, and is not a leftover value: in a
/// real frame, the word is followed by the registers of the interrupted thread. `end` is the end of
/// the thread's stack.
pub(crate) fn is_signal_frame(at: usize, end: usize, word: impl Fn(usize) -> usize) -> bool {
    /// Code segment of a 64-bit program.
    const CODE_SEGMENT: usize = 0x33;
    let (link, stack_pointer, segments) = (at + 16, at + STACK_POINTER, at + 192);
    let was_on_stack = (at..end).contains(&word(stack_pointer));
    // A handler on a stack of its own is not recognized here.
    at % 16 == 8 && word(link) == 0 && was_on_stack && word(segments) & 0xffff == CODE_SEGMENT
}

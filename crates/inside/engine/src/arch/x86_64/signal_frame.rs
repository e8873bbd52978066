//! The frame that the kernel makes for a signal's handler.
//!
//! The layout is that of Linux, `struct rt_sigframe` of arch/x86/include/asm/sigframe.h.

/// Number of bytes of a signal frame that are read.
pub(crate) const SIGNAL_FRAME_LEN: usize = 200;

/// Whether the word at `at` belongs to a signal handler's frame, and is not a leftover value: in a
/// real frame, the word is followed by the registers of the interrupted thread. `end` is the end of
/// the thread's stack.
pub(crate) fn is_signal_frame(at: usize, end: usize, word: impl Fn(usize) -> usize) -> bool {
    /// Code segment of a 64-bit program.
    const CODE_SEGMENT: usize = 0x33;
    let (link, stack_pointer, segments) = (at + 16, at + 168, at + 192);
    let was_on_stack = (at..end).contains(&word(stack_pointer));
    // A handler on a stack of its own is not recognized here.
    at % 16 == 8 && word(link) == 0 && was_on_stack && word(segments) & 0xffff == CODE_SEGMENT
}

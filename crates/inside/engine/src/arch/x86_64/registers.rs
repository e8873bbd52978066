//! Register numbers of unwind tables, and the position of the running function.

use gimli::Register;

/// The register rbp, which may hold the address of a frame.
pub(crate) const FRAME_POINTER: Register = Register(6);
/// The register rsp, the stack pointer.
pub(crate) const STACK_POINTER: Register = Register(7);
/// The register number that unwind tables use for the return address.
pub(crate) const RETURN_ADDRESS: Register = Register(16);
/// Offset of the return address from the canonical frame address. A call pushes the return address
/// last.
pub(crate) const RETURN_ADDRESS_OFFSET: i64 = -8;

/// Position of a running function: the instruction pointer, the stack pointer and the frame
/// pointer.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[derive(Clone, Copy)]
pub(crate) struct FunctionPosition {
    pub(crate) pc: usize,
    pub(crate) sp: usize,
    pub(crate) bp: usize,
}

/// Returns the position of the function into which this is inlined.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn current_position() -> FunctionPosition {
    let (pc, sp, bp): (usize, usize, usize);
    // SAFETY: reads three registers.
    unsafe {
        std::arch::asm!(
            "lea {pc}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp",
            pc = out(reg) pc, sp = out(reg) sp, bp = out(reg) bp,
            options(nomem, nostack, preserves_flags));
    }
    FunctionPosition { pc, sp, bp }
}

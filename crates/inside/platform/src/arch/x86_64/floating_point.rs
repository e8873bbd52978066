//! Protects the engine's calculations from the program's floating point environment, and the
//! program's environment from the engine's calculations.

/// Runs `calculate` with the default floating point settings, and then restores the program's
/// settings. The program may have set another rounding mode, may trap inexact results, or may check
/// afterwards whether a result was inexact.
#[inline(never)]
pub fn undisturbed(calculate: &mut dyn FnMut()) {
    let (mut kept, usual) = (0u32, 0x1f80u32);
    // SAFETY: the register is read, set to its value at a program's start, and set back; the
    // calculation is behind a call.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut kept, options(nostack));
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const usual, options(nostack));
    }
    calculate();
    // SAFETY: as for the assembly before the call.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const kept, options(nostack)) };
}

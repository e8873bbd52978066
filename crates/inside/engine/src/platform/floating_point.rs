//! The program's floating point environment: what we calculate neither goes by it nor changes it.

/// Calculates by the rules that every program starts with, and puts the program's own back. The
/// program may round in another way, trap what is not exact, or look afterwards whether something
/// was not.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
pub(crate) fn undisturbed(calculate: &mut dyn FnMut()) {
    let (mut kept, usual) = (0u32, 0x1f80u32);
    // SAFETY: the register is read, set to what it is at a program's start, and set back; what is
    // calculated is behind a call.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut kept, options(nostack));
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const usual, options(nostack));
    }
    calculate();
    // SAFETY: as above.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const kept, options(nostack)) };
}

/// On other processors, calculates by the program's rules.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn undisturbed(calculate: &mut dyn FnMut()) {
    calculate();
}

//! x86-64: system calls, the thread's slot, floating point, and changes of the stack.

#[cfg(not(miri))]
mod floating_point;
mod stack_switch;
#[cfg(not(miri))]
mod system_call;
#[cfg(not(any(miri, shuttle)))]
mod thread_slot;

#[cfg(not(miri))]
pub use floating_point::undisturbed;
pub(crate) use stack_switch::{call_on_stack, clone_on_stack};
#[cfg(not(miri))]
pub use system_call::call;
#[cfg(all(feature = "late-library", not(any(miri, shuttle))))]
pub use thread_slot::TLS_MODULE;
#[cfg(not(any(miri, shuttle)))]
pub(crate) use thread_slot::{THREAD_SLOT_LEN, thread_slot};

/// Name of the vDSO's function that reads a clock.
#[cfg(not(any(miri, shuttle)))]
pub(crate) const CLOCK_FUNCTION_NAME: &str = "__vdso_clock_gettime";

/// Loads a cache line before its use.
#[cfg(not(miri))]
#[inline(always)]
pub fn prefetch(at: *const u8) {
    // SAFETY: a prefetch of any address is allowed.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
}

/// Whether the processor compares the return addresses of this thread with a stack of its own.
#[cfg(not(miri))]
pub fn has_shadow_stack() -> bool {
    let pointer: u64;
    // SAFETY: the instruction does nothing on a processor or in a thread without such a stack.
    unsafe {
        std::arch::asm!(
            "xor eax, eax",
            "rdsspq rax",
            out("rax") pointer,
            options(nomem, nostack),
        );
    }
    pointer != 0
}

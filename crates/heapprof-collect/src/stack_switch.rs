//! Dumps run on a stack of their own: the program's may be small, or a signal's.

/// Runs `work` on the dump stack. One caller at a time: whoever dumps holds the lock of dumps.
#[cfg(target_arch = "x86_64")]
pub(crate) fn on_own_stack<F: FnOnce()>(work: F) {
    use std::sync::atomic::{AtomicPtr, Ordering};

    const SIZE: usize = 1 << 20;
    static STACK: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
    let mut stack = STACK.load(Ordering::Relaxed);
    if stack.is_null() {
        stack = crate::sys::map(SIZE);
        STACK.store(stack, Ordering::Relaxed);
    }
    if stack.is_null() {
        return work();
    }
    unsafe extern "C" fn run<F: FnOnce()>(work: *mut Option<F>) {
        // SAFETY: the pointer is to `work` below, which outlives the call.
        if let Some(work) = unsafe { (*work).take() } {
            work();
        }
    }
    let mut work = Some(work);
    // SAFETY: the new stack is ours and large; r12 keeps the old one across the call, by the C convention.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, rsi",
            "call rax",
            "mov rsp, r12",
            in("rsi") stack.add(SIZE - 64) as usize & !63,
            in("rax") run::<F> as unsafe extern "C" fn(*mut Option<F>),
            in("rdi") &raw mut work,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

/// Elsewhere the thread's own stack has to do.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn on_own_stack<F: FnOnce()>(work: F) {
    work();
}

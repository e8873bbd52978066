//! Runs dumps on a separate stack. If the program has used up all file descriptors, a dump also
//! gets a separate file descriptor table.
//!
//! The program's stack may be small, or may be that of a signal handler.

#[cfg(target_arch = "x86_64")]
pub use switching::OwnStack;

#[cfg(target_arch = "x86_64")]
mod switching {
    use std::sync::atomic::{AtomicPtr, Ordering};

    use crate::{arch, sys};

    const STACK_SIZE: usize = 1 << 20;

    /// The stack on which dumps are made. One thread uses it at a time, because a thread that dumps
    /// has the lock of dumps.
    pub struct OwnStack(AtomicPtr<u8>);

    impl OwnStack {
        /// Makes a stack that is not mapped yet.
        pub const fn new() -> Self {
            Self(AtomicPtr::new(std::ptr::null_mut()))
        }

        /// Returns the address of the stack's end, or 0 if there is no memory for the stack.
        fn end(&self) -> usize {
            let mut stack = self.0.load(Ordering::Relaxed);
            if stack.is_null() {
                stack = sys::map(STACK_SIZE);
                self.0.store(stack, Ordering::Relaxed);
            }
            match stack.expose_provenance() {
                0 => 0,
                start => (start + STACK_SIZE - 64) & !63,
            }
        }

        /// Runs `work` on the dump stack.
        pub fn run<F: FnOnce()>(&self, work: F) {
            let end = self.end();
            if end == 0 {
                return work();
            }
            unsafe extern "C" fn run<F: FnOnce()>(work: *mut Option<F>) {
                // SAFETY: the pointer is to `work` below, which outlives the call.
                if let Some(work) = unsafe { (*work).take() } {
                    work();
                }
            }
            let mut work = Some(work);
            // SAFETY: the new stack is ours and large, and `work` outlives the call.
            unsafe { arch::call_on_stack(end, run::<F>, &raw mut work) };
        }

        /// Runs `work` on the dump stack in a child, while this thread waits. The child shares this
        /// process's memory, but has a copy of its file descriptor table. Returns whether the child
        /// could be made.
        pub fn run_in_child(&self, mut work: &mut dyn FnMut()) -> bool {
            unsafe extern "C" fn run(work: *mut &mut dyn FnMut()) {
                // SAFETY: the pointer is to the argument above, whose owner sleeps.
                unsafe { (*work)() }
            }
            // The child is like a child of vfork, but it runs on a stack of its own. Its end sends
            // no signal.
            const FLAGS: i32 = libc::CLONE_VM | libc::CLONE_VFORK;
            let end = self.end();
            if end == 0 {
                return false;
            }
            // SAFETY: the child runs on a stack that no other thread uses. It uses the thread-local
            // storage of this thread, which sleeps until the child ends.
            let child = unsafe { arch::clone_on_stack(FLAGS, end, run, &raw mut work) };
            if child > 0 {
                sys::reap(child as usize);
            }
            child > 0
        }
    }
}

/// The stack on which dumps are made. On processors other than x86-64, this is the thread's own
/// stack.
#[cfg(not(target_arch = "x86_64"))]
pub struct OwnStack;

#[cfg(not(target_arch = "x86_64"))]
impl OwnStack {
    /// Makes a stack.
    pub const fn new() -> Self {
        Self
    }

    /// Runs `work` on the thread's own stack.
    pub fn run<F: FnOnce()>(&self, work: F) {
        work();
    }

    /// Returns false, because the child for a dump can only be made on x86-64.
    pub fn run_in_child(&self, _work: &mut dyn FnMut()) -> bool {
        false
    }
}

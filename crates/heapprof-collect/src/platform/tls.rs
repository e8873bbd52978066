//! This thread's block, in initial-exec storage: reading it calls nothing, so it can't recurse into
//! malloc.
//!
//! `thread_local!` in a shared library compiles to `__tls_get_addr`, which may allocate.

/// A thread's tables (`thread.rs`), of which nothing is known here.
pub(crate) enum Tables {}

/// What the hooks keep for each thread; zero when the thread starts.
#[repr(C)]
pub(crate) struct ThreadSlot {
    /// Bytes until the next sample. The hooks subtract; below zero they call in here.
    pub(crate) countdown: u64,
    /// The thread's tables, null until its first event.
    pub(crate) state: *const Tables,
    /// Whether the thread is inside the collector.
    pub(crate) busy: u32,
    /// Why the thread has its state for one event at a time, if it does: [`ENDED`], [`BORROWED`].
    pub(crate) lent: u8,
    /// How many frees had a borrowed state.
    pub(crate) frees: u16,
    /// The countdown, while the thread forks.
    pub(crate) held: u64,
    /// The recording that the countdown belongs to.
    pub(crate) recording: u64,
    /// Whether the thread holds the locks of fork.
    pub(crate) forking: bool,
}

/// The thread's end was announced.
pub(crate) const ENDED: u8 = 1;
/// The thread borrows its state, because its first event is a free, which may be its last. libc
/// frees what belongs to an ended thread when its end is not announced any more.
pub(crate) const BORROWED: u8 = 2;

/// A countdown that does not run out while the thread is busy.
pub(crate) const QUIET: u64 = u64::MAX / 2;

#[cfg(target_arch = "x86_64")]
mod place {
    use std::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tbss.heapprof_tls,\"awT\",@nobits",
        ".balign 64",
        ".globl heapprof_tls",
        ".hidden heapprof_tls",
        ".type heapprof_tls,@object",
        "heapprof_tls:",
        ".zero 64",
        ".size heapprof_tls, 64",
        ".popsection",
    );

    /// This thread's block.
    #[inline(always)]
    pub(crate) fn current() -> *mut super::ThreadSlot {
        let block;
        // SAFETY: adds the variable's offset to the thread pointer, which fs:0 holds by the ABI.
        unsafe {
            asm!("mov {0}, qword ptr [rip + heapprof_tls@GOTTPOFF]",
                 "add {0}, qword ptr fs:[0]",
                 out(reg) block, options(pure, readonly, nostack));
        }
        block
    }
}

/// On other processors the block is in the compiler's own thread-local storage (aarch64; not run
/// here).
#[cfg(not(target_arch = "x86_64"))]
mod place {
    use std::cell::UnsafeCell;

    thread_local! {
        static BLOCK: UnsafeCell<super::ThreadSlot> = const {
            UnsafeCell::new(super::ThreadSlot {
                countdown: 0,
                state: std::ptr::null(),
                busy: 0,
                lent: 0,
                frees: 0,
                held: 0,
                recording: 0,
                forking: false,
            })
        };
    }

    /// This thread's block.
    #[inline(always)]
    pub(crate) fn current() -> *mut super::ThreadSlot {
        BLOCK.with(UnsafeCell::get)
    }
}

pub(crate) use place::current;

/// Puts this thread's countdown at its end, for a caller that must have the next event looked at:
/// in exact mode an earlier sampled recording may have left something on it.
#[inline]
pub fn rewind() {
    let block = current();
    // SAFETY: the block is this thread's own.
    unsafe {
        if (*block).busy == 0 {
            (*block).countdown = 0;
        }
    }
}

const _: () = assert!(size_of::<ThreadSlot>() <= 64);

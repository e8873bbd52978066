//! This thread's slot, in initial-exec storage: reading it calls nothing, so it can't recurse into
//! malloc.
//!
//! `thread_local!` in a shared library compiles to `__tls_get_addr`, which may allocate.

/// A thread's tables (`thread.rs`), of which nothing is known here.
pub(crate) enum ThreadTables {}

/// An engine, of which nothing is known here except an address: that of its process.
pub(crate) enum EngineIdentity {}

/// What the hooks keep for each thread; zero when the thread starts.
#[repr(C)]
pub(crate) struct ThreadSlot {
    /// Bytes until the next sample. The hooks subtract; below zero they call in here.
    pub(crate) countdown: u64,
    /// The thread's tables, null until its first event.
    pub(crate) state: *const ThreadTables,
    /// Whether the thread is inside an engine.
    pub(crate) busy: u32,
    /// Why the thread has its state for one event at a time, if it does: [`ENDED`], [`BORROWED`].
    pub(crate) lent: u8,
    /// How many frees had a borrowed state.
    pub(crate) frees: u16,
    /// The countdown, while the thread forks.
    pub(crate) held: u64,
    /// The recording that the countdown belongs to.
    pub(crate) epoch: u64,
    /// Which engine the thread serves; null before its first event.
    pub(crate) engine: *const EngineIdentity,
    /// The process that this thread works for, if it is a child of ours that shares our memory.
    pub(crate) works_for: i32,
    /// Whether the thread holds the locks of fork.
    pub(crate) forking: bool,
    /// The ranks of the locks that the thread holds, a bit for each. Only debug builds use it.
    pub(crate) ranks: u32,
    /// The number of the thread among those that have allocated; 0 if it has none.
    pub(crate) thread: u32,
}

/// The thread's end was announced.
pub(crate) const ENDED: u8 = 1;
/// The thread borrows its state, because its first event is a free, which may be its last. libc
/// frees what belongs to an ended thread when its end is not announced any more.
pub(crate) const BORROWED: u8 = 2;

/// A countdown that does not run out while the thread is busy.
pub(crate) const QUIET_COUNTDOWN: u64 = u64::MAX / 2;

#[cfg(all(target_arch = "x86_64", not(any(miri, all(test, shuttle)))))]
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

    /// This thread's slot.
    #[inline(always)]
    pub(crate) fn current() -> *mut super::ThreadSlot {
        let slot;
        // SAFETY: adds the variable's offset to the thread pointer, which fs:0 holds by the ABI.
        unsafe {
            asm!("mov {0}, qword ptr [rip + heapprof_tls@GOTTPOFF]",
                 "add {0}, qword ptr fs:[0]",
                 out(reg) slot, options(pure, readonly, nostack));
        }
        slot
    }
}

/// On other processors the slot is in the compiler's own thread-local storage (aarch64; not run
/// here). So it is where tests run in an interpreter, or in the threads of a model.
#[cfg(any(not(target_arch = "x86_64"), miri, all(test, shuttle)))]
mod place {
    use std::cell::UnsafeCell;

    use super::ThreadSlot;

    const NEW: ThreadSlot = ThreadSlot {
        countdown: 0,
        state: std::ptr::null(),
        busy: 0,
        lent: 0,
        frees: 0,
        held: 0,
        epoch: 0,
        engine: std::ptr::null(),
        works_for: 0,
        forking: false,
        ranks: 0,
        thread: 0,
    };

    #[cfg(not(all(test, shuttle)))]
    thread_local! {
        static SLOT: UnsafeCell<ThreadSlot> = const { UnsafeCell::new(NEW) };
    }
    #[cfg(all(test, shuttle))]
    shuttle::thread_local! {
        static SLOT: UnsafeCell<ThreadSlot> = UnsafeCell::new(NEW);
    }

    /// This thread's slot.
    #[inline(always)]
    pub(crate) fn current() -> *mut ThreadSlot {
        SLOT.with(|slot| slot.get())
    }
}

pub(crate) use place::current;

/// Puts this thread's countdown at its end, for a caller that must have the next event looked at:
/// in exact mode an earlier sampled recording may have left something on it.
#[inline]
pub(crate) fn rewind() {
    let slot = current();
    // SAFETY: the slot is this thread's own.
    unsafe {
        if (*slot).busy == 0 {
            (*slot).countdown = 0;
        }
    }
}

/// The process that this thread works for; 0 if it is the process's own.
pub(crate) fn works_for() -> i32 {
    // SAFETY: the slot is this thread's own.
    unsafe { (*current()).works_for }
}

/// Says that this thread works for `process`, or for its own if that is 0. It is called in a child
/// that has the slot of a thread that sleeps meanwhile, and in that thread afterwards.
pub(crate) fn work_for(process: i32) {
    // SAFETY: as above.
    unsafe { (*current()).works_for = process };
}

/// The ranks of the locks that this thread holds, a bit for each. Only debug builds keep them.
pub(crate) fn ranks() -> u32 {
    // SAFETY: the slot is this thread's own.
    unsafe { (*current()).ranks }
}

/// Sets [`ranks`].
pub(crate) fn set_ranks(ranks: u32) {
    // SAFETY: as above.
    unsafe { (*current()).ranks = ranks };
}

const _: () = assert!(size_of::<ThreadSlot>() <= 64);

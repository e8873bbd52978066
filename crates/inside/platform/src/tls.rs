//! Each thread's slot. It is in initial-exec storage, which is read without a call, so the read
//! can't recurse into malloc.
//!
//! `thread_local!` in a shared library compiles to `__tls_get_addr`, which may allocate.

/// A thread's tables (`thread/state.rs` of the engine), which are opaque to this module.
pub enum ThreadTables {}

/// An engine, which is opaque to this module. A pointer to it is the address of the engine's
/// process.
pub enum EngineIdentity {}

/// A thread's slot: the data that the hooks and the engine have about a thread. It is all zeros
/// when the thread starts.
#[repr(C)]
pub struct ThreadSlot {
    /// Number of bytes to allocate until the next sample. The hooks subtract the size of each
    /// allocation, and call the engine when the number falls below zero.
    pub countdown: u64,
    /// The thread's tables; null until its first event.
    pub state: *const ThreadTables,
    /// Whether the thread is inside an engine ([`INSIDE_ENGINE`]), or in a call of an allocator
    /// whose outermost call is counted ([`INSIDE_ALLOCATOR`]). 0 in the program's own code.
    pub busy: u32,
    /// Reason why the thread gets its state for only one event at a time: [`ENDED`] or
    /// [`BORROWED`]. 0 if it keeps its state.
    pub lent: u8,
    /// Number of frees that used a borrowed state.
    pub frees: u16,
    /// The countdown from before the fork, while the thread forks.
    pub held: u64,
    /// Number of the recording that the countdown belongs to.
    pub epoch: u64,
    /// The engine that the thread serves; null before its first event.
    pub engine: *const EngineIdentity,
    /// Id of the process that this thread works for, if the thread is a child of the engine that
    /// shares that process's memory; otherwise 0.
    pub works_for: i32,
    /// Whether the thread has locked all locks for a fork.
    pub forking: bool,
    /// The ranks of the locks that the thread has, with one bit for each rank. Only debug builds
    /// use this field.
    pub ranks: u32,
    /// The thread's number in the ledger; 0 if it has none. A thread gets a number when it
    /// allocates.
    pub thread: u32,
    /// The countdown from before the call, while the thread is in a call of an allocator.
    pub call_countdown: u64,
    /// Address of the return address of this call.
    pub call_slot: usize,
    /// The return address itself.
    pub call_return: usize,
    /// Number of calls of the allocator inside this call.
    pub inner_calls: u32,
}

/// Value of [`ThreadSlot::busy`]: the thread is inside an engine.
pub const INSIDE_ENGINE: u32 = 1;
/// Value of [`ThreadSlot::busy`]: the thread is in a call of an allocator.
pub const INSIDE_ALLOCATOR: u32 = 2;

/// Reason: the thread's end was announced.
pub const ENDED: u8 = 1;
/// Reason: the thread borrows its state, because its first event is a free, which may also be its
/// last event. libc frees memory of an ending thread so late that the engine can't learn of the end
/// any more.
pub const BORROWED: u8 = 2;

/// A countdown that does not reach zero while the thread is busy.
pub const QUIET_COUNTDOWN: u64 = u64::MAX / 2;

#[cfg(any(not(target_arch = "x86_64"), miri, shuttle))]
mod compiled_slot;

/// Returns this thread's slot.
#[inline(always)]
pub fn current() -> *mut ThreadSlot {
    #[cfg(all(target_arch = "x86_64", not(any(miri, shuttle))))]
    return crate::arch::thread_slot().cast();
    #[cfg(any(not(target_arch = "x86_64"), miri, shuttle))]
    compiled_slot::current()
}

/// Sets this thread's countdown to zero, so that the next event reaches the engine. Exact mode
/// needs this, because an earlier sampled recording may have left a countdown above zero.
#[inline]
pub fn rewind() {
    let slot = current();
    // SAFETY: the slot is this thread's own.
    unsafe {
        if (*slot).busy == 0 {
            (*slot).countdown = 0;
        }
    }
}

/// Returns the id of the process that this thread works for; 0 if that is the thread's own process.
pub fn works_for() -> i32 {
    // SAFETY: the slot is this thread's own.
    unsafe { (*current()).works_for }
}

/// Sets the process that this thread works for; 0 stands for the thread's own process. This is
/// called in a child that uses the slot of a sleeping thread, and later in that thread.
pub fn work_for(process: i32) {
    // SAFETY: the slot is this thread's own.
    unsafe { (*current()).works_for = process };
}

/// Returns the ranks of the locks that this thread has, with one bit for each rank. Only debug
/// builds record them.
pub fn ranks() -> u32 {
    // SAFETY: the slot is this thread's own.
    unsafe { (*current()).ranks }
}

/// Sets the ranks of the locks that this thread has.
pub fn set_ranks(ranks: u32) {
    // SAFETY: the slot is this thread's own.
    unsafe { (*current()).ranks = ranks };
}

#[cfg(all(target_arch = "x86_64", not(any(miri, shuttle))))]
const _: () = assert!(size_of::<ThreadSlot>() <= crate::arch::THREAD_SLOT_LEN);

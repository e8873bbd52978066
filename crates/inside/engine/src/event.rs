//! The events in the program's threads: allocations, frees, reallocations and mappings.

#[cfg(target_arch = "x86_64")]
mod allocator_call;
pub(crate) mod block;
pub(crate) mod entry;
pub(crate) mod mapping;
pub(crate) mod moment;
mod outside_allocator;
pub(crate) mod reentrancy_guard;
pub(crate) mod stack;
pub(crate) mod trace;
pub(crate) mod unsampled_event;

use heapprof_platform::tls;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::arch::{FunctionPosition, current_position};
use crate::engine::Engine;
use crate::mode::RecordingMode;
use crate::stack::call_site::CallSite;

/// The engine's handle for hooks, which report each event of the program to it.
#[derive(Clone, Copy)]
pub struct EngineEvents(&'static Engine);

impl Engine {
    /// Returns the handle to which hooks report the program's events.
    #[inline(always)]
    pub const fn events(&'static self) -> EngineEvents {
        EngineEvents(self)
    }
}

impl EngineEvents {
    /// Offset of a byte in [`ENGINE`](crate::ENGINE) that is not zero if
    /// [`end_call`](Self::end_call) has something to do after a call that it would end.
    pub const PENDING_OFFSET: usize = std::mem::offset_of!(Engine, dumping.due.pending);

    /// Returns whether and how allocations are recorded now.
    #[inline]
    pub fn mode(self) -> RecordingMode {
        self.0.process.recorded.mode()
    }

    /// Subtracts `size` plus one from this thread's countdown. Returns whether the countdown ran
    /// out. If it did, the caller must call [`allocate`](Self::allocate).
    #[inline(always)]
    pub fn charge(self, size: usize) -> bool {
        entry::charge(size)
    }

    /// Sets this thread's countdown to zero, so that the engine sees the thread's next event. Exact
    /// mode needs this, because an earlier sampled recording may have left a countdown above zero.
    #[inline]
    pub fn rewind(self) {
        tls::rewind();
    }

    /// Whether `address` may be a recorded block. If so, the caller must call
    /// [`release`](Self::release) before it frees the block.
    #[inline(always)]
    pub fn may_hold(self, address: usize) -> bool {
        self.0.ledger.filter.may_hold(address)
    }

    /// Makes an allocation that the countdown chose, and records the block that `real` returns.
    ///
    /// `frame` is the call site in the program.
    #[inline]
    pub fn allocate(self, size: usize, frame: CallSite, real: impl FnOnce() -> *mut u8) -> *mut u8 {
        block::allocate(self.0, size, frame, real)
    }

    /// Records an allocation that the countdown chose. An allocator that does not call malloc has
    /// already made it, without failure. Its block must not be freed before this returns.
    #[inline]
    pub fn record_allocation(self, made: *mut u8, size: usize, frame: CallSite) {
        block::record_allocation(self.0, made, size, frame);
    }

    /// Makes a reallocation. It counts as a free of `old` and a new allocation, even if the block
    /// stays at its address.
    #[inline]
    pub fn reallocate(
        self,
        old: *mut u8,
        size: usize,
        frame: CallSite,
        real: impl FnOnce() -> *mut u8,
    ) -> *mut u8 {
        block::reallocate(self.0, old, size, frame, real)
    }

    /// Records the free of a block, if [`may_hold`](Self::may_hold) is true for its address. This
    /// is called before the real free, because afterwards another thread may get the address.
    #[inline]
    pub fn release(self, address: *mut u8) {
        block::release(self.0, address, block::FreeingAllocator::Malloc);
    }

    /// Records a free, as [`release`](Self::release) does, and returns whether the block was known.
    /// This is for allocators that get only some of their blocks from malloc. Blocks from other
    /// sources are not recorded.
    #[inline]
    pub fn release_known(self, address: *mut u8) -> bool {
        block::release(self.0, address, block::FreeingAllocator::Other)
    }

    /// Runs `work`, by which an interpreter reports values that it has made. Returns `None` without
    /// running `work` if nothing is recorded, or if the thread is already inside the engine.
    pub fn trace<R>(self, work: impl FnOnce(&mut trace::ValueTracer) -> R) -> Option<R> {
        trace::trace(self.0, work)
    }

    /// Counts a mapping that the program made, and the end of earlier mappings at its addresses
    /// (MAP_FIXED).
    pub fn map(self, address: usize, len: usize, frame: CallSite) {
        mapping::map(self.0, address, len, frame);
    }

    /// Calls `kernel`, which unmaps a range. Counts the end of all mappings, or parts of mappings,
    /// in this range. Returns the kernel's result. If the kernel refused (a result below zero),
    /// nothing is counted.
    pub fn unmap(self, address: usize, len: usize, kernel: impl FnOnce() -> isize) -> isize {
        mapping::unmap(self.0, address, len, kernel)
    }

    /// Returns the call site of the function into which this is inlined. This is for callers that
    /// are Rust functions, and not hooks in assembly.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub fn caller(self) -> CallSite {
        self.above(current_position())
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn above(self, here: FunctionPosition) -> CallSite {
        let Self(engine) = self;
        // Finding a rule that is not known yet may allocate, from the allocator that asks for this
        // frame.
        engine.with_reentrancy_guard(|| CallSite::above(here, engine.unwinder()))
    }

    /// Returns an empty call site. Stacks are only found on x86-64, so samples have an empty stack
    /// on this processor.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    #[inline(always)]
    pub fn caller(self) -> CallSite {
        CallSite { slot: 0, bp: 0 }
    }
}

//! The events in the program's threads: allocations, frees, reallocations and mappings.

pub(crate) mod block;
pub(crate) mod entry;
pub(crate) mod mapping;
pub(crate) mod moment;
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
    /// Whether and how allocations are recorded now.
    #[inline]
    pub fn mode(self) -> RecordingMode {
        self.0.process.recorded.mode()
    }

    /// Takes `size` bytes and one more off this thread's countdown. Returns whether the countdown
    /// ran out, so that the caller must call [`allocate`](Self::allocate).
    #[inline(always)]
    pub fn charge(self, size: usize) -> bool {
        entry::charge(size)
    }

    /// Sets this thread's countdown to its end, for a caller whose next event the engine must see:
    /// in exact mode an earlier sampled recording may have left something on the countdown.
    #[inline]
    pub fn rewind(self) {
        tls::rewind();
    }

    /// Whether `address` may be a recorded block, so that the caller must call
    /// [`release`](Self::release) before its free.
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

    /// Records an allocation that the countdown chose, and that an allocator which does not call
    /// malloc has made already. It did not fail, and its block must not be freed before this
    /// returns.
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

    /// Records a free of a block that [`may_hold`](Self::may_hold) lets through. It is called
    /// before the real free, after which another thread may get the address.
    #[inline]
    pub fn release(self, address: *mut u8) {
        block::release(self.0, address, block::FreeingAllocator::Malloc);
    }

    /// Records a free, as [`release`](Self::release) does. It is for allocators that get some
    /// blocks from malloc, and have others whose allocation was not recorded. Returns whether the
    /// block was known.
    #[inline]
    pub fn release_known(self, address: *mut u8) -> bool {
        block::release(self.0, address, block::FreeingAllocator::Other)
    }

    /// Runs `work` for an interpreter that has made values. Returns `None`, without running it, if
    /// nothing is recorded or the thread is inside the engine already.
    pub fn trace<R>(self, work: impl FnOnce(&mut trace::ValueTracer) -> R) -> Option<R> {
        trace::trace(self.0, work)
    }

    /// Counts a mapping that the program made, and the end of earlier mappings at its addresses
    /// (MAP_FIXED).
    pub fn map(self, address: usize, len: usize, frame: CallSite) {
        mapping::map(self.0, address, len, frame);
    }

    /// Calls `kernel`, which unmaps a range, and counts the end of all mappings, or parts of
    /// mappings, in it. Returns the kernel's result. If the kernel refused (a result below zero),
    /// nothing has ended.
    pub fn unmap(self, address: usize, len: usize, kernel: impl FnOnce() -> isize) -> isize {
        mapping::unmap(self.0, address, len, kernel)
    }

    /// Returns the frame that called the function into which this is inlined. It is for callers
    /// that are Rust functions and not hooks in assembly.
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

    /// Returns an empty call site: on processors other than x86-64 no stack is found, and samples
    /// have an empty stack.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    #[inline(always)]
    pub fn caller(self) -> CallSite {
        CallSite { slot: 0, bp: 0 }
    }
}

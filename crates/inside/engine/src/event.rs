//! What happens in the program's threads: allocations, frees, reallocations and mappings.

pub(crate) mod block;
pub(crate) mod counted;
pub(crate) mod entry;
pub(crate) mod mapping;
pub(crate) mod moment;
pub(crate) mod reentrancy_guard;
pub(crate) mod stack;
pub(crate) mod trace;

use crate::engine::Engine;
use crate::mode::RecordingMode;
use crate::platform::tls;
use crate::stack::call_site::CallSite;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::stack::call_site::{FunctionPosition, current_position};

/// The engine as hooks see it: each event of the program is told here.
#[derive(Clone, Copy)]
pub struct EngineEvents(&'static Engine);

impl Engine {
    /// The events of the program.
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

    /// Takes `size` bytes and one more off this thread's countdown. Returns whether it ran out, so
    /// that [`allocate`](Self::allocate) must be told.
    #[inline(always)]
    pub fn charge(self, size: usize) -> bool {
        entry::charge(size)
    }

    /// Puts this thread's countdown at its end, for a caller that must have the next event looked
    /// at: in exact mode an earlier sampled recording may have left something on it.
    #[inline]
    pub fn rewind(self) {
        tls::rewind();
    }

    /// Whether `address` may be a block that is recorded, so that [`release`](Self::release) must
    /// be told of its free.
    #[inline(always)]
    pub fn may_hold(self, address: usize) -> bool {
        self.0.ledger.filter.may_hold(address)
    }

    /// Makes an allocation that the countdown chose, and records what `real` gives.
    ///
    /// `frame` is where the program called.
    #[inline]
    pub fn allocate(self, size: usize, frame: CallSite, real: impl FnOnce() -> *mut u8) -> *mut u8 {
        block::allocate(self.0, size, frame, real)
    }

    /// Records an allocation that the countdown chose, and that was made already by an allocator
    /// that does not call malloc. It did not fail, and nobody may free it before this returns.
    #[inline]
    pub fn record_allocation(self, made: *mut u8, size: usize, frame: CallSite) {
        block::record_allocation(self.0, made, size, frame);
    }

    /// Makes a reallocation, which counts as the end of `old` and a new allocation, in place or
    /// not.
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

    /// As [`release`](Self::release), for a block of an allocator that has some from malloc, and
    /// some whose allocation was not recorded. Returns whether the block was known.
    #[inline]
    pub fn release_known(self, address: *mut u8) -> bool {
        block::release(self.0, address, block::FreeingAllocator::Other)
    }

    /// Runs `work` for an interpreter that has made values. Returns `None`, without running it, if
    /// nothing is recorded or the thread is inside the engine already.
    pub fn trace<R>(self, work: impl FnOnce(&mut trace::ValueTracer) -> R) -> Option<R> {
        trace::trace(self.0, work)
    }

    /// Counts a mapping that the program made. What lay there before is gone (MAP_FIXED).
    pub fn map(self, address: usize, len: usize, frame: CallSite) {
        mapping::map(self.0, address, len, frame);
    }

    /// Has `kernel` end whatever part of mappings lies in a range, and counts that. Returns what
    /// the kernel said. If it refused (below zero), nothing has ended.
    pub fn unmap(self, address: usize, len: usize, kernel: impl FnOnce() -> isize) -> isize {
        mapping::unmap(self.0, address, len, kernel)
    }

    /// The frame that called the function this is inlined into. It is for callers that are Rust
    /// functions and not hooks in assembly.
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

    /// On other processors no stack is found, and samples have an empty one.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    #[inline(always)]
    pub fn caller(self) -> CallSite {
        CallSite { slot: 0, bp: 0 }
    }
}

//! The engine's own memory, as an allocator that other crates can use.

use std::alloc::{GlobalAlloc, Layout};

use crate::engine::Engine;

/// The allocator of an engine's own memory, which consists of private mappings.
///
/// `libheapprof.so` has it as its global allocator. In other programs, the engine allocates from
/// the program's allocator, and uses spare blocks if that allocator has no memory.
#[derive(Clone, Copy)]
pub struct EngineMemory(&'static Engine);

impl Engine {
    /// Returns the allocator of the engine's own memory.
    pub const fn memory(&'static self) -> EngineMemory {
        EngineMemory(self)
    }
}

impl EngineMemory {
    /// Allocates from the spare blocks. This serves an allocation of the engine for which the
    /// program's allocator has no memory. Returns null when the spare blocks are used up.
    #[cold]
    pub fn spare(self, layout: Layout) -> *mut u8 {
        self.0.memory.spare(&self.0.process, layout)
    }

    /// Whether `block` came from [`spare`](Self::spare).
    #[inline(always)]
    pub fn is_spare(self, block: *mut u8) -> bool {
        self.0.memory.is_spare(&self.0.process, block)
    }

    /// Frees a spare block.
    ///
    /// # Safety
    /// The block came from [`spare`](Self::spare), with this layout, and nothing uses it
    /// any more.
    #[cold]
    pub unsafe fn free_spare(self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { self.0.memory.free_spare(&self.0.process, block, layout) };
    }
}

// Nothing here is inlined: each place that allocates would have a copy of it.
// SAFETY: every call goes to the arena's allocator, which keeps to the contract.
unsafe impl GlobalAlloc for EngineMemory {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract, passed on.
        unsafe { self.0.allocator().alloc(layout) }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.allocator().dealloc(block, layout) }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.allocator().alloc_zeroed(layout) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.allocator().realloc(block, layout, size) }
    }
}

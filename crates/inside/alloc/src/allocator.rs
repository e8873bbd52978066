//! The global allocator: it passes each call to another allocator, either directly or through the
//! engine, which records the call.

use std::alloc::{GlobalAlloc, Layout, System};

use heapprof_engine::{CallSite, ENGINE, RecordingMode, is_inside_engine};

/// A global allocator that records the allocations of `A`.
///
/// ```
/// # use heapprof_alloc::HeapProf;
/// #[global_allocator]
/// static ALLOCATOR: HeapProf = HeapProf::system();
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapProf<A = System> {
    inner: A,
}

impl HeapProf {
    /// Makes an allocator that records the allocations of the system's allocator.
    #[must_use]
    pub const fn system() -> Self {
        Self::new(System)
    }
}

impl<A> HeapProf<A> {
    /// Makes an allocator that records the allocations of `behind`. `behind` must not be a
    /// `HeapProf`, because blocks would count twice.
    #[must_use]
    pub const fn new(behind: A) -> Self {
        Self { inner: behind }
    }

    /// Returns the allocator that this allocator passes calls to.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

/// Whether an allocation is passed to the engine, which records it.
///
/// The mode is checked first, so that the countdown to the next sample does not run before a
/// recording starts. The countdown's length is random, so it may start at any allocation.
#[inline(always)]
fn should_record(size: usize) -> bool {
    match ENGINE.events().mode() {
        RecordingMode::Off => false,
        RecordingMode::Sampled => ENGINE.events().charge(size),
        // The countdown does not decide: an earlier sampled recording may have left a part of it.
        RecordingMode::Exact => !is_inside_engine(),
    }
}

// Calls that go through the engine have functions of their own. If these were inlined, they would
// use registers that every allocation would have to save.

#[cold]
#[inline(never)]
fn allocate_recorded(size: usize, frame: CallSite, real: impl FnOnce() -> *mut u8) -> *mut u8 {
    ENGINE.events().allocate(size, frame, real)
}

#[cold]
#[inline(never)]
fn reallocate_recorded(
    block: *mut u8,
    size: usize,
    frame: CallSite,
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    if ENGINE.events().mode() == RecordingMode::Exact {
        ENGINE.events().rewind();
    }
    ENGINE.events().reallocate(block, size, frame, real)
}

#[cold]
#[inline(never)]
fn record_free(block: *mut u8) {
    ENGINE.events().release(block);
}

/// Returns a spare block if the collector allocates, and null if the program allocates. This is
/// called when the wrapped allocator has no memory. Even then, the collector's own allocations must
/// not fail, because std would abort the program.
#[cold]
#[inline(never)]
fn spare_block(layout: Layout) -> *mut u8 {
    if is_inside_engine() {
        ENGINE.memory().spare(layout)
    } else {
        std::ptr::null_mut()
    }
}

/// Returns `block`, or the result of [`spare_block`] if `block` is null.
#[inline(always)]
fn block_or_spare(block: *mut u8, layout: Layout) -> *mut u8 {
    if block.is_null() {
        spare_block(layout)
    } else {
        block
    }
}

// `EngineEvents::caller` finds the caller of the function that it is called in. So each function
// that needs the caller calls it itself, and none of these functions is inlined: the compiler would
// put them into the program's functions, which would then be missing from their own stacks.
// SAFETY: every block comes from the allocator behind, or from the arena's spare memory. It goes
// back to where it came from, with the layout that the caller passed.
unsafe impl<A: GlobalAlloc> GlobalAlloc for HeapProf<A> {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract, passed on.
        let real = || unsafe { self.inner.alloc(layout) };
        if !should_record(layout.size()) {
            return block_or_spare(real(), layout);
        }
        allocate_recorded(layout.size(), ENGINE.events().caller(), real)
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract, passed on.
        let real = || unsafe { self.inner.alloc_zeroed(layout) };
        if !should_record(layout.size()) {
            let block = real();
            if !block.is_null() {
                return block;
            }
            let spare = spare_block(layout);
            if !spare.is_null() {
                // SAFETY: the block is as large as was asked for.
                unsafe { spare.write_bytes(0, layout.size()) };
            }
            return spare;
        }
        allocate_recorded(layout.size(), ENGINE.events().caller(), real)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if ENGINE.memory().is_spare(block) {
            // SAFETY: it is a spare block of this layout, and the caller is done with it.
            return unsafe { ENGINE.memory().free_spare(block, layout) };
        }
        if ENGINE.events().may_hold(block as usize) && !is_inside_engine() {
            record_free(block);
        }
        // SAFETY: the caller's contract, passed on.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract, passed on.
        let real = || unsafe { self.inner.realloc(block, layout, size) };
        // SAFETY: the caller's contract, passed on; `reallocate_by_copy` is called only if the
        // block is unchanged.
        let moved = || unsafe { self.reallocate_by_copy(block, layout, size) };
        if ENGINE.memory().is_spare(block) {
            return moved();
        }
        let quietly = || match real() {
            none if none.is_null() => moved(),
            grown => grown,
        };
        if ENGINE.events().mode() == RecordingMode::Off {
            return quietly();
        }
        if !ENGINE.events().may_hold(block as usize) {
            // The old block is in no table, so only the new one is counted.
            return if should_record(size) {
                allocate_recorded(size, ENGINE.events().caller(), real)
            } else {
                quietly()
            };
        }
        if is_inside_engine() {
            return quietly();
        }
        reallocate_recorded(block, size, ENGINE.events().caller(), real)
    }
}

impl<A: GlobalAlloc> HeapProf<A> {
    /// Moves a block to a new block of `size` bytes. If the wrapped allocator has no memory, a
    /// block of the collector moves to spare memory. A block of the program then stays unchanged,
    /// and the result is null.
    ///
    /// # Safety
    /// The contract of `GlobalAlloc::realloc`.
    #[cold]
    unsafe fn reallocate_by_copy(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract, passed on. Both blocks are at least as large as what is
        // copied.
        unsafe {
            let grown = Layout::from_size_align_unchecked(size, layout.align());
            let new = block_or_spare(self.inner.alloc(grown), grown);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, size.min(layout.size()));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

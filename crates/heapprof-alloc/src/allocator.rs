//! The allocator itself: each call either goes straight to the one behind it, or is looked at on
//! the way.

use std::alloc::{GlobalAlloc, Layout, System};

use heapprof_collect::{self as collect, Frame, Mode};

/// A global allocator that records what `A` is asked for.
///
/// ```
/// # use heapprof_alloc::HeapProf;
/// #[global_allocator]
/// static ALLOCATOR: HeapProf = HeapProf::system();
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapProf<A = System> {
    behind: A,
}

impl HeapProf {
    /// In front of the system's allocator.
    #[must_use]
    pub const fn system() -> Self {
        Self::new(System)
    }
}

impl<A> HeapProf<A> {
    /// In front of another allocator, which must not itself be a `HeapProf`: blocks would count
    /// twice.
    #[must_use]
    pub const fn new(behind: A) -> Self {
        Self { behind }
    }

    /// The allocator behind.
    pub const fn behind(&self) -> &A {
        &self.behind
    }
}

/// Whether an allocation is looked at.
///
/// Off comes first, so that the countdown waits for the start: it is a random one, and any of its
/// moments is as good a beginning.
#[inline(always)]
fn chosen(size: usize) -> bool {
    match collect::mode() {
        Mode::Off => false,
        Mode::Sampled => collect::charge(size),
        // Not by the countdown: a sampled recording before this one may have left something on it.
        Mode::Exact => !collect::is_apart(),
    }
}

// What is looked at has functions of its own: inlined, they would take registers that every
// allocation saves.

#[cold]
#[inline(never)]
fn allocated(size: usize, frame: Frame, real: impl FnOnce() -> *mut u8) -> *mut u8 {
    collect::allocate(size, frame, real)
}

#[cold]
#[inline(never)]
fn reallocated(
    block: *mut u8,
    size: usize,
    frame: Frame,
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    if collect::mode() == Mode::Exact {
        collect::rewind();
    }
    collect::reallocate(block, size, frame, real)
}

#[cold]
#[inline(never)]
fn released(block: *mut u8) {
    collect::release(block);
}

/// The collector's own allocations do not fail for want of the program's memory: std would abort
/// the program.
#[cold]
#[inline(never)]
fn missing(layout: Layout) -> *mut u8 {
    if collect::is_apart() {
        collect::arena::spare(layout)
    } else {
        std::ptr::null_mut()
    }
}

/// The block as it is, or one for the collector in its place.
#[inline(always)]
fn given(block: *mut u8, layout: Layout) -> *mut u8 {
    if block.is_null() {
        missing(layout)
    } else {
        block
    }
}

// `Frame::caller` is the caller of the function that it stands in, so it stands in each of them,
// and none is inlined: the compiler would put them into the program's functions, which would be
// missing in their own stacks. SAFETY: every block is the allocator's behind, asked for and given
// back with the layouts that came.
unsafe impl<A: GlobalAlloc> GlobalAlloc for HeapProf<A> {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract, passed on.
        let real = || unsafe { self.behind.alloc(layout) };
        if !chosen(layout.size()) {
            return given(real(), layout);
        }
        allocated(layout.size(), Frame::caller(), real)
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let real = || unsafe { self.behind.alloc_zeroed(layout) };
        if !chosen(layout.size()) {
            let block = real();
            if !block.is_null() {
                return block;
            }
            let spare = missing(layout);
            if !spare.is_null() {
                // SAFETY: as large as asked for.
                unsafe { spare.write_bytes(0, layout.size()) };
            }
            return spare;
        }
        allocated(layout.size(), Frame::caller(), real)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if collect::arena::is_spare(block) {
            // SAFETY: of this layout, and left.
            return unsafe { collect::arena::free_spare(block, layout) };
        }
        if collect::may_hold(block as usize) && !collect::is_apart() {
            released(block);
        }
        // SAFETY: as above.
        unsafe { self.behind.dealloc(block, layout) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let real = || unsafe { self.behind.realloc(block, layout, size) };
        // SAFETY: as above; the block is as it was.
        let moved = || unsafe { self.moved(block, layout, size) };
        if collect::arena::is_spare(block) {
            return moved();
        }
        let quietly = || match real() {
            none if none.is_null() => moved(),
            grown => grown,
        };
        if collect::mode() == Mode::Off {
            return quietly();
        }
        if !collect::may_hold(block as usize) {
            // The old block is in no table, so there is a new one only.
            return if chosen(size) {
                allocated(size, Frame::caller(), real)
            } else {
                quietly()
            };
        }
        if collect::is_apart() {
            return quietly();
        }
        reallocated(block, size, Frame::caller(), real)
    }
}

impl<A: GlobalAlloc> HeapProf<A> {
    /// A block of the collector's own goes where there is memory; null if it is the program's.
    ///
    /// # Safety
    /// As of `realloc`.
    #[cold]
    unsafe fn moved(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract, passed on: both blocks are as large as is copied.
        unsafe {
            let grown = Layout::from_size_align_unchecked(size, layout.align());
            let new = given(self.behind.alloc(grown), grown);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, size.min(layout.size()));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

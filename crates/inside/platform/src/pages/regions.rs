//! Sources of memory for tests. They need no kernel, and their memory is limited.

use std::alloc::{Layout, alloc_zeroed};

use super::PageSource;
use crate::sys::PAGE_SIZE;

/// Makes a source of `len` bytes in whole pages, which are never freed.
///
/// # Panics
/// `len` bytes are more than a process can have.
pub fn region_of(len: usize) -> PageSource {
    let layout = Layout::from_size_align(len, PAGE_SIZE).unwrap();
    // SAFETY: the region is zeroed, and no other code knows of it.
    unsafe { PageSource::from_region(alloc_zeroed(layout), len) }
}

/// Makes a source that is as large as most tests need.
pub fn region() -> PageSource {
    region_of(64 << 20)
}

//! Marks this library's variables that begin as zeros as heapprof's own memory. They have no file,
//! so the kernel may join the program's memory behind them to them. What examines the process from
//! outside would then take that memory for heapprof's, and miss the pointers in it.

use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_platform::sys::{self, PAGE_SIZE};

// The linker's symbols for the ends of the variables that the file has bytes for, and of all.
std::arch::global_asm!(".hidden _edata", ".hidden _end");

unsafe extern "C" {
    static _edata: u8;
    static _end: u8;
}

/// Marks the whole pages of variables for which the file has no bytes. This is called when a
/// recording starts, because the engine makes the same system calls then: a filter may kill a
/// program for them that is not recorded. Later calls do nothing.
pub fn mark() {
    static IS_MARKED: AtomicBool = AtomicBool::new(false);
    if IS_MARKED.swap(true, Ordering::Relaxed) {
        return;
    }
    let whole = |at: *const u8| (at as usize).next_multiple_of(PAGE_SIZE);
    let pages = whole(&raw const _edata)..whole(&raw const _end);
    if !pages.is_empty() {
        sys::mark_as_own(pages);
    }
}

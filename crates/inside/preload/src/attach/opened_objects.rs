//! Objects that the program loads after a process has attached: their slots are pointed at our
//! hooks, too, before any of their functions is called.
//!
//! The loader checks where a call of dlopen comes from, so our hook jumps to it and never comes
//! back. From then on, each allocation and each lookup of a symbol first checks whether an object
//! was loaded.

use std::sync::atomic::{AtomicU32, Ordering};

use super::ATTACH_STATE;
use super::slots::has_new_objects;
use crate::start;

/// The number of allocations that are still to check for a new object.
static SCANS_LEFT: AtomicU32 = AtomicU32::new(0);
/// Maximum number of allocations that check for a new object after a call of dlopen. The object is
/// there when the loader has mapped it, which may be some allocations later.
const MAX_SCANS: u32 = 10_000;
/// When this number of checks is left, all objects are scanned in any case.
const LATE_SCAN: u32 = MAX_SCANS - 1000;

/// Makes the next allocations check for a new object.
pub fn expect() {
    SCANS_LEFT.store(MAX_SCANS, Ordering::Relaxed);
    start::scan_at_next_allocation(true);
}

/// Called before dlopen.
pub(super) unsafe extern "C" fn before_open() {
    if ATTACH_STATE.is_there() {
        expect();
    }
}

/// Called before dlsym.
pub(super) unsafe extern "C" fn before_symbol_lookup() {
    scan();
}

/// Checks for a new object when the program allocates, after it called dlopen.
pub fn at_allocation() {
    let left = SCANS_LEFT.fetch_sub(1, Ordering::Relaxed);
    if left <= 1 {
        SCANS_LEFT.store(0, Ordering::Relaxed);
        start::scan_at_next_allocation(false);
    }
    // An object without a read-only part may have been shown before it was filled.
    match left {
        1 | LATE_SCAN => ATTACH_STATE.lead_new(),
        _ => scan(),
    }
}

/// Checks whether an object was loaded, and points its slots at our hooks.
pub fn scan() {
    if ATTACH_STATE.is_there() && has_new_objects() {
        ATTACH_STATE.lead_new();
    }
}

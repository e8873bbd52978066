//! Objects that the program loads after a process has attached. Their slots are pointed at the
//! hooks before any of their functions is called.
//!
//! The loader checks the address of dlopen's caller. So the hook jumps to dlopen and does not run
//! again when dlopen returns. Instead, each later allocation and symbol lookup first checks whether
//! an object was loaded.

use std::sync::atomic::{AtomicU32, Ordering};

use super::ATTACH_STATE;
use super::slots::has_new_objects;
use crate::start_state;

/// Number of allocations that must still check for a new object.
static SCANS_LEFT: AtomicU32 = AtomicU32::new(0);
/// Number of allocations that check for a new object after a call of dlopen. The loader may make
/// some allocations before it has mapped the object.
const MAX_SCANS: u32 = 10_000;
/// Value of [`SCANS_LEFT`] at which all objects are scanned even if no new object is found.
const LATE_SCAN: u32 = MAX_SCANS - 1000;

/// Makes the next allocations check for a new object.
pub fn expect() {
    SCANS_LEFT.store(MAX_SCANS, Ordering::Relaxed);
    start_state::scan_at_next_allocation(true);
}

/// Runs before dlopen: makes the next allocations check for a new object.
pub(super) unsafe extern "C" fn before_open() {
    if ATTACH_STATE.is_there() {
        expect();
    }
}

/// Runs before dlsym: checks for a new object.
pub(super) unsafe extern "C" fn before_symbol_lookup() {
    scan();
}

/// Checks for a new object at an allocation that follows a call of dlopen.
pub fn at_allocation() {
    let left = SCANS_LEFT.fetch_sub(1, Ordering::Relaxed);
    if left <= 1 {
        SCANS_LEFT.store(0, Ordering::Relaxed);
        start_state::scan_at_next_allocation(false);
    }
    // An object without a read-only part may have been shown before it was filled.
    match left {
        1 | LATE_SCAN => ATTACH_STATE.lead_new(),
        _ => scan(),
    }
}

/// Checks whether an object was loaded, and points its slots at the hooks.
pub fn scan() {
    if ATTACH_STATE.is_there() && has_new_objects() {
        ATTACH_STATE.lead_new();
    }
}

//! Objects that the program loads while somebody is attached: their slots are led to us, too,
//! before anybody calls their functions.
//!
//! The loader looks at who calls dlopen, so our hook jumps there and never comes back. From then
//! on, whoever allocates or looks up a symbol first looks whether an object has come.

use std::sync::atomic::{AtomicU32, Ordering};

use super::ATTACH_STATE;
use super::slots::has_new_objects;
use crate::start;

/// How often it is still to be looked.
static SCANS_LEFT: AtomicU32 = AtomicU32::new(0);
/// An object is there when the loader has mapped it, which may be some allocations later.
const MAX_SCANS: u32 = 10_000;
/// When so many looks are left, all objects are looked at in any case.
const LATE_SCAN: u32 = MAX_SCANS - 1000;

/// Says that an object may come.
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

/// Called when the program allocates, after it called dlopen.
pub fn at_allocation() {
    let left = SCANS_LEFT.fetch_sub(1, Ordering::Relaxed);
    if left <= 1 {
        SCANS_LEFT.store(0, Ordering::Relaxed);
        start::scan_at_next_allocation(false);
    }
    // One that has no read-only part may have been shown before it was filled.
    match left {
        1 | LATE_SCAN => ATTACH_STATE.lead_new(),
        _ => scan(),
    }
}

/// Looks whether an object has come, and leads its slots to us.
pub fn scan() {
    if ATTACH_STATE.is_there() && has_new_objects() {
        ATTACH_STATE.lead_new();
    }
}

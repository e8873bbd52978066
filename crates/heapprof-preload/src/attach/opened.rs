//! Objects that the program loads while somebody is attached: their slots are led to us, too,
//! before anybody calls their functions.
//!
//! The loader looks at who calls dlopen, so our hook jumps there and never comes back. From then
//! on, whoever allocates or looks up a symbol first looks whether an object has come.

use std::sync::atomic::{AtomicU32, Ordering};

use super::ATTACHED;
use super::slots::have_come;
use crate::start;

/// How often it is still to be looked.
static LOOKS: AtomicU32 = AtomicU32::new(0);
/// An object is there when the loader has mapped it, which may be some allocations later.
const MOST: u32 = 10_000;
/// When so many looks are left, all objects are looked at in any case.
const LATE: u32 = MOST - 1000;

/// Says that an object may come.
pub fn expect() {
    LOOKS.store(MOST, Ordering::Relaxed);
    start::look_at_next(true);
}

/// Called before dlopen.
pub(super) unsafe extern "C" fn before_open() {
    if ATTACHED.is_there() {
        expect();
    }
}

/// Called before dlsym.
pub(super) unsafe extern "C" fn before_look() {
    look();
}

/// Called when the program allocates, after it called dlopen.
pub fn at_allocation() {
    let left = LOOKS.fetch_sub(1, Ordering::Relaxed);
    if left <= 1 {
        LOOKS.store(0, Ordering::Relaxed);
        start::look_at_next(false);
    }
    // One that has no read-only part may have been shown before it was filled.
    match left {
        1 | LATE => ATTACHED.lead_new(),
        _ => look(),
    }
}

/// Looks whether an object has come, and leads its slots to us.
pub fn look() {
    if ATTACHED.is_there() && have_come() {
        ATTACHED.lead_new();
    }
}

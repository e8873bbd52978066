//! How far the library's start is, and whether new objects are to be looked for.

use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

static START_STATE: AtomicU8 = AtomicU8::new(NOT_STARTED);
const NOT_STARTED: u8 = 0;
const STARTING: u8 = 1;
const STARTED: u8 = 2;
/// State: the library has [started](STARTED), and must scan for new objects, whose slots are to be
/// pointed at the hooks.
const SCAN_PENDING: u8 = 3;

/// The function that scans for new objects; null unless a process has attached to a program that
/// was started without the library.
static OBJECT_SCANNER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Marks the library as started, because a process attached. `look` is the function that scans for
/// new objects.
pub fn set_attached(look: fn()) {
    OBJECT_SCANNER.store(look as *mut (), Ordering::Release);
    START_STATE.store(STARTED, Ordering::Release);
}

/// Returns the function that scans for new objects, if a process attached.
fn object_scanner() -> Option<fn()> {
    let look = OBJECT_SCANNER.load(Ordering::Acquire);
    // SAFETY: it is null, or what `set_attached` stored.
    (!look.is_null()).then(|| unsafe { std::mem::transmute::<*mut (), fn()>(look) })
}

/// Whether a process has attached to this program, which was started without the library.
pub fn is_attached() -> bool {
    object_scanner().is_some()
}

/// Scans for new objects. Returns false, and does nothing, if no process has attached.
pub fn scan_objects() -> bool {
    match object_scanner() {
        Some(look) => {
            look();
            true
        }
        None => false,
    }
}

/// Sets whether the next allocation that the countdown selects scans for new objects.
pub fn scan_at_next_allocation(looks: bool) {
    let (from, to) = if looks {
        (STARTED, SCAN_PENDING)
    } else {
        (SCAN_PENDING, STARTED)
    };
    let _ = START_STATE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
}

/// Whether the library has started and no scan is pending.
#[inline(always)]
pub fn is_done() -> bool {
    START_STATE.load(Ordering::Relaxed) == STARTED
}

/// Whether the start has begun.
pub fn has_begun() -> bool {
    START_STATE.load(Ordering::Relaxed) != NOT_STARTED
}

/// Begins the start. Returns false if it has begun before.
pub fn begin() -> bool {
    change(NOT_STARTED, STARTING)
}

/// Marks the library as started.
pub fn finish() {
    START_STATE.store(STARTED, Ordering::Release);
}

/// Marks the library as started, although nothing was done. Returns false if the start has begun
/// before.
pub fn skip() -> bool {
    change(NOT_STARTED, STARTED)
}

fn change(from: u8, to: u8) -> bool {
    let changed = START_STATE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    changed.is_ok()
}

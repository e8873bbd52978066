//! Lists the loaded objects, and remembers which of them were scanned.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::{LoadedObject, objects};
use heapprof_platform::loader;

use crate::kernel_memory::KernelMemory;

/// Iterates over the loaded objects.
pub fn loaded_objects<M: Memory>(memory: M) -> impl Iterator<Item = LoadedObject> {
    objects(memory, loader::debug_structure() as u64)
}

/// Whether an object is still loaded.
pub fn is_loaded(object: LoadedObject) -> bool {
    let failed = Cell::new(false);
    loaded_objects(KernelMemory { failed: &failed }).any(|other| other == object)
}

/// Clears the record of scanned objects, because an unscanned object may have been loaded at the
/// address of a scanned one.
pub fn forget() {
    for seen in &SEEN_OBJECTS {
        seen.store(0, Ordering::Relaxed);
    }
}

/// Start addresses of scanned objects, by hash. The table is large enough for most programs. An
/// object whose entry was overwritten is scanned again.
static SEEN_OBJECTS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Marks an object as scanned. Returns whether it was marked before.
pub fn note(base: u64) -> bool {
    let place = (base >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    SEEN_OBJECTS[place as usize].swap(base.max(1), Ordering::Relaxed) == base.max(1)
}

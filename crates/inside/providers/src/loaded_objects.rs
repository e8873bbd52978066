//! Lists the loaded objects, and remembers which of them were scanned.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::{LoadedObject, objects};

use crate::kernel_memory::KernelMemory;

// glibc's loader exports this for debuggers. It is null elsewhere.
std::arch::global_asm!(
    ".weak _r_debug",
    ".pushsection .data.rel.ro.heapprof_r_debug,\"aw\",@progbits",
    ".balign 8",
    ".globl heapprof_r_debug",
    ".hidden heapprof_r_debug",
    "heapprof_r_debug: .quad _r_debug",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "heapprof_r_debug"]
    safe static R_DEBUG: u64;
}

/// Iterates over the loaded objects.
pub fn loaded_objects<M: Memory>(memory: M) -> impl Iterator<Item = LoadedObject> {
    objects(memory, R_DEBUG)
}

/// Returns the address of the first entry in the loader's list of objects; 0 if there is none.
/// Calls no libc function.
pub fn first_map() -> usize {
    match R_DEBUG as usize {
        0 => 0,
        // SAFETY: the loader's structure, whose second word is the list.
        at => unsafe { (at as *const usize).add(1).read_volatile() },
    }
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

//! Finds the interpreters that the program has, at the start and whenever it loads more code, and
//! registers their providers.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_collect::ENGINE;
use heapprof_memory::loaded::{Object, objects};
use heapprof_memory::{Memory, Own};

use crate::kernel_memory::Kernel;
use crate::perl::PERL;

// glibc's loader exports it for debuggers. It is null elsewhere.
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

/// Looks at every object that is loaded, at the start, when the loader is done with them.
pub fn look() {
    // SAFETY: the constructor of a preloaded library runs before there are threads, so nothing is
    // unloaded meanwhile.
    let memory = unsafe { Own::new() };
    for object in objects(memory, R_DEBUG) {
        note(object.base);
        find(memory, object);
    }
    ENGINE.stack_providers().on_new_code(look_again);
}

/// Looks at the object that begins at `start`, of which an allocation's stack has new code.
fn look_again(start: usize) {
    if note(start as u64) {
        return;
    }
    let failed = Cell::new(false);
    let memory = Kernel { failed: &failed };
    let is_it = |object: &Object| object.base == start as u64;
    if let Some(object) = objects(memory, R_DEBUG).find(is_it) {
        find(memory, object);
    }
}

fn find<M: Memory>(memory: M, object: Object) {
    if let Some(found) = heapprof_perl::Perl::find(memory, object) {
        PERL.found(memory, found);
    }
}

/// Where objects began that were looked at. It is as long as most programs need, and what has no
/// place in it is looked at again.
static SEEN: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Remembers an object. Returns whether it was known.
fn note(base: u64) -> bool {
    let place = (base >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    SEEN[place as usize].swap(base.max(1), Ordering::Relaxed) == base.max(1)
}

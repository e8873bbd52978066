//! Finds the interpreters that the program has, at the start and whenever it loads more code, and
//! registers their providers.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_collect::ENGINE;
use heapprof_memory::loaded::Object;
use heapprof_memory::{Memory, Own};

use crate::kernel_memory::Kernel;
use crate::objects::{loaded, note};
use crate::{perl, python};

static HAS_LOOKED: AtomicBool = AtomicBool::new(false);

/// Looks at every object that is loaded, at the start, when the loader is done with them. It does
/// so once.
pub fn look() {
    if HAS_LOOKED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the constructor of a preloaded library runs before there are threads, so nothing is
    // unloaded meanwhile.
    let memory = unsafe { Own::new() };
    for object in loaded(memory) {
        note(object.base);
        find(memory, object, true);
    }
    ENGINE.stack_providers().on_new_code(look_again);
}

/// Looks at every object that is loaded, while other threads may load and unload some.
/// `on_new_code` is called for those that come later, by their beginning.
pub fn look_at_all(on_new_code: fn(usize)) {
    let failed = Cell::new(false);
    let memory = Kernel { failed: &failed };
    for object in loaded(memory) {
        if !note(object.base) {
            find(memory, object, false);
        }
    }
    ENGINE.stack_providers().on_new_code(on_new_code);
}

/// Looks at the object that begins at `start`, of which an allocation's stack has new code.
pub fn look_again(start: usize) {
    if note(start as u64) {
        return;
    }
    let failed = Cell::new(false);
    let memory = Kernel { failed: &failed };
    let is_it = |object: &Object| object.base == start as u64;
    if let Some(object) = loaded(memory).find(is_it) {
        find(memory, object, false);
    }
}

fn find<M: Memory>(memory: M, object: Object, is_early: bool) {
    // The first object is the executable.
    let executable = loaded(memory).next();
    if let Some(found) = heapprof_perl::Perl::find(memory, object, executable) {
        perl::found(memory, object, found);
    }
    if let Some(found) = heapprof_python::Python::find(memory, object) {
        python::found(memory, object, found, is_early);
    }
}

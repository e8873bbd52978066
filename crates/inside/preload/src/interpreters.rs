//! Finds the program's interpreters, at the start and whenever it loads more code, and registers
//! their providers.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_engine::ENGINE;
use heapprof_memory::loaded::LoadedObject;
use heapprof_memory::{Memory, OwnMemory};

use crate::kernel_memory::KernelMemory;
use crate::objects::{loaded_objects, note};
use crate::{perl, python};

static HAS_SCANNED: AtomicBool = AtomicBool::new(false);

/// Scans every loaded object at the start, when the loader has finished loading them. It does so
/// once.
pub fn scan_at_start() {
    if HAS_SCANNED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the constructor of a preloaded library runs before there are threads, so nothing is
    // unloaded meanwhile.
    let memory = unsafe { OwnMemory::new() };
    for object in loaded_objects(memory) {
        note(object.base);
        find_interpreters(memory, object, true);
    }
    ENGINE.stack_providers().on_new_code(scan_new_object);
}

/// Scans every loaded object, while other threads may load and unload some. `on_new_code` is called
/// for each object that is loaded later, with the address at which it begins.
pub fn scan_loaded_objects(on_new_code: fn(usize)) {
    let failed = Cell::new(false);
    let memory = KernelMemory { failed: &failed };
    for object in loaded_objects(memory) {
        if !note(object.base) {
            find_interpreters(memory, object, false);
        }
    }
    ENGINE.stack_providers().on_new_code(on_new_code);
}

/// Scans the object that begins at `start`, whose code is new in an allocation's stack.
pub fn scan_new_object(start: usize) {
    if note(start as u64) {
        return;
    }
    let failed = Cell::new(false);
    let memory = KernelMemory { failed: &failed };
    let is_it = |object: &LoadedObject| object.base == start as u64;
    if let Some(object) = loaded_objects(memory).find(is_it) {
        find_interpreters(memory, object, false);
    }
}

fn find_interpreters<M: Memory>(memory: M, object: LoadedObject, is_early: bool) {
    // The first object is the executable.
    let executable = loaded_objects(memory).next();
    if let Some(found) = heapprof_perl::PerlRuntime::find(memory, object, executable) {
        perl::register(memory, object, found);
    }
    if let Some(found) = heapprof_python::PythonRuntime::find(memory, object) {
        python::register(memory, object, found, is_early);
    }
}

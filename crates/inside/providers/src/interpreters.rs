//! Searches the program for interpreters, at the start and whenever it loads code. The stacks of an
//! interpreter are not read while the program may unload that interpreter. `lib.rs` has the list of
//! interpreters.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_engine::ENGINE;
use heapprof_memory::loaded_modules::LoadedObject;
use heapprof_memory::{Memory, OwnMemory};

use crate::kernel_memory::KernelMemory;
use crate::loaded_objects::{loaded_objects, note};
use crate::provider::ScannedObject;
use crate::{PROVIDERS, examine_each};

/// Declares the list of providers, and defines a function that calls each of them. An entry of the
/// list names the module of an interpreter and the static value in it that is the provider.
macro_rules! interpreters {
    ($($module:ident::$provider:ident)*) => {
        /// The providers of all interpreters.
        static PROVIDERS: [&dyn $crate::provider::InterpreterProvider;
            [$(stringify!($provider)),*].len()] = [$(&$module::$provider),*];

        /// Looks for each interpreter in an object.
        fn examine_each<M: heapprof_memory::Memory>(
            memory: M,
            scanned: &$crate::provider::ScannedObject,
        ) {
            use $crate::provider::InterpreterProvider;
            $($module::$provider.examine(memory, scanned);)*
        }
    };
}

pub(crate) use interpreters;

/// Looks for each interpreter in a loaded object. `is_early` is true if the program has no other
/// threads yet.
fn examine_object<M: Memory>(memory: M, object: LoadedObject, is_early: bool) {
    let scanned = ScannedObject {
        object,
        // The first object is the executable.
        executable: loaded_objects(memory).next(),
        is_early,
    };
    examine_each(memory, &scanned);
}

/// Runs `close`, which may unload an interpreter's library. No stacks of interpreters are read
/// meanwhile.
pub fn around_unload<R>(close: impl FnOnce() -> R) -> R {
    let paused = PROVIDERS.map(|provider| provider.pause());
    let result = close();
    for (provider, was_read) in PROVIDERS.iter().zip(paused) {
        if was_read {
            provider.resume();
        }
    }
    result
}

static HAS_SCANNED: AtomicBool = AtomicBool::new(false);

/// Scans every loaded object, after the loader has finished loading the program. Later calls do
/// nothing.
pub fn scan_at_start() {
    if HAS_SCANNED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the constructor of a preloaded library runs before there are threads, so nothing is
    // unloaded meanwhile.
    let memory = unsafe { OwnMemory::new() };
    for object in loaded_objects(memory) {
        note(object.base);
        examine_object(memory, object, true);
    }
    ENGINE.stack_providers().on_new_code(scan_new_object);
}

/// Scans every loaded object, while other threads may load and unload objects. `on_new_code` is
/// called later, with the start address of each new object whose code occurs in an allocation's
/// stack.
pub fn scan_loaded_objects(on_new_code: fn(usize)) {
    let failed = Cell::new(false);
    let memory = KernelMemory { failed: &failed };
    for object in loaded_objects(memory) {
        if !note(object.base) {
            examine_object(memory, object, false);
        }
    }
    ENGINE.stack_providers().on_new_code(on_new_code);
}

/// Scans the object that begins at `start`, after its code occurred in an allocation's stack for
/// the first time.
pub fn scan_new_object(start: usize) {
    if note(start as u64) {
        return;
    }
    let failed = Cell::new(false);
    let memory = KernelMemory { failed: &failed };
    let is_it = |object: &LoadedObject| object.base == start as u64;
    if let Some(object) = loaded_objects(memory).find(is_it) {
        examine_object(memory, object, false);
    }
}

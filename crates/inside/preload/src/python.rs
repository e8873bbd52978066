//! The provider of Python's stacks.
//!
//! The first stacks are read by the kernel, and each code object's type must be that of code
//! objects. If nothing is wrong with them, later ones are read directly, and now and then so
//! carefully. Whatever is read belongs to the thread that reads it, so nothing changes meanwhile.
//!
//! * `python/state.rs`: the Python, and the state of the thread that runs it.
//! * `python/capture.rs`: the stack of a thread.
//! * `python/cell.rs`: what notebooks' cells are called.
//! * `python/objects.rs`: its small objects, which never reach malloc.
//! * `python/report.rs`: what a profile says of them.
//! * `python/texts.rs`: what frames are called, and why they are missing.

mod capture;
mod cell;
mod objects;
mod report;
mod state;
mod texts;

use std::ffi::c_void;

use heapprof_engine::{ENGINE, StackProvider};
use heapprof_memory::Memory;
use heapprof_memory::loaded::LoadedObject;
use heapprof_python::{PythonRuntime, UnreadablePython};

pub use objects::{PYTHON_OBJECTS, is_released, note_realloc};
pub use state::PYTHON;

/// Notes a Python, if it is the first one, and has its stacks asked for. `is_early` says that there
/// are no other threads yet.
pub fn register<M: Memory>(
    memory: M,
    object: LoadedObject,
    found: Result<PythonRuntime, UnreadablePython>,
    is_early: bool,
) {
    let Some((begin, end)) = PYTHON.note_python(memory, object, found) else {
        return;
    };
    let provider = StackProvider {
        version: StackProvider::VERSION,
        size: size_of::<StackProvider>() as u32,
        language: c"python".as_ptr(),
        context: (&raw const PYTHON).cast_mut().cast(),
        capture: capture::capture,
        resolve: texts::resolve,
        label: None,
        status: Some(texts::status),
        run_loop: begin as *const c_void,
        run_loop_size: (end - begin) as usize,
        report: Some(report::report),
        value_name: std::ptr::null(),
        values: None,
        unchanged: Some(capture::is_unchanged),
    };
    // SAFETY: the functions do what a provider's must, in any thread. Without a place for it,
    // stacks are native ones.
    let _ = unsafe { ENGINE.stack_providers().register(provider) };
    if is_early && PYTHON.python().is_some() {
        // SAFETY: there are no other threads.
        unsafe { PYTHON_OBJECTS.check_wrappers(false) };
    }
}

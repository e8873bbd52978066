//! The provider of Python's stacks.
//!
//! The first stacks are read by system calls, and each code object must have the type of code
//! objects. If these stacks are right, later stacks are read directly, and the types are checked
//! only now and then. A thread reads only the memory of its own stack, which does not change
//! meanwhile.
//!
//! * `python/state.rs`: the process's Python, and the state of the thread that runs it.
//! * `python/capture.rs`: capturing the stack of a thread.
//! * `python/cell.rs`: the names of notebooks' cells.
//! * `python/objects.rs`: Python's small objects, which never reach malloc.
//! * `python/report.rs`: remarks in a profile about small objects and deep stacks.
//! * `python/texts.rs`: the names of frames, and why frames are missing.

mod capture;
mod cell;
mod objects;
mod report;
mod state;
mod texts;

use std::ffi::c_void;

use heapprof_engine::{ENGINE, StackProvider};

pub use objects::{PYTHON_OBJECTS, is_released, note_realloc};
pub use state::PYTHON;

/// Registers the provider of Python's stacks. The argument is the addresses of the evaluator's
/// beginning and end.
fn register((begin, end): (u64, u64)) {
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
    // SAFETY: the functions do what a provider's must, in any thread. If there is no room for the
    // provider, stacks are native ones.
    let _ = unsafe { ENGINE.stack_providers().register(provider) };
}

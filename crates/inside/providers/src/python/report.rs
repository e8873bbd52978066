//! Remarks in a profile about Python's small objects, and about incomplete stacks.

use std::ffi::{CString, c_void};

use heapprof_engine::ReportSink;
use heapprof_python::{MAX_FRAMES_PER_END, MAX_WALKED_FRAMES};

use super::objects::{PYTHON_OBJECTS, SmallObjectOutcome};
use super::state::PythonStacks;

pub(super) unsafe extern "C" fn report(context: *mut c_void, report: *const ReportSink) {
    // SAFETY: the context that was registered, and what the engine gives.
    let (this, report) = unsafe { (&*context.cast::<PythonStacks>(), &*report) };
    let say = |text: String| {
        if let Ok(text) = CString::new(text) {
            // SAFETY: the function takes a text that it copies.
            unsafe { (report.remark)(report.to, text.as_ptr()) };
        }
    };
    match (PYTHON_OBJECTS.small_object_outcome(), this.why_not()) {
        (Some(SmallObjectOutcome::Undecided), Some(why)) => {
            say(format!("small objects: missing, because {why}"))
        }
        (Some(small), _) => say(format!("small objects: {}", describe_small_objects(small))),
        (None, _) => {}
    }
    if this.was_too_deep() {
        say(format!(
            "of stacks with more than {MAX_WALKED_FRAMES} frames, only the newest \
             {MAX_FRAMES_PER_END} were kept"
        ));
    }
}

fn describe_small_objects(small: SmallObjectOutcome) -> String {
    match small {
        SmallObjectOutcome::FromMalloc => "recorded, from malloc".to_string(),
        SmallObjectOutcome::Recorded { arenas: 0 } => "recorded".to_string(),
        SmallObjectOutcome::Recorded { arenas } => {
            format!("recorded, from arenas of {arenas} bytes")
        }
        SmallObjectOutcome::NotRequested => {
            "missing, like all other objects, because a Python without the GIL keeps them in its \
                             own allocator, which --python-objects=no leaves out"
                .to_string()
        }
        SmallObjectOutcome::UnknownAllocator => {
            "missing, because heapprof does not know Python's allocators".to_string()
        }
        SmallObjectOutcome::Undecided => {
            "missing, because heapprof found no thread in which it could wrap Python's allocators"
                .to_string()
        }
    }
}

//! What a profile says of Python's small objects.

use std::ffi::{CString, c_void};

use heapprof_collect::Report;

use super::objects::OBJECTS;

pub(super) unsafe extern "C" fn report(_: *mut c_void, report: *const Report) {
    // SAFETY: what the engine gives.
    let report = unsafe { &*report };
    let text = if OBJECTS.are_recorded() {
        let arenas = OBJECTS.arenas();
        format!("small objects: recorded, from arenas of {arenas} bytes")
    } else if OBJECTS.is_strange() {
        "small objects: missing, because Python has an allocator that heapprof does not know"
            .to_string()
    } else {
        return;
    };
    if let Ok(text) = CString::new(text) {
        // SAFETY: the function takes a text that it copies.
        unsafe { (report.remark)(report.to, text.as_ptr()) };
    }
}

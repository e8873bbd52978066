//! What a profile says of Python's small objects.

use std::ffi::{CString, c_void};

use heapprof_collect::Report;

use super::objects::OBJECTS;

pub(super) unsafe extern "C" fn report(_: *mut c_void, report: *const Report) {
    // SAFETY: what the engine gives.
    let report = unsafe { &*report };
    let text = match OBJECTS.are_recorded() {
        None => return,
        Some(true) => {
            let arenas = OBJECTS.arenas();
            format!("small objects: recorded, from arenas of {arenas} bytes")
        }
        Some(false) => {
            "small objects: missing, because Python's allocators are none that heapprof \
                        knows"
                .to_string()
        }
    };
    if let Ok(text) = CString::new(text) {
        // SAFETY: the function takes a text that it copies.
        unsafe { (report.remark)(report.to, text.as_ptr()) };
    }
}

//! Answers to `record --live`: the profile of this moment, written into a file beside the list of
//! profiles. It counts as no dump.

use heapprof_platform::sys;

use crate::dump::output;
use crate::engine::Engine;
use crate::options::RecordingOptions;
use crate::reason::DumpReason;
use crate::recording::{lines, snapshot};

/// Answers `record --live`, if a request is pending.
///
/// It is this thread's turn to dump, and there is memory for a dump.
pub(super) fn answer(engine: &Engine, options: &RecordingOptions) {
    let live = &engine.dumping.due.live;
    let Some(asked) = live.pending_request() else {
        return;
    };
    let began = sys::nanoseconds(libc::CLOCK_MONOTONIC);
    if let Some(file) = output::open_live(&options.output.list) {
        let mut profile = Vec::new();
        snapshot::remember_code(engine);
        // The allocator is not asked for its usage, because it would be asked once a second.
        let (reason, wrappers) = (DumpReason::Live, &options.wrappers);
        if snapshot::write_profile(engine, reason, wrappers, false, &mut profile).is_ok() {
            let _ = file.write_all(&lines::message(engine, profile));
        }
    }
    live.note_answer(asked, began);
}

//! The profile of this moment for `record --live`, which asked for it. It is written into a file
//! beside the list of profiles, and counts as no dump.

use crate::dump::output;
use crate::engine::Engine;
use crate::options::RecordingOptions;
use crate::platform::sys;
use crate::reason::DumpReason;
use crate::recording::{lines, snapshot};

/// Answers, if somebody has asked.
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
        // The allocator is not asked what it holds, because it would be asked once a second.
        let (reason, wrappers) = (DumpReason::Live, &options.wrappers);
        if snapshot::write_profile(engine, reason, wrappers, false, &mut profile).is_ok() {
            let _ = file.write_all(&lines::message(engine, profile));
        }
    }
    live.note_answer(asked, began);
}

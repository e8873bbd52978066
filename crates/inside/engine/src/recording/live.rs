//! Answers requests of `record --live`: writes the current profile into a file beside the list of
//! profiles. This profile does not count as a dump.

use heapprof_platform::sys;

use crate::dump::output;
use crate::engine::Engine;
use crate::options::RecordingOptions;
use crate::reason::DumpReason;
use crate::recording::{lines, snapshot};

/// Answers `record --live`, if a request is pending.
///
/// This thread must have the turn to dump, and there must be memory for a dump.
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

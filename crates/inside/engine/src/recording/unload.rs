//! Handles dlclose: records the mapped code before some of it is unloaded, and then removes the
//! unwind rules of the unloaded code.

use crate::code::mappings::CodeScanOutcome;
use crate::engine::Engine;

/// Records the mapped code, and then runs `close`, which may unload code.
pub(super) fn run_around_unload<R>(engine: &Engine, close: impl FnOnce() -> R) -> R {
    let (code, process) = (&engine.code, &engine.process);
    let at_loader = code.modules.loading.enter();
    // Without memory for the record, stacks through the code keep addresses instead of names.
    let (remembered, unknown) = engine.with_guard_and_signals_blocked(|| {
        let remembered = match engine.remember_code(0) {
            CodeScanOutcome::All => (true, Vec::new()),
            CodeScanOutcome::Nothing => (true, code.unknown_objects(process)),
            CodeScanOutcome::NoMemory => (false, Vec::new()),
        };
        code.begin_close(process, remembered.0);
        remembered
    });
    let result = close();
    engine.with_guard_and_signals_blocked(|| {
        if remembered {
            code.forget_gone(process, |bytes| engine.reserve(bytes));
            code.note_unknown_gone(process, unknown);
        }
        code.end_close();
    });
    drop(at_loader);
    result
}

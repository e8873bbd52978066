//! dlclose: remembers what lay where code goes away, and forgets its rules.

use crate::code::mappings::Told;
use crate::engine::Engine;

/// Runs `close`, which may unload code, and remembers what lay where.
pub(super) fn around<R>(engine: &Engine, close: impl FnOnce() -> R) -> R {
    let (code, process) = (&engine.code, &engine.process);
    let at_loader = code.modules.loading.come();
    // Without memory for that, stacks through the code keep addresses instead of names.
    let (remembered, unknown) = engine.guarded(|| {
        let remembered = match engine.remember_code(0) {
            Told::All => (true, Vec::new()),
            Told::Nothing => (true, code.unknown(process)),
            Told::NoMemory => (false, Vec::new()),
        };
        code.begin_close(process, remembered.0);
        remembered
    });
    let result = close();
    engine.guarded(|| {
        if remembered {
            code.forget_gone(process, |bytes| engine.reserve(bytes));
            code.note_unknown_gone(process, unknown);
        }
        code.end_close();
    });
    drop(at_loader);
    result
}

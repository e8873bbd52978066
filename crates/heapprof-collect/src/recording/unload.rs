//! dlclose: remembers what lay where code goes away, and forgets its rules.

use crate::engine::Engine;
use crate::recording::snapshot::remember_code;

/// Runs `close`, which may unload code, and remembers what lay where.
pub(super) fn around<R>(engine: &Engine, close: impl FnOnce() -> R) -> R {
    let (code, process) = (&engine.code, &engine.process);
    // Without memory for that, stacks through the code keep addresses instead of names.
    let remembered = engine.guarded(|| {
        let possible = engine.reserve(code.mappings.memory_needed(process));
        if possible {
            remember_code(engine);
        }
        possible
    });
    let result = close();
    if remembered {
        engine.guarded(|| code.forget_gone(process));
    }
    result
}

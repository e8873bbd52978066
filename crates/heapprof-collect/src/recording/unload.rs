//! dlclose: remembers what lay where code goes away, and forgets its rules.

use crate::code::mappings::Told;
use crate::engine::Engine;

/// Runs `close`, which may unload code, and remembers what lay where.
pub(super) fn around<R>(engine: &Engine, close: impl FnOnce() -> R) -> R {
    let (code, process) = (&engine.code, &engine.process);
    // Without memory for that, stacks through the code keep addresses instead of names.
    let remembered = engine.guarded(|| engine.remember_code(0) != Told::NoMemory);
    let result = close();
    if remembered {
        engine.guarded(|| code.forget_gone(process, |bytes| engine.reserve(bytes)));
    }
    result
}

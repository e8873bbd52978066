//! dlclose: remembers what lay where code goes away, and forgets its rules.

use crate::code::mappings::Told;
use crate::engine::Engine;

/// Runs `close`, which may unload code, and remembers what lay where.
pub(super) fn around<R>(engine: &Engine, close: impl FnOnce() -> R) -> R {
    let (code, process) = (&engine.code, &engine.process);
    let reserve = |bytes| engine.reserve(bytes);
    // Without memory for that, stacks through the code keep addresses instead of names.
    let remembered = engine.guarded(|| code.mappings.remember(process, reserve) != Told::NoMemory);
    let result = close();
    if remembered {
        engine.guarded(|| code.forget_gone(process, reserve));
    }
    result
}

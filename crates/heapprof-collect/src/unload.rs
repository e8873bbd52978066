//! dlclose: remembers what lay where code goes away, and forgets its rules.

use crate::apart::guarded;
use crate::code::{mappings, modules};
use crate::platform::arena;
use crate::stack::walk;

/// Runs `close`, which may unload code, and remembers what lay where.
pub fn around_unload<R>(close: impl FnOnce() -> R) -> R {
    // Without memory for that, stacks through the code keep addresses instead of names.
    let remembered = guarded(|| {
        let possible = arena::reserve(mappings::memory_needed());
        if possible {
            mappings::remember();
        }
        possible
    });
    let result = close();
    if remembered {
        guarded(forget_gone);
    }
    result
}

/// Forgets the rules of code that is no longer there.
fn forget_gone() {
    let gone = mappings::note_gone();
    if !gone.is_empty() {
        for range in gone {
            // A return address may be the one behind the last instruction.
            walk::forget(range.start..range.end + 1);
        }
        modules::note_unload();
    }
}

//! Finds the contents of a perl's memory: heads and bodies of values in arenas, and keys of hashes.
//!
//! Counting a reference writes to a value's head, and using a text as a number writes to its head
//! and its body. Heads and bodies are in arenas, which don't show the stack that made the value.
//! The value's own block shows the stack: the block of its text, its elements or its buckets. A
//! value without such a block counts for the stack of its arena.

use std::ops::Range;

use heapprof_live::LiveProcess;
use heapprof_perl::{ArenaType, PerlRuntime};
use heapprof_process::PageSet;

use crate::cache::PageCache;

/// The head or the body of a value.
#[derive(Clone)]
pub(crate) struct PerlValuePart {
    /// The addresses of the head or body.
    pub(crate) range: Range<u64>,
    /// The name of the part's kind in reports.
    pub(crate) kind: &'static str,
    /// An address in a block of the part's value; `None` if the value has no block.
    pub(crate) in_block: Option<u64>,
}

/// The values, arenas and keys of a process's perl.
#[derive(Default)]
pub(crate) struct PerlInventory {
    /// Heads and bodies of values that are on wanted pages.
    pub(crate) parts: Vec<PerlValuePart>,
    /// An address in each arena, and the arena's name in reports.
    pub(crate) arenas: Vec<(u64, &'static str)>,
    /// The addresses of keys that hashes share.
    pub(crate) keys: Vec<u64>,
}

/// Maximum number of parts, and maximum number of keys.
const MAX_INVENTORY_PARTS: usize = 1 << 25;

/// Finds the values, arenas and keys of a process's perl. Only parts on the pages `wanted` are
/// returned. The result is empty if there is no perl that can be read.
pub(crate) fn read_inventory(process: &LiveProcess, wanted: &PageSet) -> PerlInventory {
    let mut held = PerlInventory::default();
    let cache = PageCache::new(process.memory());
    let memory = &cache;
    let objects = process.objects();
    let found = objects.iter().find_map(|&object| {
        let perl = PerlRuntime::find(memory, object, objects.first().copied())?;
        perl.ok()
    });
    let Some(perl) = found else { return held };
    let Some(first) = perl.first_interpreter(memory) else {
        return held;
    };
    // Values that can't be read are reported as blocks.
    let _ = perl.each_value(memory, first, |value| {
        let both = [(value.head, "SV heads"), (value.body, "SV bodies")];
        for (range, kind) in both {
            if held.parts.len() < MAX_INVENTORY_PARTS && wanted.bytes_in(range.clone()) != 0 {
                held.parts.push(PerlValuePart {
                    range,
                    kind,
                    in_block: value.in_buffer,
                });
            }
        }
    });
    let _ = perl.each_arena(memory, first, |at, of| {
        let kind = match of {
            ArenaType::Heads => "free SV heads",
            ArenaType::Lists => "lists of arenas",
            ArenaType::Bodies(_) => "free SV bodies",
        };
        held.arenas.push((at, kind));
        Some(())
    });
    let _ = perl.each_key(memory, first, |at| {
        if held.keys.len() < MAX_INVENTORY_PARTS {
            held.keys.push(at);
        }
        Some(())
    });
    held
}

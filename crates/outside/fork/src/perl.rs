//! What lies in the memory of a perl: heads and bodies of values in arenas, and keys of hashes.
//!
//! To count a reference is to write to a value's head, and to use a text as a number is to write to
//! its head and its body. Both lie in arenas, which say nothing of who made the value. But the
//! value's own block does: the stack that allocated its text, its elements or its buckets. A value
//! without such a block is said to be of the arena that it lies in.

use std::ops::Range;

use heapprof_live::LiveProcess;
use heapprof_perl::{ArenaType, PerlRuntime};
use heapprof_process::PageSet;

use crate::cache::PageCache;

/// The head or the body of a value.
#[derive(Clone)]
pub(crate) struct PerlValuePart {
    /// Where it is.
    pub(crate) range: Range<u64>,
    /// What it is called.
    pub(crate) kind: &'static str,
    /// A place in a block of the same owner.
    pub(crate) in_block: Option<u64>,
}

/// What the perl of a process has.
#[derive(Default)]
pub(crate) struct PerlInventory {
    /// Heads and bodies of values that lie on wanted pages.
    pub(crate) parts: Vec<PerlValuePart>,
    /// A place in each arena, and what it is called.
    pub(crate) arenas: Vec<(u64, &'static str)>,
    /// Where each key begins that hashes share.
    pub(crate) keys: Vec<u64>,
}

/// More of them are not kept.
const MAX_INVENTORY_PARTS: usize = 1 << 25;

/// What the perl of a process has; nothing if there is none that can be read.
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
    // What can't be read is told as blocks.
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

//! The table of jumps for a process that has attached: it writes them, and takes them away when it
//! leaves. In a program that was started with the library, the table stays empty.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_abi::entry_patch::{
    ENTRY_JUMP_LEN, EntryPatch, EntryPatchRecord, EntryPatchTable, MAX_ENTRY_PATCHES,
};
use heapprof_platform::sys;

static TABLE: EntryPatchTable = [const { EntryPatchRecord::new() }; MAX_ENTRY_PATCHES];
static IS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Stores all jumps from now on. Returns the address of the table.
pub(super) fn begin_use() -> usize {
    IS_IN_USE.store(true, Ordering::Relaxed);
    (&raw const TABLE).addr()
}

/// Whether a process has attached, so that jumps have to be in the table.
pub(super) fn is_in_use() -> bool {
    IS_IN_USE.load(Ordering::Relaxed)
}

/// Adds jumps. Returns false if there is no room for all of them; then it adds none. Two threads do
/// not add at once.
pub(super) fn add(jumps: &[EntryPatch]) -> bool {
    let free = || TABLE.iter().filter(|record| record.is_free());
    if free().count() < jumps.len() {
        return false;
    }
    free()
        .zip(jumps)
        .for_each(|(record, jump)| record.store(jump));
    true
}

/// Returns the jumps to stubs in a range of addresses.
fn jumps_to(stubs: Range<usize>) -> impl Iterator<Item = &'static EntryPatchRecord> {
    let used = TABLE.iter().filter(|record| !record.is_free());
    used.filter(move |record| {
        let trampoline = record.trampoline.load(Ordering::Relaxed) as usize;
        stubs.contains(&trampoline)
    })
}

/// Removes the jumps to stubs in a range of addresses.
pub(super) fn remove(stubs: Range<usize>) {
    jumps_to(stubs).for_each(EntryPatchRecord::clear);
}

/// Whether one of the jumps to stubs in a range of addresses is in the program's code.
pub(super) fn are_written(stubs: Range<usize>) -> bool {
    jumps_to(stubs).any(|record| {
        let mut code = [0; ENTRY_JUMP_LEN];
        let at = record.at.load(Ordering::Relaxed) as usize;
        let jump = record.jump.load(Ordering::Relaxed).to_ne_bytes();
        sys::read_memory(at, &mut code) == code.len() && jump.starts_with(&code)
    })
}

/// Returns the number of jumps.
pub(super) fn len() -> usize {
    TABLE.iter().filter(|record| !record.is_free()).count()
}

//! Checks whether a thread's stack is unchanged since the last walk. The check writes nothing.
//!
//! Most allocations come from the same stack as the previous allocation. The check reads the same
//! fields as [`walk`](crate::walk). It compares each frame with the expected one, and stops at the
//! first difference.

use heapprof_memory::Memory;

use crate::frame::{LocatedPythonFrame, POINTER_MARK_MASK, known_version_of};
use crate::layout::{FrameChain, OUTER_OFFSET, PythonLayout};

/// Compares a thread's frames with `last`, whose first frame is the outermost one. Returns `Some`
/// if all are equal. `state` is the thread's state.
#[inline(always)]
pub(crate) fn compare<M: Memory>(
    memory: M,
    layout: &PythonLayout,
    state: u64,
    last: &[LocatedPythonFrame],
) -> Option<()> {
    let newest = memory.u64(state + layout.newest)?;
    match layout.chain {
        FrameChain::Objects => objects(memory, layout, newest, last),
        FrameChain::Entries => {
            let at = memory.u64(newest + layout.newest_in)?;
            entries(memory, layout, at, newest, last)
        }
        FrameChain::Shims => shims(memory, layout, memory.u64(newest + layout.newest_in)?, last),
        FrameChain::Direct => shims(memory, layout, newest, last),
    }
}

/// Compares the frames from `at` on with `last`, for [`FrameChain::Objects`]. Returns `Some` if all
/// are equal.
#[inline(always)]
pub(crate) fn objects<M: Memory>(
    memory: M,
    layout: &PythonLayout,
    mut at: u64,
    last: &[LocatedPythonFrame],
) -> Option<()> {
    for seen in last.iter().rev() {
        (at == seen.at).then_some(())?;
        let fields = [layout.previous, layout.code, layout.instruction];
        let [previous, code, place] = memory.known_fields(at, fields)?;
        let is_same = code == seen.frame.code && u64::from(place as u32) == seen.frame.place;
        is_same.then_some(())?;
        (known_version_of(memory, layout, code)? == seen.frame.version).then_some(())?;
        at = previous;
    }
    (at == 0 && !last.is_empty()).then_some(())
}

/// Compares the frames from `at` on with `last`, for [`FrameChain::Entries`]. Returns `Some` if all
/// are equal. `outer` is the structure on the native stack for the newest frame that native code
/// entered.
#[inline(always)]
pub(crate) fn entries<M: Memory>(
    memory: M,
    layout: &PythonLayout,
    mut at: u64,
    mut outer: u64,
    last: &[LocatedPythonFrame],
) -> Option<()> {
    for seen in last.iter().rev() {
        (at == seen.at).then_some(())?;
        let fields = [
            layout.previous,
            layout.code,
            layout.instruction,
            layout.owner_word(),
        ];
        let [previous, code, place, owner] = memory.known_fields(at, fields)?;
        (code == seen.frame.code && place == seen.frame.place).then_some(())?;
        (known_version_of(memory, layout, code)? == seen.frame.version).then_some(())?;
        let mut entry = 0;
        if layout.owner_of(owner) != 0 {
            let next = memory.u64(outer + OUTER_OFFSET)?;
            (entry, outer) = if next == 0 { (1, outer) } else { (outer, next) };
        }
        (entry == seen.frame.entry).then_some(())?;
        at = previous;
    }
    (at == 0 && !last.is_empty()).then_some(())
}

/// Compares the frames from `at` on with `last`, for chains with shims. Returns `Some` if all are
/// equal.
#[inline(always)]
pub(crate) fn shims<M: Memory>(
    memory: M,
    layout: &PythonLayout,
    mut at: u64,
    last: &[LocatedPythonFrame],
) -> Option<()> {
    let mut left = last.iter().rev();
    let mut expected = left.next();
    // The place on the native stack where the evaluator was entered for the previous frame: as far
    // as it is known now, and as it was in the last stack.
    let (mut entry, mut known) = (0, None);
    // There can be more links than this between the frames only if memory is overwritten.
    for _ in 0..=4 * last.len() {
        if at == 0 {
            return (expected.is_none() && known == Some(entry)).then_some(());
        }
        let fields = [
            layout.previous,
            layout.code,
            layout.instruction,
            layout.owner_word(),
        ];
        let [previous, code, place, owner] = memory.fields(at, fields)?;
        let owner = layout.owner_of(owner);
        if owner >= layout.shim {
            if owner == layout.shim && entry == 0 && known.is_some() {
                entry = at;
            }
        } else {
            let code = code & !POINTER_MARK_MASK;
            let version = || {
                layout
                    .version
                    .and_then(|version| memory.u32(code + u64::from(version)))
            };
            match expected {
                Some(seen) if at == seen.at => {
                    let is_same = code == seen.frame.code && place == seen.frame.place;
                    (is_same && known.is_none_or(|known| entry == known)).then_some(())?;
                    (version()? == seen.frame.version).then_some(())?;
                    (entry, known) = (0, Some(seen.frame.entry));
                    expected = left.next();
                }
                _ => {
                    let [filename, name] = memory.fields(code, [layout.filename, layout.name])?;
                    (filename == name).then_some(())?;
                }
            }
        }
        at = previous;
    }
    None
}

#[cfg(test)]
mod tests;

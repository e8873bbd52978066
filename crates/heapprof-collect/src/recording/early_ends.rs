//! How many stacks of a profile end before their outermost frame, by file.

use heapprof_books::end;
use heapprof_profile::{EarlyEndCounts, EarlyEndReason, recorded};

use crate::code::mappings::{Mapping, find};
use crate::engine::Engine;
use crate::recording::sums::Sums;
use crate::tables::script_frames::Word;

/// The comments that say it; none if all stacks are whole.
pub(super) fn early_ends(engine: &Engine, sums: &[Sums]) -> Vec<String> {
    let stacks = &engine.books.stacks;
    let mut counts = EarlyEndCounts::default();
    let (mut known, mut frames): (Option<Vec<Mapping>>, Vec<u64>) = (None, Vec::new());
    for (id, sum) in sums.iter().enumerate() {
        let end = stacks.end(id as u32);
        let reason = EarlyEndReason::of_number(end & end::REASON);
        // A stack without a value is not in the profile.
        let (Some(reason), true) = (reason, sum.allocated[0] > 0) else {
            continue;
        };
        let known = known.get_or_insert_with(|| engine.code.mappings.known(&engine.process));
        let generation = stacks.read(id as u32, &mut frames);
        let mut oldest = frames
            .iter()
            .rev()
            .filter_map(|&word| match Word::of(word) {
                Word::Address(pc) => Some(pc),
                _ => None,
            });
        let last = match (reason, end & end::CALLEE) {
            (EarlyEndReason::NoFile, _) => None,
            (_, 0) => oldest.next(),
            _ => oldest.nth(1),
        };
        let mapping = last.and_then(|pc| find(known, (pc - 1) as usize, generation));
        counts.add(mapping, reason, sum.allocated, || {
            let file = mapping.map(|i| &known[i]);
            file.map_or_else(String::new, |of| {
                recorded::mapped_file(&of.path, of.deleted, of.image.build_id())
            })
        });
    }
    counts.comments()
}

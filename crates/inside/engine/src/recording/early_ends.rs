//! The number of stacks in a profile that end before their outermost frame, by file.

use heapprof_abi::{StackNumber, stack_end};
use heapprof_profile::{EarlyEndCounts, EarlyEndReason, recording_texts};

use crate::code::mappings::{CodeMapping, find};
use crate::engine::Engine;
use crate::recording::sums::StackSums;
use crate::tables::script_frames::FrameWord;

/// Returns the comments that report stacks that end early; none if all stacks are whole.
pub(super) fn early_ends(engine: &Engine, sums: &[StackSums]) -> Vec<String> {
    let stacks = &engine.ledger.stacks;
    let mut counts = EarlyEndCounts::default();
    let (mut known, mut frames): (Option<Vec<CodeMapping>>, Vec<u64>) = (None, Vec::new());
    for (number, sum) in (0..).map(StackNumber::from_u32).zip(sums) {
        let end = stacks.end(number);
        let reason = EarlyEndReason::from_number(end & stack_end::REASON_MASK);
        // A stack without a value is not in the profile.
        let (Some(reason), true) = (reason, sum.allocated[0] > 0) else {
            continue;
        };
        let known =
            known.get_or_insert_with(|| engine.code.mappings.known_mappings(&engine.process));
        let generation = stacks.read(number, &mut frames);
        let mut oldest = frames
            .iter()
            .rev()
            .filter_map(|&word| match FrameWord::from_word(word) {
                FrameWord::Address(frame) => Some(frame),
                _ => None,
            });
        let last = match (reason, end & stack_end::CALLEE_FLAG) {
            (EarlyEndReason::NoFile, _) => None,
            (_, 0) => oldest.next(),
            _ => oldest.nth(1),
        };
        let mapping =
            last.and_then(|frame| find(known, frame.lookup_address() as usize, generation));
        counts.add(mapping, reason, sum.allocated, || {
            let file = mapping.map(|i| &known[i]);
            file.map_or_else(String::new, |of| {
                recording_texts::mapped_file(&of.path, of.deleted, of.image.build_id())
            })
        });
    }
    counts.comments()
}

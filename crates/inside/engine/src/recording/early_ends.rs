//! Counts the stacks in a profile that end before their outermost frame, by file.

use heapprof_abi::{StackNumber, stack_end};
use heapprof_profile::EarlyEndCounts;

use crate::engine::Engine;
use crate::recording::code::to_recorded;
use crate::recording::sums::StackSums;

/// Returns the comments about stacks that end early. There are none if all stacks are complete.
pub(super) fn early_ends(engine: &Engine, sums: &[StackSums]) -> Vec<String> {
    let stacks = &engine.ledger.stacks;
    let ends_early = |&(number, sum): &(StackNumber, &StackSums)| {
        // A stack without a value is not in the profile.
        stacks.end(number) & stack_end::REASON_MASK != stack_end::OUTERMOST && sum.allocated[0] > 0
    };
    let numbered = (0..).map(StackNumber::from_u32).zip(sums);
    let mut early = numbered.filter(ends_early).peekable();
    if early.peek().is_none() {
        return Vec::new();
    }
    let known = engine.code.mappings.known_mappings(&engine.process);
    let code = to_recorded(&known);
    let (mut counts, mut words) = (EarlyEndCounts::default(), Vec::new());
    for (number, sum) in early {
        let generation = stacks.read(number, &mut words);
        counts.add_stack(&code, stacks.end(number), generation, &words, sum.allocated);
    }
    counts.comments()
}

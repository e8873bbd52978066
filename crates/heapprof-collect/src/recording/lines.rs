//! How the memory at each line grows: told, while the program runs, to whoever started it.
//!
//! A line is a place in the program's text, which only `record` knows. Here it is the innermost
//! word of a stack. Once the stacks of such a word have changed enough, all of them are told of, by
//! how much each of them has changed since its last word.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering;

use crate::dump::following::step_of;
use crate::dump::output;
use crate::engine::Engine;
use crate::options::Options;
use crate::platform::sys;
use crate::recording::snapshot::{self, AddressHasher};
use crate::tables::script_frames::Word;

/// A stack whose memory in use has changed.
struct Changed {
    stack: u32,
    /// The innermost word.
    leaf: u64,
    /// Bytes in use, and by how much they have changed.
    in_use: i64,
    growth: i64,
}

/// Tells of the stacks that have changed enough, if the recording is to follow them.
///
/// It is this thread's turn to dump, and there is memory for a dump.
pub(super) fn look(engine: &Engine, options: &Options) {
    let Some(least) = options.triggers.line_growth else {
        return;
    };
    let began = sys::nanoseconds(libc::CLOCK_MONOTONIC);
    let (process, due) = (&engine.process, &engine.dumping.due);
    let mut told = due.following.take(process);
    let sums = snapshot::sums(engine);
    if told.len() < sums.len() {
        // A vector that grows by doubling would leave its old places behind.
        told.reserve_exact(sums.len().next_power_of_two() - told.len());
        told.resize(sums.len(), 0);
    }
    let mut changed = Vec::new();
    let mut by_leaf = HashMap::<u64, u64, BuildHasherDefault<AddressHasher>>::default();
    for (stack, (sum, told)) in sums.iter().zip(&told).enumerate() {
        let in_use = sum.in_use()[1];
        if in_use != *told {
            let leaf = leaf_of(engine, stack as u32);
            let change = by_leaf.entry(leaf).or_default();
            *change = change.saturating_add(in_use.abs_diff(*told));
            changed.push(Changed {
                stack: stack as u32,
                leaf,
                in_use,
                growth: in_use.wrapping_sub(*told),
            });
        }
    }
    let step = step_of(least);
    changed.retain(|one| by_leaf[&one.leaf] >= step);
    if !changed.is_empty() && tell(engine, options, &changed) {
        for one in &changed {
            told[one.stack as usize] = one.in_use;
        }
    }
    due.following.put(process, told);
    due.looked(began);
}

fn tell(engine: &Engine, options: &Options, changed: &[Changed]) -> bool {
    let mut message = Vec::new();
    engine.code.mappings.remember(&engine.process);
    let grown = changed.iter().map(|one| (one.stack, one.growth));
    snapshot::write_growth(engine, &options.wrappers, grown, &mut message).is_ok()
        && output::add_to_lines(&options.output.list, &message)
}

/// The innermost word of a stack.
fn leaf_of(engine: &Engine, stack: u32) -> u64 {
    let mut words = [0; 2];
    let n = engine.books.stacks.read_into(stack, &mut words);
    match Word::of(words[0]) {
        Word::Label(..) if n > 1 => words[1],
        _ => words[0],
    }
}

/// Whether the process has told its last.
pub(super) fn has_ended(engine: &Engine) -> bool {
    engine.dumping.ended.load(Ordering::Acquire) || engine.dumping.is_about_to_exec()
}

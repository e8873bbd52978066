//! Reports to `record`, which started the program, how the memory of each line grows while the
//! program runs.
//!
//! Only `record` knows the lines of the program's source code. In this module, a line is the
//! innermost word of a stack. Once the stacks with the same innermost word have changed enough, all
//! of them are reported, each with its change since its last report.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering;

use heapprof_abi::{FrameWord, RecordingEpoch, StackNumber};
use heapprof_platform::sys::{self, EngineFile};

use crate::dump::growth_reports::{ReportedStack, growth_step};
use crate::dump::output;
use crate::engine::Engine;
use crate::options::RecordingOptions;
use crate::recording::snapshot::{self, AddressHasher};
use crate::recording::sums::{self, StackSums};

/// A stack whose memory in use has changed.
struct ChangedStack {
    stack: StackNumber,
    /// The innermost word of the stack.
    leaf: u64,
    /// Bytes in use by the stack. The field `growth` is their change since the last report.
    in_use: i64,
    growth: i64,
}

/// Reports the stacks that have changed enough, if the recording reports the growth of lines.
///
/// If `is_last` is true, this is the last scan of the process. Then the memory that was in use at
/// the heap's peak is reported, too, because the heap may have grown and shrunk since the previous
/// scan.
///
/// This thread must have the turn to dump, and there must be memory for a dump.
pub(super) fn scan(engine: &Engine, options: &RecordingOptions, is_last: bool) {
    let Some(least) = options.triggers.line_growth else {
        return;
    };
    let Some(file) = output::open_lines(&options.output.list) else {
        return;
    };
    let (epoch, mut reported, sums) = reported_and_current(engine);
    let mut changed = Vec::new();
    let mut by_leaf = HashMap::<u64, u64, BuildHasherDefault<AddressHasher>>::default();
    for (stack, (sum, reported)) in sums.iter().zip(&reported).enumerate() {
        let stack = StackNumber::from_index(stack);
        let in_use = sum.in_use()[1];
        let mut growth = in_use.wrapping_sub(reported.in_use);
        if is_last {
            growth = growth.max(sum.peak[1].wrapping_sub(reported.most));
        }
        if growth != 0 {
            let leaf = leaf_word(engine, stack);
            let change = by_leaf.entry(leaf).or_default();
            *change = change.saturating_add(growth.unsigned_abs());
            changed.push(ChangedStack {
                stack,
                leaf,
                in_use,
                growth,
            });
        }
    }
    let step = growth_step(least);
    changed.retain(|one| by_leaf[&one.leaf] >= step);
    if !changed.is_empty() && report_changes(engine, options, &changed, &file) {
        for one in &changed {
            reported[one.stack.to_index()].note_report(one.in_use);
        }
    }
    let following = &engine.dumping.due.following;
    following.put(&engine.process, epoch, reported);
}

/// Notes the memory that a forked child has inherited, so that it does not count as growth in the
/// child.
pub(super) fn inherit(engine: &Engine) {
    let following = &engine.dumping.due.following;
    if !following.is_on() || !engine.reserve(snapshot::memory_needed(engine)) {
        return;
    }
    let (epoch, mut reported, sums) = reported_and_current(engine);
    for (reported, sum) in reported.iter_mut().zip(&sums) {
        reported.note_report(sum.in_use()[1]);
    }
    following.put(&engine.process, epoch, reported);
}

/// Returns the recording's number, the reported sizes of each stack, and the current sums of each
/// stack.
fn reported_and_current(engine: &Engine) -> (RecordingEpoch, Vec<ReportedStack>, Vec<StackSums>) {
    let process = &engine.process;
    let epoch = process.recorded.epoch();
    let mut reported = engine.dumping.due.following.take(process, epoch);
    let sums = sums::sums(engine);
    if reported.len() < sums.len() {
        // A vector that grows by doubling would leave its old places behind.
        reported.reserve_exact(sums.len().next_power_of_two() - reported.len());
        reported.resize(sums.len(), ReportedStack::default());
    }
    (epoch, reported, sums)
}

fn report_changes(
    engine: &Engine,
    options: &RecordingOptions,
    changed: &[ChangedStack],
    file: &EngineFile,
) -> bool {
    let mut profile = Vec::new();
    snapshot::remember_code(engine);
    let grown = changed.iter().map(|one| (one.stack, one.growth));
    if snapshot::write_growth(engine, &options.wrappers, grown, &mut profile).is_err() {
        return false;
    }
    file.write_all(&message(engine, profile)).is_ok()
}

/// Returns the message that contains `profile`.
pub(super) fn message(engine: &Engine, mut profile: Vec<u8>) -> Vec<u8> {
    // Each recording of a process, and each process with its number, begins at another time.
    let (process, (began, _)) = (sys::process_id(), engine.dumping.times());
    let exact = u8::from(engine.process.recorded.is_exact());
    let head = format!(
        "{MESSAGE_HEAD}{process} {began} {exact} {}\n",
        profile.len()
    );
    profile.splice(..0, head.bytes());
    profile
}

/// The text with which each message with a profile begins. If a message is cut short, a reader
/// finds the next message by this text.
const MESSAGE_HEAD: &str = "\n\0lines ";

/// Returns the innermost word of a stack.
fn leaf_word(engine: &Engine, stack: StackNumber) -> u64 {
    let mut words = [0; 3];
    let n = engine.ledger.stacks.read_into(stack, &mut words);
    let frame = words[..n].iter().find(|word| !FrameWord::is_label(**word));
    frame.copied().unwrap_or(words[0])
}

/// Whether the process has made its last report.
pub(super) fn has_ended(engine: &Engine) -> bool {
    engine.dumping.ended.load(Ordering::Acquire) || engine.dumping.is_about_to_exec()
}

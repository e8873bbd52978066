//! An account of the program's data by purpose. The data is the memory that the kernel counts as
//! VmData.
//!
//! An interpreter's provider reports the purpose of memory in use. The allocator reports its unused
//! memory, and the kernel reports the memory of files' variables. The rest is memory that none of
//! them reports.

use std::collections::BTreeMap;

use heapprof_abi::{FrameWord, StackNumber};

use crate::code::data::read_data;
use crate::engine::Engine;
use crate::recording::sums::StackSums;
use crate::stack::provider::ProviderReport;

/// Key of the label that names the purpose of a stack's memory.
const HOLDS_LABEL: &str = "holds";

/// Returns the account as comments for the profile. There are none if no provider reports anything,
/// or if the account can't be made. The allocator is queried only if `may_ask` is true, because the
/// query may take the allocator's locks.
pub(super) fn account(
    engine: &Engine,
    sums: &[StackSums],
    reports: &[(usize, ProviderReport)],
    may_ask: bool,
) -> Vec<String> {
    let claimed = reports.iter().flat_map(|(_, report)| &report.accounts);
    let mut parts: Vec<(String, i64)> = claimed
        .map(|(name, bytes)| (name.clone(), *bytes as i64))
        .collect();
    let recorded = &engine.process.recorded;
    // Memory from before a later recording, or from after one, is in no ledger.
    let is_whole = recorded.is_exact() && recorded.is_running() && recorded.epoch().to_u64() == 1;
    if parts.is_empty() || !is_whole || !may_ask || counts_mappings(engine) {
        return Vec::new();
    }
    let ask = engine.dumping.ask_allocator.get();
    let Some(allocator) = ask.and_then(|ask| ask()) else {
        return Vec::new();
    };
    let object = |address| engine.code.modules.find(&engine.process, address);
    let Some(data) = read_data(|address| object(address).map(|module| module.end)) else {
        return Vec::new();
    };
    let in_use: i64 = sums.iter().map(|sum| sum.in_use()[1]).sum();
    parts.extend(by_label(engine, sums));
    let named: i64 = parts.iter().map(|(_, bytes)| bytes).sum();
    let (mapped, free) = (allocator.mapped as i64, allocator.free as i64);
    parts.push(("other blocks".to_string(), in_use - named));
    parts.push(("malloc, overhead".to_string(), mapped - free - in_use));
    parts.push(("malloc, free".to_string(), free));
    parts.push((
        "variables of the program and its libraries".to_string(),
        data.of_files as i64,
    ));
    // The recording may have begun when much was there already. Then nothing adds up.
    let is_below = |(_, bytes): &(String, i64)| *bytes < 0;
    if parts.iter().any(is_below) || data.own == 0 {
        return Vec::new();
    }
    let rest = data.all as i64 - mapped - data.of_files as i64;
    parts.push(("rest".to_string(), rest));
    let all = format!(
        "memory: {} bytes are the data of the program (VmData)",
        data.all
    );
    let own = format!("memory: {} bytes more are heapprof's own", data.own);
    let parts = parts
        .into_iter()
        .map(|(name, bytes)| format!("memory: {bytes} bytes of {name}"));
    [all, own].into_iter().chain(parts).collect()
}

/// Whether the program's own mappings are counted as allocations.
fn counts_mappings(engine: &Engine) -> bool {
    let has_some = |regions: &mut crate::ledger::regions::ProgramMappings| !regions.is_empty();
    engine.ledger.regions.with(&engine.process, has_some)
}

/// Returns each purpose that a label names, with the bytes in use by the stacks with that label.
fn by_label(engine: &Engine, sums: &[StackSums]) -> Vec<(String, i64)> {
    let (mut by_word, mut frames) = (BTreeMap::<u64, i64>::new(), Vec::new());
    for (stack, sum) in (0..).map(StackNumber::from_u32).zip(sums) {
        let [_, bytes] = sum.in_use();
        if bytes == 0 {
            continue;
        }
        engine.ledger.stacks.read(stack, &mut frames);
        let labels = frames.iter().take_while(|word| FrameWord::is_label(**word));
        for &word in labels {
            *by_word.entry(word).or_default() += bytes;
        }
    }
    let mut by_text = BTreeMap::<String, i64>::new();
    for (word, bytes) in by_word {
        let FrameWord::Label(i, label) = FrameWord::from_word(word) else {
            continue;
        };
        let labels = engine.scripts.providers.get(i).map(|of| of.labels(label));
        let held = labels
            .into_iter()
            .flatten()
            .find(|(key, _)| key == HOLDS_LABEL);
        if let Some((_, text)) = held {
            *by_text.entry(text).or_default() += bytes;
        }
    }
    by_text.into_iter().collect()
}

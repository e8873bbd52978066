//! Makes a page anonymous: each name becomes a hash, and equal names have equal hashes.

use heapprof_analysis::OTHER_NAME;
use heapprof_web::WebReport;
use sha2::{Digest, Sha256};

/// Replaces all names by hashes, and leaves out paths, sources and commands.
pub fn hash_names(report: &mut WebReport) {
    let key = key(report);
    let hashed = |kind: &str, name: &str| {
        if name.is_empty() || name == OTHER_NAME {
            return name.to_string();
        }
        let digest = Sha256::new()
            .chain_update(key)
            .chain_update(kind)
            .chain_update([0])
            .chain_update(name)
            .finalize();
        let hex: String = digest[..6]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{kind}_{hex}")
    };
    for function in &mut report.functions {
        function.name = hashed("f", &function.name);
        function.start_line = 0;
    }
    for module in &mut report.modules {
        module.name = hashed("m", &module.name);
    }
    for (i, snapshot) in (1..).zip(&mut report.snapshots) {
        snapshot.name = format!("profile {i}");
        snapshot
            .peak_parts
            .iter_mut()
            .for_each(|part| part.name.clear());
    }
    report.files.iter_mut().for_each(String::clear);
    report.mapped.iter_mut().for_each(String::clear);
    report.frames.iter_mut().for_each(|frame| frame.line = 0);
    report.program = hashed("p", &report.program);
    report.source.clear();
    report.commands.clear();
    // The audit has names of processes, files and lines.
    report.forks = None;
}

/// Returns the key with which names are hashed. The key can be computed only from all names
/// together, so a reader can't find a name by hashing guesses.
fn key(report: &WebReport) -> [u8; 32] {
    let mut all = Sha256::new();
    let functions = report.functions.iter().map(|function| &function.name);
    for name in functions.chain(&report.files) {
        all.update(name);
        all.update([0]);
    }
    for snapshot in &report.snapshots {
        for value in snapshot.values.iter().flatten() {
            all.update(value.to_le_bytes());
        }
    }
    all.finalize().into()
}

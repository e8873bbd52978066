//! Divides a process's memory by purpose. The parts add up to the kernel's sums.

use std::collections::BTreeMap;
use std::io;

use crate::counters::StatusCounters;
use crate::identity::ProcessIdentity;
use crate::kind::{MAPPING_KINDS, MappingHints, MappingKind, MeasuredMapping, measured_mappings};
use crate::smaps::areas;
use crate::usage::MemoryUsage;

/// Maximum number of times that the mappings are read until they agree with the kernel's sums.
const MAX_READ_ATTEMPTS: usize = 5;

/// A part of a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// The name of the part, which is the name of a kind of mapping or of a mapped file.
    pub name: String,
    /// Number of mappings in the part.
    pub mappings: usize,
    /// The memory of the part's mappings.
    pub usage: MemoryUsage,
}

/// A process's memory, divided by purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBreakdown {
    /// The process's name, state and parent.
    pub identity: ProcessIdentity,
    /// Memory by kind, in the order of [`MAPPING_KINDS`], without empty kinds.
    pub kinds: Vec<(MappingKind, MemoryPart)>,
    /// Memory by the names of mappings, with the largest proportional share first.
    pub mappings: Vec<(MappingKind, MemoryPart)>,
    /// All mappings, in order of their addresses.
    pub regions: Vec<MeasuredMapping>,
    /// Bytes that are in the kernel's sums, but are rounded off in the proportional share of each
    /// mapping.
    pub rounding: MemoryUsage,
    /// The sum of all memory. It equals the sum of the parts and of [`rounding`](Self::rounding).
    pub total: MemoryUsage,
    /// Whether the total equals the sums in `smaps_rollup`. False if the kernel has no such file,
    /// or if the process changed during each attempt.
    pub is_as_kernel_sums: bool,
    /// The kernel's counters in `/proc/PID/status`.
    pub counters: StatusCounters,
}

/// Divides a process's memory by purpose.
///
/// # Errors
/// The process may be gone, or this user may not read it.
pub fn explain(pid: u32) -> io::Result<MemoryBreakdown> {
    let mut left = MAX_READ_ATTEMPTS;
    loop {
        left -= 1;
        let explained = MemoryTexts::read(pid)?.divide();
        if explained.is_as_kernel_sums || left == 0 {
            return Ok(explained);
        }
    }
}

/// The kernel's texts about a process's memory. To read them takes less time than to divide the
/// memory by them, so a process that is suspended meanwhile goes on sooner.
#[derive(Clone, Debug)]
pub struct MemoryTexts {
    identity: ProcessIdentity,
    smaps: String,
    /// The kernel's sums; `None` if it has none.
    rollup: Option<MemoryUsage>,
    counters: StatusCounters,
    hints: MappingHints,
}

impl MemoryTexts {
    /// Reads the texts.
    ///
    /// # Errors
    /// The process may be gone, or this user may not read it.
    pub fn read(pid: u32) -> io::Result<Self> {
        let pid = thread_with_memory(pid)?;
        let identity = ProcessIdentity::from_pid(pid)?;
        let smaps = crate::read(pid, "smaps")?;
        let rollup = match MemoryUsage::from_pid(pid) {
            Ok(rollup) => Some(rollup),
            // Kernels before 4.14 have no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && crate::is_there(pid) => None,
            Err(error) => return Err(error),
        };
        let hints = MappingHints {
            program: program_file(pid),
            stack_pointers: stack_pointers(pid),
            threads: usize::try_from(identity.threads).unwrap_or(0),
        };
        Ok(Self {
            identity,
            smaps,
            rollup,
            counters: StatusCounters::from_pid(pid)?,
            hints,
        })
    }

    /// Returns the process's name, state and parent.
    #[must_use]
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Returns the number of bytes of the text about the mappings.
    #[must_use]
    pub fn size(&self) -> usize {
        self.smaps.len()
    }

    /// Returns the most bytes that were resident at one time, if the kernel says so.
    #[must_use]
    pub fn high_water(&self) -> Option<u64> {
        self.counters.get("VmHWM")
    }

    /// Divides the memory by purpose.
    #[must_use]
    pub fn divide(&self) -> MemoryBreakdown {
        break_down(
            self.identity.clone(),
            &self.smaps,
            self.rollup,
            self.counters.clone(),
            &self.hints,
        )
    }
}

/// Returns a thread through which the kernel shows the process's memory: the first one that has not
/// ended.
fn thread_with_memory(pid: u32) -> io::Result<u32> {
    if !ProcessIdentity::from_pid(pid)?.has_lost_its_first_thread() {
        return Ok(pid);
    }
    let threads = std::fs::read_dir(crate::path(pid, "task"))?.flatten();
    let mut threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(threads.find(|&thread| thread != pid).unwrap_or(pid))
}

fn break_down(
    identity: ProcessIdentity,
    text: &str,
    rollup: Option<MemoryUsage>,
    counters: StatusCounters,
    around: &MappingHints,
) -> MemoryBreakdown {
    let areas = areas(text);
    let regions = measured_mappings(&areas, around);
    let mut total = MemoryUsage::default();
    let mut by_kind: BTreeMap<MappingKind, MemoryPart> = BTreeMap::new();
    let mut by_name: BTreeMap<(MappingKind, &str), MemoryPart> = BTreeMap::new();
    for region in &regions {
        let (kind, usage) = (region.kind, &region.usage);
        total.add(usage);
        let name = match region.name.as_str() {
            "" => kind.name(),
            name => name,
        };
        let new = |name: &str| MemoryPart {
            name: name.to_string(),
            mappings: 0,
            usage: MemoryUsage::default(),
        };
        let of_kind = by_kind.entry(kind).or_insert_with(|| new(kind.name()));
        let of_name = by_name.entry((kind, name)).or_insert_with(|| new(name));
        for part in [of_kind, of_name] {
            part.mappings += 1;
            part.usage.add(usage);
        }
    }
    let rounding = rollup.and_then(|rollup| rounding(&rollup, &total, areas.len()));
    let is_as_kernel_sums = rounding.is_some();
    let rounding = rounding.unwrap_or_default();
    total.add(&rounding);
    let in_order = MAPPING_KINDS
        .iter()
        .filter_map(|(kind, ..)| by_kind.remove_entry(kind));
    let kinds = in_order.collect();
    let mut mappings: Vec<(MappingKind, MemoryPart)> = by_name
        .into_iter()
        .map(|((kind, _), part)| (kind, part))
        .collect();
    mappings.sort_by_key(|(_, part)| std::cmp::Reverse(part.usage.pss));
    MemoryBreakdown {
        identity,
        kinds,
        mappings,
        regions,
        rounding,
        total,
        is_as_kernel_sums,
        counters,
    }
}

/// Returns the difference between the kernel's sums and the sums over all `mappings` mappings.
/// Returns `None` if rounding does not explain the difference, because the memory has changed
/// between the two readings.
fn rounding(rollup: &MemoryUsage, total: &MemoryUsage, mappings: usize) -> Option<MemoryUsage> {
    // The kernel rounds the proportional parts of each mapping down to KiB, but its sum only once.
    let most = mappings as u64 * 1024;
    let cut = |sum: u64, of_parts: u64| sum.checked_sub(of_parts).filter(|cut| *cut <= most);
    let rounding = MemoryUsage {
        pss: cut(rollup.pss, total.pss)?,
        swap_pss: cut(rollup.swap_pss, total.swap_pss)?,
        locked: cut(rollup.locked, total.locked)?,
        ..MemoryUsage::default()
    };
    let mut all = *total;
    all.add(&rounding);
    // The kernel's sums have no addresses.
    all.size = rollup.size;
    (all == *rollup).then_some(rounding)
}

/// Returns the path of the file that a process runs.
fn program_file(pid: u32) -> Option<String> {
    let path = std::fs::read_link(crate::path(pid, "exe")).ok()?;
    let path = path.to_string_lossy();
    Some(path.strip_suffix(" (deleted)").unwrap_or(&path).to_string())
}

/// Returns the stack pointers of a process's threads, except the first thread. The kernel reports
/// the stack pointer of a thread only while the thread waits in a system call, and only to readers
/// that may debug the process.
fn stack_pointers(pid: u32) -> Vec<u64> {
    let Ok(threads) = std::fs::read_dir(crate::path(pid, "task")) else {
        return Vec::new();
    };
    let pointer = |thread: std::fs::DirEntry| {
        if thread.file_name().to_str() == Some(&pid.to_string()) {
            return None;
        }
        let text = std::fs::read_to_string(thread.path().join("syscall")).ok()?;
        // number, six arguments, stack pointer, program counter; or -1, stack pointer, counter
        let word = text.split_whitespace().rev().nth(1)?;
        u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
    };
    threads.flatten().filter_map(pointer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_the_kernel_s_sums() {
        let text = "\
1000-2000 r-xp 00000000 08:01 1 /bin/a
Size: 4 kB
Rss: 4 kB
Pss: 1 kB
Shared_Clean: 4 kB
3000-4000 rw-p 00000000 00:00 0 [heap]
Size: 8 kB
Rss: 8 kB
Pss: 5 kB
Private_Dirty: 8 kB
";
        let mut rollup = MemoryUsage::default();
        let of_kernel = [
            "Rss: 12 kB",
            "Pss: 7 kB",
            "Shared_Clean: 4 kB",
            "Private_Dirty: 8 kB",
        ];
        of_kernel.iter().for_each(|line| rollup.take(line));
        let around = MappingHints::default();
        let counters = StatusCounters::from_pid(std::process::id()).unwrap();
        let make = |rollup| {
            break_down(
                ProcessIdentity::default(),
                text,
                Some(rollup),
                counters.clone(),
                &around,
            )
        };
        let found = make(rollup);
        assert!(found.is_as_kernel_sums);
        assert_eq!((found.total.pss, found.rounding.pss), (7 << 10, 1 << 10));
        let parts = found.kinds.iter().map(|(_, part)| part.usage.pss);
        assert_eq!(parts.sum::<u64>() + found.rounding.pss, found.total.pss);
        // The memory changed between the two readings, or the sum is more than rounding can
        // explain.
        for change in [(12 << 10, 1 << 20), (13 << 10, 7 << 10)] {
            let moved = MemoryUsage {
                rss: change.0,
                pss: change.1,
                ..rollup
            };
            let found = make(moved);
            assert!(!found.is_as_kernel_sums);
            assert_eq!((found.total.pss, found.rounding.pss), (6 << 10, 0));
        }
    }

    #[test]
    fn this_process_is_explained() {
        let found = explain(std::process::id()).unwrap();
        assert!(
            found
                .kinds
                .iter()
                .any(|(kind, _)| *kind == MappingKind::Program)
        );
        let sum = |of: fn(&MemoryUsage) -> u64| {
            let parts = found.kinds.iter().map(|(_, part)| of(&part.usage));
            parts.sum::<u64>()
        };
        assert_eq!(sum(|usage| usage.rss), found.total.rss);
        assert_eq!(sum(|usage| usage.pss) + found.rounding.pss, found.total.pss);
        let mappings = found.mappings.iter().map(|(_, part)| part.usage.rss);
        assert_eq!(mappings.sum::<u64>(), found.total.rss);
        let regions = found.regions.iter().map(|region| region.usage.rss);
        assert_eq!(regions.sum::<u64>(), found.total.rss);
        assert!(found.regions.is_sorted_by_key(|region| region.range.start));
        assert!(explain(0).is_err());
    }
}

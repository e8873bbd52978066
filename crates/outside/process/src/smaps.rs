//! Reads `/proc/PID/smaps`: the resident and swapped-out memory of each mapping, and whether the
//! mapping belongs to heapprof.

use std::fs;

use crate::usage::MemoryUsage;

/// The name of the mapping of a saved ledger.
const SHARED_LEDGER_NAME: &str = "/memfd:heapprof";
/// The name of heapprof's other mappings, if the kernel can name mappings.
const OWN_MEMORY_NAME: &str = "[anon:heapprof]";

/// A mapping of a process, with the memory in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmapsMapping<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// The process's access rights to the mapping, and whether it is private, as in `rw-p`.
    pub rights: &'a str,
    /// Path of the mapped file, or the kernel's name for the mapping; empty if there is neither.
    pub name: &'a str,
    /// The memory in the mapping.
    pub usage: MemoryUsage,
    /// The kernel's flags of the mapping (`VmFlags`), as pairs of letters.
    pub flags: &'a str,
}

impl SmapsMapping<'_> {
    /// Whether the mapping is heapprof's own memory in the process.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        // heapprof advises the kernel that its mappings are read at random (`rr`).
        let is_unnamed = self.name.is_empty() && self.has_flag("rr");
        self.name == OWN_MEMORY_NAME || self.name.starts_with(SHARED_LEDGER_NAME) || is_unnamed
    }

    /// Whether the mapping has no resident and no swapped-out memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.usage.rss == 0 && self.usage.swap == 0
    }

    /// Whether the mapping has the kernel's flag `flag`, a name of two letters.
    #[must_use]
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.split_whitespace().any(|one| one == flag)
    }
}

/// Returns the resident bytes of heapprof's own memory in a process; `None` if they can't be
/// determined.
#[must_use]
pub fn own_memory(pid: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/smaps")).ok()?;
    sum_own_memory(&areas(&String::from_utf8_lossy(&text)))
}

/// Whether a part of a process's saved ledger is swapped out. Such pages are in no page table, so
/// in `/proc/PID/pagemap` they look like pages that were never touched.
#[must_use]
pub fn is_shared_ledger_swapped(pid: u32) -> bool {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // The kernel takes longer to report each mapping the larger the process is, so swap is checked
    // first.
    uses_swap(&memory) && {
        let text = fs::read(format!("/proc/{pid}/smaps")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut areas = areas(&text).into_iter();
        areas.any(|area| area.name.starts_with(SHARED_LEDGER_NAME) && area.usage.swap > 0)
    }
}

fn sum_own_memory(areas: &[SmapsMapping<'_>]) -> Option<u64> {
    let ours = areas.iter().filter(|area| area.is_ours());
    let bytes = ours.map(|area| area.usage.rss).fold(0, u64::saturating_add);
    (bytes > 0).then_some(bytes)
}

/// Whether any memory of this machine is swapped out, by the text of `/proc/meminfo`.
fn uses_swap(text: &str) -> bool {
    let amount = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim().to_string())
    };
    amount("SwapTotal:") != amount("SwapFree:")
}

/// Parses the mappings in the text of `/proc/PID/smaps`. The kernel makes this text in pieces, and
/// reports a mapping that grows between two pieces twice. The later report counts, so no two
/// mappings overlap.
#[must_use]
pub fn areas(text: &str) -> Vec<SmapsMapping<'_>> {
    let mut all: Vec<SmapsMapping<'_>> = Vec::new();
    for line in text.lines() {
        let (first, mut rest) = line.split_once(' ').unwrap_or((line, ""));
        let Some(field) = first.strip_suffix(':') else {
            let Some((start, end)) = addresses(first) else {
                continue;
            };
            // perms offset dev inode name
            let mut next = || {
                let (field, behind) = rest.split_once(' ').unwrap_or((rest, ""));
                rest = behind.trim_start();
                field
            };
            let rights = next();
            for _ in 0..3 {
                next();
            }
            let overlaps = |before: &SmapsMapping<'_>| before.start < end && start < before.end;
            while all.last().is_some_and(overlaps) {
                all.pop();
            }
            all.push(SmapsMapping {
                start,
                end,
                rights,
                name: rest.trim(),
                ..SmapsMapping::default()
            });
            continue;
        };
        let Some(area) = all.last_mut() else {
            continue;
        };
        match field {
            "VmFlags" => area.flags = rest.trim(),
            _ => area.usage.take(line),
        }
    }
    all
}

/// Parses the addresses of a mapping; `None` if `range` is no range.
fn addresses(range: &str) -> Option<(u64, u64)> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    Some((hex(start)?, hex(end)?)).filter(|(start, end)| start < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f00-7f10 rw-p 00000000 00:00 0 \nSize: 64 kB\nRss: 5 kB\nSwap: 3 kB\nVmFlags: rd wr rr\n\
7f20-7f30 rw-s 00000000 00:01 77 /memfd:heapprof (deleted)\nRss: 8 kB\nSwap: 4 kB\n\
7f40-7f50 rw-p 00000000 00:00 0    [anon:heapprof]\nRss: 16 kB\nVmFlags: rd wr rr\n\
7f60-7f70 r-xp 00000000 08:01 9 /lib/a b.so\nRss: 32 kB\nVmFlags: rd ex rr\n\
7f80-7f90 rw-p 00000000 00:00 0 \nRss: 64 kB\nVmFlags: rd wr\n";

    #[test]
    fn only_our_own_mappings_count() {
        let areas = areas(SMAPS);
        let names: Vec<&str> = areas.iter().map(|area| area.name).collect();
        let expected = [
            "",
            "/memfd:heapprof (deleted)",
            OWN_MEMORY_NAME,
            "/lib/a b.so",
            "",
        ];
        assert_eq!(names, expected);
        assert_eq!(areas[1].usage.swap, 4 << 10);
        let first = (areas[0].start, areas[0].end, areas[0].rights);
        assert_eq!(first, (0x7f00, 0x7f10, "rw-p"));
        assert_eq!(sum_own_memory(&areas), Some((5 + 8 + 16) << 10));
        assert_eq!(sum_own_memory(&areas[3..]), None);
    }

    #[test]
    fn a_mapping_that_grew_while_it_was_read_counts_once() {
        let text = "\
1000-2000 rw-p 00000000 08:01 9 /a\nRss: 1 kB\n\
5000-6000 rw-p 00000000 00:00 0 [heap]\nRss: 2 kB\n\
5000-9000 rw-p 00000000 00:00 0 [heap]\nRss: 16 kB\n\
no mapping\n\
9000-a000 rw-p 00000000 00:00 0 \nRss: 4 kB\n";
        let areas = areas(text);
        let sizes: Vec<u64> = areas.iter().map(|area| area.usage.rss >> 10).collect();
        assert_eq!(sizes, [1, 16, 4]);
    }

    #[test]
    fn a_machine_swaps_if_some_is_taken() {
        let swap = |free| format!("MemTotal: 9 kB\nSwapTotal:  8 kB\nSwapFree: {free} kB\n");
        assert!(uses_swap(&swap(7)) && !uses_swap(&swap(8)) && !uses_swap(""));
    }
}

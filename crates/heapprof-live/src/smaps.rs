//! What `/proc/PID/smaps` says of the memory that is heapprof's own in a process: how much of it
//! there is, and whether some is swapped out.

use std::fs;

/// What the mapping of kept books is called.
const KEPT: &str = "/memfd:heapprof";
/// What heapprof's other mappings are called, if the kernel can name them.
const NAMED: &str = "[anon:heapprof]";

/// A mapping.
#[derive(Debug, Default, PartialEq, Eq)]
struct Area<'a> {
    name: &'a str,
    /// How many KiB are in memory, and how many are swapped out.
    resident: u64,
    swapped: u64,
    /// Whether it is said to be read at random, as heapprof's own mappings are.
    is_random: bool,
}

/// Bytes of heapprof's own that a process has in memory; `None` if they can't be told.
#[must_use]
pub fn own_memory(pid: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/smaps")).ok()?;
    own(&areas(&String::from_utf8_lossy(&text)))
}

/// Whether a part of a process's kept books is swapped out. Such pages are in no page table, so
/// `/proc/PID/pagemap` does not tell them from pages that were never touched.
pub(crate) fn is_swapped(pid: u32) -> bool {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // To ask about each mapping takes the kernel as long as the process is large.
    uses_swap(&memory) && {
        let text = fs::read(format!("/proc/{pid}/smaps")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut areas = areas(&text).into_iter();
        areas.any(|area| area.name.starts_with(KEPT) && area.swapped > 0)
    }
}

fn own(areas: &[Area<'_>]) -> Option<u64> {
    let is_ours = |area: &&Area<'_>| {
        let is_unnamed = area.name.is_empty() && area.is_random;
        area.name == NAMED || area.name.starts_with(KEPT) || is_unnamed
    };
    let ours = areas.iter().filter(is_ours);
    let kib = ours.map(|area| area.resident).fold(0, u64::saturating_add);
    (kib > 0).then(|| kib.saturating_mul(1024))
}

/// Whether anything of this machine is swapped out, as `/proc/meminfo` says it.
fn uses_swap(text: &str) -> bool {
    let amount = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim().to_string())
    };
    amount("SwapTotal:") != amount("SwapFree:")
}

/// The mappings that a text tells of.
fn areas(text: &str) -> Vec<Area<'_>> {
    let mut all: Vec<Area<'_>> = Vec::new();
    for line in text.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let Some(field) = first.strip_suffix(':') else {
            // range perms offset dev inode name
            let mut rest = rest;
            for _ in 0..4 {
                rest = rest
                    .trim_start()
                    .split_once(' ')
                    .map_or("", |(_, rest)| rest);
            }
            all.push(Area {
                name: rest.trim(),
                ..Area::default()
            });
            continue;
        };
        let Some(area) = all.last_mut() else {
            continue;
        };
        let amount = || {
            let number = rest.split_whitespace().next();
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        match field {
            "Rss" => area.resident = amount(),
            "Swap" => area.swapped = amount(),
            "VmFlags" => area.is_random = rest.split_whitespace().any(|flag| flag == "rr"),
            _ => {}
        }
    }
    all
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
        let expected = ["", "/memfd:heapprof (deleted)", NAMED, "/lib/a b.so", ""];
        assert_eq!(names, expected);
        assert_eq!(areas[1].swapped, 4);
        assert_eq!(own(&areas), Some((5 + 8 + 16) << 10));
        assert_eq!(own(&areas[3..]), None);
    }

    #[test]
    fn a_machine_swaps_if_some_is_taken() {
        let swap = |free| format!("MemTotal: 9 kB\nSwapTotal:  8 kB\nSwapFree: {free} kB\n");
        assert!(uses_swap(&swap(7)) && !uses_swap(&swap(8)) && !uses_swap(""));
    }
}

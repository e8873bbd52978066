//! Whether a process's kept books are swapped out. Such pages are in no page table, so
//! `/proc/PID/pagemap` does not tell them from pages that were never touched.

use std::fs;

/// What the mapping of such a file is called.
const NAME: &str = "/memfd:heapprof";

/// Whether a part of the process's kept books is swapped out.
pub(crate) fn is_swapped(pid: u32) -> bool {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // To ask about each mapping takes the kernel as long as the process is large.
    uses_swap(&memory) && {
        let maps = fs::read(format!("/proc/{pid}/smaps")).unwrap_or_default();
        has_swapped(&String::from_utf8_lossy(&maps))
    }
}

/// Whether anything of this machine is swapped out, as `/proc/meminfo` says it.
fn uses_swap(text: &str) -> bool {
    let amount = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim().to_string())
    };
    amount("SwapTotal:") != amount("SwapFree:")
}

/// Whether a mapping of kept books has swapped pages, as `/proc/PID/smaps` says it.
fn has_swapped(text: &str) -> bool {
    let mut is_ours = false;
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        match words.next() {
            // A field. A mapping's line begins with its range.
            Some(field) if field.ends_with(':') => {
                let amount = words.next().unwrap_or("0");
                is_ours && field == "Swap:" && amount != "0"
            }
            _ => {
                is_ours = line.contains(NAME);
                false
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_mappings_count() {
        let smaps = |ours: u32, others: u32| {
            format!(
                "7f00-7f10 rw-p 00000000 00:00 0\nSize: 64 kB\nSwap: {others} kB\n\
                 7f20-7f30 rw-s 00000000 00:01 77 /memfd:heapprof (deleted)\nRss: 8 kB\n\
                 Swap: {ours} kB\nVmFlags: rd wr\n\
                 7f40-7f50 rw-p 00000000 00:00 0\nSwap: {others} kB\n"
            )
        };
        assert!(has_swapped(&smaps(4, 0)) && !has_swapped(&smaps(0, 4)));
        assert!(!has_swapped(""));
        let swap = |free| format!("MemTotal: 9 kB\nSwapTotal:  8 kB\nSwapFree: {free} kB\n");
        assert!(uses_swap(&swap(7)) && !uses_swap(&swap(8)) && !uses_swap(""));
    }
}

//! Formats the last lines that `record` prints: the lines about allocators of the program that were
//! not recorded.

use heapprof_analysis::coverage::RssBreakdown;
use heapprof_recorder::describe_unhooked;
use heapprof_symbolize::allocators::{NAMELESS_REMEDY, UnhookedAllocator};

use super::words::bytes;

/// Returns the lines about allocators: which memory is missing in the profile, how much that may
/// be, and how to record it.
pub(super) fn lines(all: &[UnhookedAllocator], peak: Option<RssBreakdown>) -> Vec<String> {
    let rest = peak.and_then(|peak| Some((peak.bytes_beside_heap()?, peak.program_bytes())));
    let rest = rest.map_or_else(String::new, |(rest, whole)| {
        format!(
            "; {} of the peak RSS {} is not in the profile",
            bytes(rest),
            bytes(whole)
        )
    });
    let each = all.iter().enumerate().map(|(i, one)| {
        let rest = if i == 0 { rest.as_str() } else { "" };
        let remedy = match one {
            UnhookedAllocator::Inside { remedy, .. } => remedy,
            UnhookedAllocator::Nameless { .. } => NAMELESS_REMEDY,
            UnhookedAllocator::Called { .. } => {
                "a program that calls malloc and free is recorded completely"
            }
            UnhookedAllocator::SecondLibc { .. } => "what dlopen loads is recorded completely",
        };
        let mappings = match one {
            UnhookedAllocator::Inside {
                has_countable_mappings: true,
                ..
            }
            | UnhookedAllocator::Nameless { .. } => "; --mmap counts what it maps",
            _ => "",
        };
        format!("{}{rest}; {remedy}{mappings}", describe_unhooked(one))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use heapprof_symbolize::allocators::AllocatorRole;

    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_memory() {
        let file = || Path::new("/tmp/p\n").to_path_buf();
        let inside = UnhookedAllocator::Inside {
            name: "mimalloc",
            remedy: "link it otherwise",
            has_countable_mappings: false,
            file: file(),
            function: "mi_malloc_aligned".to_string(),
            why: None,
        };
        let called = UnhookedAllocator::Called {
            name: "jemalloc",
            file: file(),
            functions: "sdallocx".to_string(),
            role: AllocatorRole::Frees,
        };
        let peak = RssBreakdown {
            bytes: 4 << 20,
            own: 1 << 20,
            heap: Some(1 << 20),
        };
        assert_eq!(
            lines(&[inside, called], Some(peak)),
            [
                "the blocks of mimalloc inside /tmp/p\\n (mi_malloc_aligned) are not recorded; 2MiB \
                 of the peak RSS 3MiB is not in the profile; link it otherwise",
                "/tmp/p\\n calls sdallocx of jemalloc, bypassing malloc; such frees are not \
                 recorded, so the memory in use is overstated; a program that calls malloc and \
                 free is recorded completely",
            ]
        );
    }
}

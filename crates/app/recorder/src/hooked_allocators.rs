//! The allocators inside files that processes of a recording hooked, by what they reported. The
//! profile of a process that was killed is made from its ledger, which does not have them.

use std::collections::HashMap;

use heapprof_allocators::AllocatorFamily;
use heapprof_profile::{HookedAllocator, Profile};
use heapprof_text::printable;

/// Maximum number of allocators that are kept of all processes.
const MAX_ALLOCATORS: usize = 10_000;

/// The comments about hooked allocators, by process.
#[derive(Debug, Default)]
pub(crate) struct HookedAllocatorReports {
    by_process: HashMap<u32, Vec<String>>,
    count: usize,
}

impl HookedAllocatorReports {
    /// Adds an entry of the list: a process id, and a profile's comment. Other entries are left
    /// out.
    pub(crate) fn add(&mut self, entry: &[u8]) {
        let text = String::from_utf8_lossy(entry);
        let parsed = text.split_once(' ').and_then(|(process, comment)| {
            HookedAllocator::parse_hooked(comment)?;
            Some((process.parse::<u32>().ok()?, comment))
        });
        if let Some((process, comment)) = parsed
            && self.count < MAX_ALLOCATORS
        {
            self.count += 1;
            let comments = self.by_process.entry(process).or_default();
            comments.push(printable(comment).into_owned());
        }
    }

    /// Adds the comments about a process to its profile. Returns whether one was missing there.
    pub(crate) fn put_into(&self, profile: &mut Profile, process: u32) -> bool {
        let mut is_changed = false;
        for comment in self.by_process.get(&process).into_iter().flatten() {
            let mut known = profile.comment.iter().map(|id| profile.text(*id));
            if !known.any(|known| known == comment) {
                let comment = profile.strings.intern(comment);
                profile.comment.push(comment);
                is_changed = true;
            }
        }
        is_changed
    }
}

/// Describes the allocators inside files that a profile has the blocks of; `None` if there are
/// none.
pub(crate) fn describe_hooked(comments: &[String]) -> Option<String> {
    const MAX_SHOWN: usize = 3;
    let hooked = comments
        .iter()
        .filter_map(|comment| HookedAllocator::parse_hooked(comment));
    let mut all: Vec<String> = hooked
        .map(|(name, file)| {
            let is_own_malloc = name == AllocatorFamily::Malloc.name();
            let article = if is_own_malloc { "the " } else { "" };
            format!("{article}{name} inside {}", printable(file))
        })
        .collect();
    all.dedup();
    let more = all.len().saturating_sub(MAX_SHOWN);
    all.truncate(MAX_SHOWN);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    let (last, before) = all.split_last()?;
    Some(match before {
        [] => format!("also recorded: {last}"),
        _ => format!("also recorded: {} and {last}", before.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comments_about_hooked_allocators_are_taken() {
        let mut reports = HookedAllocatorReports::default();
        for entry in [
            "7 allocator hooked: 6 functions of jemalloc inside /bin/a",
            "7 allocator not hooked: it is short: jemalloc inside /bin/a",
            "7 heap peak: 1",
            "x allocator hooked: 6 functions of jemalloc inside /bin/a",
        ] {
            reports.add(entry.as_bytes());
        }
        let mut profile = Profile::default();
        assert!(reports.put_into(&mut profile, 7));
        assert!(!reports.put_into(&mut profile, 7));
        assert!(!reports.put_into(&mut profile, 8));
        assert_eq!(profile.comment.len(), 1);
    }

    #[test]
    fn hooked_allocators_are_described() {
        let comment =
            |file: &str| format!("allocator hooked: 6 functions of jemalloc inside {file}");
        let described = |files: &[&str]| {
            let all: Vec<String> = files.iter().map(|file| comment(file)).collect();
            describe_hooked(&all)
        };
        assert_eq!(described(&[]), None);
        let one = "also recorded: jemalloc inside /a";
        assert_eq!(described(&["/a"]).as_deref(), Some(one));
        let many = "also recorded: jemalloc inside /a, jemalloc inside /b, jemalloc inside /c and \
                    2 more";
        let described = described(&["/a", "/b", "/c", "/d", "/e"]);
        assert_eq!(described.as_deref(), Some(many));
    }
}

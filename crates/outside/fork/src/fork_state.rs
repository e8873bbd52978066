//! Records a child's pages and files at the fork.

use std::collections::HashSet;
use std::io;

use heapprof_live::LiveProcess;
use heapprof_process::{
    NamedMapping, PAGE_SIZE, PageMap, PageSet, SmapsMapping, areas, file_name, is_ours, read,
    regions,
};

/// Maximum number of file names that are recorded.
const MAX_INHERITED_FILES: usize = 1 << 16;

/// The pages and files that a child has inherited at the fork.
#[derive(Clone, Debug, Default)]
pub struct ForkBaseline {
    /// Pages of private memory, without heapprof's own memory.
    pub(crate) pages: PageSet,
    /// The files whose code was mapped.
    pub(crate) files: HashSet<String>,
    /// Number of stacks in the ledger. Stacks with lower numbers are the same in the parent and the
    /// child.
    pub(crate) stacks: u32,
}

impl ForkBaseline {
    /// Records the pages and files of a child that was just forked and waits.
    ///
    /// # Errors
    /// The child may be gone, or this user may not read it.
    pub fn from_pid(pid: u32) -> io::Result<Self> {
        let text = read(pid, "smaps")?;
        let map = PageMap::open(pid)?;
        let stacks = LiveProcess::open(pid).and_then(|process| process.stacks());
        let mut found = Self {
            stacks: stacks.unwrap_or(0),
            ..Self::default()
        };
        for NamedMapping { area, is_own, .. } in regions(&areas(&text)) {
            if found.files.len() < MAX_INHERITED_FILES {
                found.files.extend(file_of(area).map(str::to_string));
            }
            if is_own || !may_be_inherited(area) {
                continue;
            }
            map.each(area.start..area.end, |at, page| {
                if page.is_private() {
                    found.pages.insert(at);
                }
            })?;
        }
        Ok(found)
    }

    /// Returns the size of all inherited pages in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.len() * PAGE_SIZE
    }
}

/// Returns the name of a mapping's file, if the mapping is code. Another file may have this name by
/// now.
pub(crate) fn file_of<'a>(area: &SmapsMapping<'a>) -> Option<&'a str> {
    let name = file_name(area);
    (name.starts_with('/') && area.rights.contains('x') && !is_ours(area)).then_some(name)
}

/// Whether a mapping is private and has present pages, so that a fork may share pages of it until
/// one process writes to them.
pub(crate) fn may_be_inherited(area: &SmapsMapping<'_>) -> bool {
    area.rights.ends_with('p') && !area.is_empty()
}

/// Converts a number of bytes to the type that profiles use.
pub(crate) fn to_signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_code_are_known() {
        let text = "\
10000-12000 r-xp 00000000 08:01 1 /opt/libheapprof.so
20000-22000 r-xp 00000000 08:01 2 /lib/libz.so (deleted)
22000-23000 rw-p 00000000 00:00 0
30000-40000 rw-p 00000000 00:00 0 [heap]
";
        let areas = heapprof_process::areas(text);
        let files: Vec<_> = areas.iter().filter_map(file_of).collect();
        assert_eq!(files, ["/lib/libz.so"]);
    }
}

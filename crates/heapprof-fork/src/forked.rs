//! What a child had when it was forked.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use heapprof_live::Process;
use heapprof_process::{Area, PAGE, PageMap, PageSet, areas};

/// More names of files are not kept.
const MOST_FILES: usize = 4096;

/// The pages and the files that a child has inherited.
#[derive(Clone, Debug, Default)]
pub struct Forked {
    /// Pages of private memory, without heapprof's own.
    pub(crate) pages: PageSet,
    /// The files that were mapped.
    pub(crate) files: HashSet<String>,
    /// How many stacks the books had. The parent's and the child's have the same numbers up to
    /// there.
    pub(crate) stacks: u32,
}

impl Forked {
    /// Looks at a child that has just been forked, and waits.
    ///
    /// # Errors
    /// It may be gone, or not this user's to read.
    pub fn of(pid: u32) -> io::Result<Self> {
        let text = read(pid, "smaps")?;
        let map = PageMap::open(pid)?;
        let stacks = Process::open(pid).and_then(|process| process.stacks());
        let mut found = Self {
            stacks: stacks.unwrap_or(0),
            ..Self::default()
        };
        for area in areas(&text) {
            if area.name.starts_with('/') && found.files.len() < MOST_FILES {
                found.files.insert(area.name.to_string());
            }
            if !may_be_inherited(&area) || is_ours(&area) {
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

    /// Bytes of the pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.len() * PAGE
    }
}

/// Whether a mapping is heapprof's: what it has for itself, or its library.
pub(crate) fn is_ours(area: &Area<'_>) -> bool {
    const FILES: [&str; 2] = ["/libheapprof.so", "/auto/Devel/HeapProf/HeapProf.so"];
    area.is_ours() || FILES.iter().any(|file| area.name.ends_with(file))
}

/// Whether a mapping may have pages that a fork shares until somebody writes: something of it is
/// there, and what is written there is the process's own.
pub(crate) fn may_be_inherited(area: &Area<'_>) -> bool {
    area.rights.ends_with('p') && !area.is_empty()
}

/// A file of the kernel's about a process, as text.
pub(crate) fn read(pid: u32, file: &str) -> io::Result<String> {
    let bytes = std::fs::read(PathBuf::from(format!("/proc/{pid}/{file}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A number of bytes, as profiles count them.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

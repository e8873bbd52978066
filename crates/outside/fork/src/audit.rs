//! Audits a forked child: how much of its memory is new, how much is shared, and how much is
//! inherited but no longer shared.

use std::collections::BTreeSet;
use std::io;

use heapprof_live::{LiveError, LiveProcess};
use heapprof_process::{
    MemoryUsage, NamedMapping, PAGE_SIZE, PageMap, PageSet, SmapsMapping, areas, file_name, read,
    regions,
};
use heapprof_profile::fork::{COW_TYPES, ChildMapping, Figures};
use heapprof_profile::{Profile, ProfileBuilder};

use crate::child_allocations::{self, BlamedChild, UnsharedMapping};
use crate::fork_state::{ForkBaseline, file_of, may_be_inherited, to_signed};

/// The result of an audit of a forked child.
#[derive(Clone, Debug)]
pub struct ForkedChildAudit {
    /// The sums of the child's memory: the kernel's sums, and counts of the child's pages.
    pub figures: Figures,
    /// The files that the child has mapped since the fork.
    pub mapped: Vec<ChildMapping>,
    /// The file name of the child's program; empty if it can't be read.
    pub program: String,
    /// Mean bytes between samples; 1 if all blocks are known.
    pub period: u64,
    /// Whether the child is an interpreter. An interpreter frees much memory when it ends, and
    /// writes to many pages then.
    pub cleans_up: bool,
    /// A profile of the allocations on inherited pages that are no longer shared, or the reason why
    /// there is none.
    pub blame: Result<Profile, String>,
}

impl ForkedChildAudit {
    /// Counts the unshared inherited pages as shared. This is needed if the other processes with
    /// these pages have ended: it is then unknown which process wrote to the pages.
    pub fn forget_who_wrote(&mut self) {
        let figures = &mut self.figures;
        figures.shared = figures.shared.saturating_add(figures.unshared);
        figures.unshared = 0;
        self.blame = Ok(ProfileBuilder::new(&COW_TYPES).finish());
    }
}

/// Audits a forked child. `generation` is the number of forks between the first process and the
/// child. The parent is read as well, because it still has the blocks that the child has freed or
/// moved. If the child runs meanwhile, its sums are from moments some milliseconds apart.
///
/// # Errors
/// The child may be gone, or this user may not read it.
pub fn audit_child(
    pid: u32,
    parent: u32,
    forked: &ForkBaseline,
    generation: u8,
) -> io::Result<ForkedChildAudit> {
    let usage = MemoryUsage::from_pid(pid)?;
    let text = read(pid, "smaps")?;
    let map = PageMap::open(pid)?;
    let areas = areas(&text);
    let mut counts = ChildPageCounts::default();
    let mut pieces = Vec::new();
    for NamedMapping { area, name, is_own } in regions(&areas) {
        if is_own {
            counts.own += area.usage.rss;
            counts.own_private += area.usage.uss();
        } else if may_be_inherited(area) {
            let unshared = counts.add(area, &map, forked)?;
            if unshared != 0 {
                pieces.push(UnsharedMapping::new(area, name, unshared));
            }
        }
    }
    let bytes = |pages: u64| to_signed(pages.saturating_mul(PAGE_SIZE));
    let figures = Figures {
        rss: to_signed(usage.rss),
        pss: to_signed(usage.pss),
        private_dirty: to_signed(usage.private_dirty),
        private_clean: to_signed(usage.private_clean),
        shared_dirty: to_signed(usage.shared_dirty),
        shared_clean: to_signed(usage.shared_clean),
        swap: to_signed(usage.swap),
        huge: to_signed(usage.huge.saturating_add(usage.hugetlb)),
        new: bytes(counts.new),
        shared: bytes(counts.shared),
        unshared: bytes(counts.unshared.len()),
        own: to_signed(counts.own),
        own_private: to_signed(counts.own_private),
        inherited: to_signed(forked.bytes()),
    };
    let child = BlamedChild {
        parent: LiveProcess::open(parent).ok(),
        stacks: forked.stacks,
        generation,
    };
    let process = LiveProcess::open(pid);
    let program = process
        .as_ref()
        .map_or_else(|_| String::new(), LiveProcess::program);
    let period = process
        .as_ref()
        .map_or(1, |process| process.period().unwrap_or(1));
    let blame = process
        .and_then(|process| child_allocations::blame(&process, &child, &counts.unshared, pieces))
        .map_err(|error: LiveError| error.to_string());
    Ok(ForkedChildAudit {
        figures,
        mapped: newly_mapped_files(&areas, forked),
        program,
        period,
        cleans_up: areas.iter().any(|area| is_interpreter(area.name)),
        blame,
    })
}

/// Counts of pages of private memory, without heapprof's own memory.
#[derive(Default)]
struct ChildPageCounts {
    /// Number of pages that did not exist at the fork.
    new: u64,
    /// Number of inherited pages that another process still has, or that are swapped out.
    shared: u64,
    /// Inherited pages that are in memory, and that no other process has.
    unshared: PageSet,
    /// Bytes of heapprof's own memory.
    own: u64,
    /// Bytes of heapprof's own memory that no other process has.
    own_private: u64,
}

impl ChildPageCounts {
    /// Counts the pages of a mapping. Returns the number of its pages that were inherited and are
    /// no longer shared.
    fn add(
        &mut self,
        area: &SmapsMapping<'_>,
        map: &PageMap,
        forked: &ForkBaseline,
    ) -> io::Result<u64> {
        let before = self.unshared.len();
        map.each(area.start..area.end, |at, page| {
            if !page.is_private() {
                return;
            }
            if !forked.pages.contains(at) {
                self.new += 1;
            } else if page.is_present() && page.is_exclusive() {
                self.unshared.insert(at);
            } else {
                self.shared += 1;
            }
        })?;
        Ok(self.unshared.len() - before)
    }
}

/// Whether a mapping belongs to a language interpreter.
fn is_interpreter(name: &str) -> bool {
    const INTERPRETER_NAMES: [&str; 3] = ["perl", "python", "ruby"];
    let file = name.rsplit('/').next().unwrap_or_default();
    let file = file.strip_prefix("lib").unwrap_or(file);
    name.starts_with('/')
        && INTERPRETER_NAMES
            .iter()
            .any(|known| file.starts_with(known))
}

/// Returns the files of code that were mapped after the fork. All mappings of such a file are
/// summed up, not only its code.
fn newly_mapped_files(areas: &[SmapsMapping<'_>], forked: &ForkBaseline) -> Vec<ChildMapping> {
    let files = areas.iter().filter_map(file_of);
    let new: BTreeSet<&str> = files.filter(|file| !forked.files.contains(*file)).collect();
    let one = |name: &str| {
        let of_file = |area: &&SmapsMapping<'_>| file_name(area) == name;
        let mut file = ChildMapping {
            name: name.to_string(),
            ..ChildMapping::default()
        };
        for area in areas.iter().filter(of_file) {
            file.resident = file.resident.saturating_add(to_signed(area.usage.rss));
            file.private = file.private.saturating_add(to_signed(area.usage.uss()));
        }
        file
    };
    new.into_iter().map(one).collect()
}

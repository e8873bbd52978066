//! Finds out which processes the kernel's OOM killer ended, from the kill counts of their cgroups
//! (version 1 or 2).
//!
//! The counts are read every few seconds, and when a process has ended. A process that ended
//! without reporting counts as a victim if its cgroup counted a kill in the last seconds. Each kill
//! has only one victim.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use heapprof_process::CgroupFolder;
use rustix::process::Pid;

/// Time between two readings of the counts. It is long enough for a large victim to end.
pub(crate) const OOM_READ_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of different kernel texts about cgroups that are remembered.
const MAX_CGROUP_TEXTS: usize = 256;

/// A kill by the OOM killer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// The memory limit of the cgroup in bytes, if there is one.
    pub limit: Option<u64>,
}

/// The counts of OOM kills in the cgroups of processes.
pub(crate) struct OomCounts {
    /// The cgroups of processes, by the kernel's text about them. Most processes are in the same
    /// cgroup, and finding it takes reading the mounts.
    groups_by_text: HashMap<String, Option<CgroupFolder>>,
    counts_by_group: HashMap<CgroupFolder, CgroupOomCount>,
    next: Instant,
}

/// The number of OOM kills that a cgroup counted. `last` is the count at the last reading.
/// `earlier` is the count at the reading before that one, plus one for each kill that was assigned
/// to a process.
struct CgroupOomCount {
    earlier: u64,
    last: u64,
}

impl OomCounts {
    pub(crate) fn new() -> Self {
        Self {
            groups_by_text: HashMap::new(),
            counts_by_group: HashMap::new(),
            next: Instant::now(),
        }
    }

    /// Returns the cgroup of a process, and counts its kills from now on.
    pub(crate) fn group_of(&mut self, process: Pid) -> Option<CgroupFolder> {
        let text = CgroupFolder::read_groups(process.as_raw_nonzero().get().unsigned_abs())?;
        if self.groups_by_text.len() >= MAX_CGROUP_TEXTS {
            self.groups_by_text.clear();
        }
        let group = self.groups_by_text.entry(text);
        let group = group
            .or_insert_with_key(|text| CgroupFolder::from_groups(text))
            .clone()?;
        if !self.counts_by_group.contains_key(&group) {
            let count = group.oom_kills()?;
            let (earlier, last) = (count, count);
            self.counts_by_group
                .insert(group.clone(), CgroupOomCount { earlier, last });
        }
        Some(group)
    }

    /// Reads the counts if a reading is due. Returns whether it was.
    pub(crate) fn read_if_due(&mut self) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        self.next = Instant::now() + OOM_READ_INTERVAL;
        for (group, known) in &mut self.counts_by_group {
            if let Some(count) = group.oom_kills() {
                known.step(count);
            }
        }
        true
    }

    /// Returns the kill of a process that has ended just now, if the process was a victim.
    pub(crate) fn take_victim(&mut self, group: &CgroupFolder) -> Option<OomKill> {
        let known = self.counts_by_group.get_mut(group)?;
        let limit = group.limit();
        known.take(group.oom_kills()?).then_some(OomKill { limit })
    }
}

impl CgroupOomCount {
    fn step(&mut self, count: u64) {
        self.earlier = self.earlier.max(self.last);
        self.last = count.max(self.earlier);
    }

    /// Assigns a kill to a process. Only kills after the second-to-last reading can be assigned.
    /// Returns false if none of these kills is left.
    fn take(&mut self, count: u64) -> bool {
        let is_one = count > self.earlier;
        if is_one {
            self.earlier += 1;
        }
        is_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_victim_is_one_process() {
        let mut known = CgroupOomCount {
            earlier: 3,
            last: 3,
        };
        assert!(!known.take(3));
        // The kill is counted, and the process ends only after the next reading.
        known.step(4);
        assert!(known.take(4) && !known.take(4));
        // Two kills at once; and a kill of another process is forgotten after two readings.
        assert!(known.take(6) && known.take(6) && !known.take(6));
        known.step(7);
        known.step(7);
        assert!(!known.take(7) && known.take(8));
    }
}

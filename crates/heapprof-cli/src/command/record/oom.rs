//! Whether the kernel's OOM killer ended processes of a cgroup: what the cgroup counts, in either
//! version of cgroups.
//!
//! The counts are read every few seconds, and when a process has ended. A process that has ended
//! without a word is taken for a victim if its cgroup has counted one more since some seconds
//! before, of which no other process was taken for the victim.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use heapprof_process::CgroupFolder;
use rustix::process::Pid;

/// How often the counts are read. A large process takes a while to end.
pub(super) const PAUSE: Duration = Duration::from_secs(2);

/// More different texts of the kernel's are not remembered.
const MOST_NAMED: usize = 256;

/// What the OOM killer has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Oom {
    /// How many bytes the cgroup may have, if there is a limit.
    pub(super) limit: Option<u64>,
}

/// What cgroups have counted.
pub(super) struct Counts {
    /// The cgroups of processes, by what the kernel says of them. Most are in the same one, and
    /// finding it takes reading what is mounted.
    named: HashMap<String, Option<CgroupFolder>>,
    known: HashMap<CgroupFolder, Known>,
    next: Instant,
}

/// What one had counted when it was read last, and the time before. What was taken for a victim
/// since is added to both.
struct Known {
    earlier: u64,
    last: u64,
}

impl Counts {
    pub(super) fn new() -> Self {
        Self {
            named: HashMap::new(),
            known: HashMap::new(),
            next: Instant::now(),
        }
    }

    /// The cgroup of a process, from now on.
    pub(super) fn group_of(&mut self, process: Pid) -> Option<CgroupFolder> {
        let text = CgroupFolder::read_groups(process.as_raw_nonzero().get().unsigned_abs())?;
        if self.named.len() >= MOST_NAMED {
            self.named.clear();
        }
        let group = self.named.entry(text);
        let group = group
            .or_insert_with_key(|text| CgroupFolder::from_groups(text))
            .clone()?;
        if !self.known.contains_key(&group) {
            let count = group.oom_kills()?;
            let (earlier, last) = (count, count);
            self.known.insert(group.clone(), Known { earlier, last });
        }
        Some(group)
    }

    /// Reads the counts, if it is time. Returns whether it was.
    pub(super) fn look(&mut self) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        self.next = Instant::now() + PAUSE;
        for (group, known) in &mut self.known {
            if let Some(count) = group.oom_kills() {
                known.step(count);
            }
        }
        true
    }

    /// Whether a process that has ended just now was a victim.
    pub(super) fn victim(&mut self, group: &CgroupFolder) -> Option<Oom> {
        let known = self.known.get_mut(group)?;
        let limit = group.limit();
        known.take(group.oom_kills()?).then_some(Oom { limit })
    }
}

impl Known {
    fn step(&mut self, count: u64) {
        self.earlier = self.earlier.max(self.last);
        self.last = count.max(self.earlier);
    }

    /// Takes one victim, if there was one since the time before the last.
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
        let mut known = Known {
            earlier: 3,
            last: 3,
        };
        assert!(!known.take(3));
        // It is counted, and the process ends only after the next look.
        known.step(4);
        assert!(known.take(4) && !known.take(4));
        // Two at once, and somebody else's is forgotten after two looks.
        assert!(known.take(6) && known.take(6) && !known.take(6));
        known.step(7);
        known.step(7);
        assert!(!known.take(7) && known.take(8));
    }
}

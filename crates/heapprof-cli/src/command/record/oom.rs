//! Whether the kernel's OOM killer ended processes of a cgroup: what the cgroup counts, in either
//! version of cgroups.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// What a cgroup had counted at some moment.
pub(super) struct Killed {
    group: Option<Group>,
    count: u64,
}

/// What the OOM killer has done meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Oom {
    /// How many processes of the cgroup it has ended.
    pub(super) count: u64,
    /// How many bytes the cgroup may have, if there is a limit.
    pub(super) limit: Option<u64>,
}

/// A cgroup, by the files that count and limit.
struct Group {
    events: PathBuf,
    limit: PathBuf,
}

impl Killed {
    /// What the cgroup of a process counts now.
    pub(super) fn so_far(process: Pid) -> Self {
        let text = fs::read_to_string(format!("/proc/{process}/cgroup"));
        let group = text.ok().and_then(|text| Group::of(&text));
        let count = group.as_ref().and_then(Group::count).unwrap_or(0);
        Self { group, count }
    }

    /// What has come to it; `None` if nothing has, or nobody counts.
    pub(super) fn since(&self) -> Option<Oom> {
        let group = self.group.as_ref()?;
        let count = group.count()?.checked_sub(self.count).filter(|&n| n > 0)?;
        let limit = group.limit();
        Some(Oom { count, limit })
    }
}

impl Group {
    /// The group that `/proc/PID/cgroup` names, if it counts.
    fn of(text: &str) -> Option<Self> {
        let mut fields = text.lines().map(|line| line.splitn(3, ':'));
        // number, controllers, path; the second version has no controllers.
        let mut find = |wanted: &str| {
            fields.find_map(|mut line| {
                let (_, controllers, path) = (line.next()?, line.next()?, line.next()?);
                let is_it = controllers.split(',').any(|one| one == wanted);
                is_it.then(|| path.trim_start_matches('/').to_string())
            })
        };
        let of_first = |path: String| {
            let folder = Path::new("/sys/fs/cgroup/memory").join(path);
            Self {
                events: folder.join("memory.oom_control"),
                limit: folder.join("memory.limit_in_bytes"),
            }
        };
        if let Some(first) = find("memory").map(of_first) {
            return first.events.exists().then_some(first);
        }
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let groups = roots.iter().map(|root| {
            let folder = Path::new(root).join(path);
            Self {
                events: folder.join("memory.events"),
                limit: folder.join("memory.max"),
            }
        });
        groups.into_iter().find(|group| group.events.exists())
    }

    fn count(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.events).ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill "))?
            .trim()
            .parse()
            .ok()
    }

    fn limit(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.limit).ok()?;
        let bytes: u64 = text.trim().parse().ok()?;
        // Without a limit, the first version says a number of pages that no machine has.
        (bytes < 1 << 60).then_some(bytes)
    }
}

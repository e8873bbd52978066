//! Reads the memory of a process's control group: its use and limits, in version 1 or 2 of control
//! groups, and how much its processes wait for memory (pressure).
//!
//! The kernel's `Documentation/admin-guide/cgroup-v1/memory.rst`, `cgroup-v2.rst` and
//! `Documentation/accounting/psi.rst` describe the files.

use std::fs;
use std::path::{Component, Path, PathBuf};

use procfs_core::process::{MountInfo, MountInfos};
use procfs_core::{FromRead, MemoryPressure};

/// Lowest number of bytes that means "no limit" in version 1 of control groups. No machine has as
/// much memory.
const MIN_UNLIMITED: u64 = 1 << 60;

/// The folder with the files of a control group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CgroupFolder {
    /// The version of control groups, 1 or 2.
    pub version: u8,
    /// The control group's path below the root of its hierarchy.
    pub name: String,
    /// The folder at which the hierarchy is mounted.
    top: PathBuf,
    /// The path of [`top`](Self::top) below the root of the hierarchy.
    top_name: String,
    /// The control group's own folder.
    path: PathBuf,
}

/// The memory of a control group. Values that the kernel does not report are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The folder of the control group.
    pub folder: CgroupFolder,
    /// Bytes in use, with the kernel's caches of the files that the group has read.
    pub usage: Option<u64>,
    /// The most bytes that were ever in use at one time.
    pub peak: Option<u64>,
    /// The lowest limit in bytes of the group and its ancestors.
    pub limit: Option<u64>,
    /// The path of the group with the lowest limit.
    pub limit_of: Option<String>,
    /// Number of bytes above which the kernel slows the group down.
    pub high: Option<u64>,
    /// Bytes that are swapped out.
    pub swap: Option<u64>,
    /// Bytes that belong to no file.
    pub anonymous: Option<u64>,
    /// Bytes of cached file content.
    pub file: Option<u64>,
    /// Number of times that the group has reached its limit.
    pub failures: Option<u64>,
    /// Number of the group's processes that were killed because of too little memory.
    pub oom_kills: Option<u64>,
    /// The shares of time in which the group's processes waited for memory.
    pub pressure: Option<CgroupPressure>,
}

/// Shares of the time in which processes waited for memory, in percent, over the last 10, 60 and
/// 300 seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CgroupPressure {
    /// The share of time in which at least one process waited for memory.
    pub some: [f32; 3],
    /// The share of time in which every process that had work to do waited for memory.
    pub full: [f32; 3],
}

impl Eq for CgroupPressure {}

/// Reads the shares of time in which this machine's processes waited for memory. Returns `None` if
/// the kernel does not report them.
#[must_use]
pub fn machine_pressure() -> Option<CgroupPressure> {
    read_pressure(Path::new("/proc/pressure/memory"))
}

fn read_pressure(path: &Path) -> Option<CgroupPressure> {
    let read = MemoryPressure::from_file(path).ok()?;
    let of = |record: &procfs_core::PressureRecord| [record.avg10, record.avg60, record.avg300];
    Some(CgroupPressure {
        some: of(&read.some),
        full: of(&read.full),
    })
}

impl CgroupFolder {
    /// Finds the control group that limits a process's memory. Returns `None` if its files are not
    /// mounted here, as in some containers.
    #[must_use]
    pub fn from_pid(pid: u32) -> Option<Self> {
        Self::from_groups(&Self::read_groups(pid)?)
    }

    /// Reads a process's `/proc/PID/cgroup`; `None` if the process is gone.
    #[must_use]
    pub fn read_groups(pid: u32) -> Option<String> {
        crate::read(pid, "cgroup").ok()
    }

    /// Finds the control group for the text of a `/proc/PID/cgroup`. Processes with equal texts are
    /// in one group.
    #[must_use]
    pub fn from_groups(groups: &str) -> Option<Self> {
        let mounts = fs::read("/proc/self/mountinfo").ok()?;
        Self::find(Path::new("/"), groups, &mounts)
    }

    /// Finds the control group whose files are below `root`, for the text of a `/proc/PID/cgroup`.
    /// `mounts` is the text of `/proc/self/mountinfo`.
    fn find(root: &Path, groups: &str, mounts: &[u8]) -> Option<Self> {
        let mounts = MountInfos::from_read(mounts).ok()?;
        let found = groups.lines().filter_map(|line| {
            // number, controllers, path; the second version has no controllers.
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, name) = (fields.next()?, fields.next()?);
            let version = match controllers {
                "" => 2,
                _ if controllers.split(',').any(|one| one == "memory") => 1,
                _ => return None,
            };
            Some((version, name))
        });
        let mut found: Vec<(u8, &str)> = found.collect();
        // The memory controller can't be in both versions at the same time.
        found.sort_unstable();
        found.into_iter().find_map(|(version, name)| {
            let is_of_version = |mount: &&MountInfo| match version {
                1 => mount.fs_type == "cgroup" && mount.super_options.contains_key("memory"),
                _ => mount.fs_type == "cgroup2",
            };
            // Groups above a mounted folder can't be seen through it, but another mount may show
            // them.
            let mut here = mounts.0.iter().filter(is_of_version).filter_map(|mount| {
                let below = Path::new(name).strip_prefix(&mount.root).ok()?;
                let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
                let top = root.join(mount.mount_point.strip_prefix("/").ok()?);
                below
                    .components()
                    .all(is_plain)
                    .then(|| (top.join(below), top, mount.root.clone()))
            });
            let (path, top, top_name) = here.next()?;
            let folder = Self {
                version,
                name: name.to_string(),
                top_name,
                top,
                path,
            };
            folder.usage().is_some().then_some(folder)
        })
    }

    /// Reads the number of the group's processes that were killed because of too little memory.
    #[must_use]
    pub fn oom_kills(&self) -> Option<u64> {
        let file = match self.version {
            1 => "memory.oom_control",
            _ => "memory.events",
        };
        number_in_line(&self.text(file)?, "oom_kill")
    }

    /// Returns the group's own limit in bytes.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        limit(&self.path, self.version)
    }

    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }

    fn number(&self, file: &str) -> Option<u64> {
        number(&self.text(file)?)
    }

    fn usage(&self) -> Option<u64> {
        self.number(match self.version {
            1 => "memory.usage_in_bytes",
            _ => "memory.current",
        })
    }

    /// Returns the lowest limit of the group and its ancestors, and the path of the group that has
    /// it.
    fn least_limit(&self) -> Option<(u64, String)> {
        let mut least: Option<(u64, String)> = None;
        let mut path = self.path.as_path();
        loop {
            if let Some(limit) = limit(path, self.version)
                && least.as_ref().is_none_or(|(found, _)| limit < *found)
            {
                let below = path.strip_prefix(&self.top).unwrap_or(path);
                let parts = Path::new(&self.top_name).components();
                let name: PathBuf = parts.chain(below.components()).collect();
                least = Some((limit, name.display().to_string()));
            }
            if path == self.top {
                return least;
            }
            path = path.parent()?;
        }
    }
}

fn limit(path: &Path, version: u8) -> Option<u64> {
    let file = match version {
        1 => "memory.limit_in_bytes",
        _ => "memory.max",
    };
    let text = fs::read_to_string(path.join(file)).ok()?;
    number(&text).filter(|bytes| *bytes < MIN_UNLIMITED)
}

/// Parses a number; `None` for a text such as `max`.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Returns the number in the line that begins with `name`.
fn number_in_line(text: &str, name: &str) -> Option<u64> {
    let rest = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    number(rest?)
}

impl Cgroup {
    /// Reads the control group of a process. Returns `None` if its files are not mounted here.
    #[must_use]
    pub fn from_pid(pid: u32) -> Option<Self> {
        Some(Self::read(CgroupFolder::from_pid(pid)?))
    }

    fn read(folder: CgroupFolder) -> Self {
        let stat = folder.text("memory.stat").unwrap_or_default();
        let (limit, limit_of) = folder.least_limit().unzip();
        let is_first = folder.version == 1;
        let swap = match is_first {
            // The kernel's sum of memory and swap, less the memory.
            true => {
                let both = folder.number("memory.memsw.usage_in_bytes");
                let pair = both.zip(folder.usage());
                pair.map(|(both, usage)| both.saturating_sub(usage))
            }
            false => folder.number("memory.swap.current"),
        };
        let first_or = |first: &str, second: &str| match is_first {
            true => folder.number(first),
            false => folder.number(second),
        };
        let of_stat = |first: &str, second: &str| {
            number_in_line(&stat, if is_first { first } else { second })
        };
        let events = || folder.text("memory.events");
        Self {
            usage: folder.usage(),
            peak: first_or("memory.max_usage_in_bytes", "memory.peak"),
            limit,
            limit_of,
            high: folder.number("memory.high").filter(|_| !is_first),
            swap,
            anonymous: of_stat("total_rss", "anon"),
            file: of_stat("total_cache", "file"),
            failures: match is_first {
                true => folder.number("memory.failcnt"),
                false => events().and_then(|text| number_in_line(&text, "max")),
            },
            oom_kills: folder.oom_kills(),
            pressure: read_pressure(&folder.path.join("memory.pressure")),
            folder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &[u8] = b"\
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const SECOND: &[u8] = b"\
29 23 0:26 /other /mnt/other rw,nosuid - cgroup2 cgroup2 rw\n\
30 23 0:26 /host/app /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[allow(clippy::disallowed_methods, reason = "a folder of the test's own")]
    fn write(root: &Path, folder: &str, files: &[(&str, &str)]) {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_first_version_is_read() {
        let root = tempfile::tempdir().unwrap();
        let here = "sys/fs/cgroup/memory";
        let none = ("memory.limit_in_bytes", "9223372036854771712\n");
        write(root.path(), here, &[none, ("memory.usage_in_bytes", "9")]);
        write(
            root.path(),
            &format!("{here}/box"),
            &[("memory.limit_in_bytes", "4096\n")],
        );
        let files = [
            ("memory.usage_in_bytes", "2048\n"),
            ("memory.max_usage_in_bytes", "3072\n"),
            ("memory.memsw.usage_in_bytes", "2148\n"),
            ("memory.failcnt", "7\n"),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
            (
                "memory.stat",
                "cache 1\nrss 2\ntotal_cache 512\ntotal_rss 1024\n",
            ),
            none,
        ];
        write(root.path(), &format!("{here}/box/app"), &files);
        let groups = "5:cpu:/other\n4:memory:/box/app\n0::/\n";
        let folder = CgroupFolder::find(root.path(), groups, FIRST).unwrap();
        let read = Cgroup::read(folder);
        assert_eq!(
            (read.folder.version, read.folder.name.as_str()),
            (1, "/box/app")
        );
        assert_eq!(
            (read.usage, read.peak, read.swap),
            (Some(2048), Some(3072), Some(100))
        );
        assert_eq!(
            (read.limit, read.limit_of.as_deref()),
            (Some(4096), Some("/box"))
        );
        assert_eq!((read.anonymous, read.file), (Some(1024), Some(512)));
        assert_eq!((read.failures, read.oom_kills), (Some(7), Some(2)));
        assert_eq!(
            (read.high, read.pressure, read.folder.limit()),
            (None, None, None)
        );
    }

    #[test]
    fn the_second_version_is_read() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("memory.current", "2048\n"),
            ("memory.peak", "3072\n"),
            ("memory.max", "max\n"),
            ("memory.high", "5000\n"),
            ("memory.swap.current", "100\n"),
            (
                "memory.events",
                "low 0\nhigh 3\nmax 7\noom 1\noom_kill 2\noom_group_kill 0\n",
            ),
            ("memory.stat", "anon 1024\nfile 512\nkernel 9\n"),
            (
                "memory.pressure",
                "some avg10=1.50 avg60=0.25 avg300=0.00 total=9\n\
                 full avg10=1.00 avg60=0.00 avg300=0.00 total=5\n",
            ),
        ];
        write(root.path(), "sys/fs/cgroup/job", &files);
        write(root.path(), "sys/fs/cgroup", &[("memory.max", "8192\n")]);
        // The container sees the folder that it has mounted, and names from the host's root.
        let folder = CgroupFolder::find(root.path(), "0::/host/app/job\n", SECOND).unwrap();
        let read = Cgroup::read(folder);
        assert_eq!(
            (read.usage, read.peak, read.swap),
            (Some(2048), Some(3072), Some(100))
        );
        assert_eq!(
            (read.limit, read.limit_of.as_deref()),
            (Some(8192), Some("/host/app"))
        );
        assert_eq!(
            (read.high, read.failures, read.oom_kills),
            (Some(5000), Some(7), Some(2))
        );
        let pressure = read.pressure.unwrap();
        assert_eq!(
            (pressure.some, pressure.full),
            ([1.5, 0.25, 0.0], [1.0, 0.0, 0.0])
        );
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/fs/cgroup", &[("memory.current", "1\n")]);
        for groups in [
            "",
            "nonsense\n",
            "0::/elsewhere\n",
            "0::/host/app/../../x\n",
            "4:memory:/box\n",
            "0::/host/app/gone\n",
        ] {
            assert_eq!(
                CgroupFolder::find(root.path(), groups, SECOND),
                None,
                "{groups}"
            );
        }
        assert!(CgroupFolder::find(root.path(), "0::/host/app\n", SECOND).is_some());
        assert_eq!(
            CgroupFolder::find(root.path(), "0::/host/app\n", b"nonsense"),
            None
        );
    }
}

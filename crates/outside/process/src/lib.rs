//! A process as the kernel shows it in /proc and by its control group: what it is, what is mapped,
//! which pages are there, which of them it shares with other processes, what it has used up when it
//! ends, and what a core file has of it.
//!
//! It must never know SQLite, the terminal or profiles. A process may end at any moment, so each
//! reading may fail, and says so.
#![deny(unsafe_code)]

mod cgroup;
mod core_file;
mod counters;
mod explained;
mod identity;
mod kind;
mod lines;
pub mod maps;
mod pages;
mod region;
mod run;
mod smaps;
mod statm;
mod tree;
mod usage;

use std::sync::OnceLock;

pub use self::cgroup::{Cgroup, CgroupFolder, CgroupPressure, machine_pressure};
pub use self::core_file::{CoreError, CoreFile, CoreSegment};
pub use self::counters::{COUNTERS, StatusCounter, StatusCounters};
pub use self::explained::{MemoryBreakdown, MemoryPart, explain};
pub use self::identity::{
    ProcessIdentity, comm, is_there, run_state, start_ticks, status, thread_state, title,
};
pub use self::kind::{MAPPING_KINDS, MappingKind};
pub use self::pages::{PAGE_SIZE, PageMap, PageSet, PagemapEntry};
pub use self::region::{NamedMapping, file_name, is_ours, regions};
pub use self::run::{MemoryAtEnd, RunUsage, run};
pub use self::smaps::{SmapsMapping, areas, is_shared_ledger_swapped, own_memory};
pub use self::statm::StatmSizes;
pub use self::tree::{all_processes, children, descendants};
pub use self::usage::{MemoryUsage, USAGE_FIELDS, UsageField};

/// Whether the numbers of processes in /proc are those that this process knows. They are not where
/// somebody has made a namespace of such numbers and kept the /proc of another one; then it shows
/// other processes under these numbers. Without a /proc there is no such mistake.
pub fn is_proc_ours() -> bool {
    static IS_OURS: OnceLock<bool> = OnceLock::new();
    *IS_OURS.get_or_init(|| {
        let own = std::process::id();
        match std::fs::read_to_string("/proc/self/status") {
            Ok(status) => is_status_of(&status, own),
            Err(_) => !std::path::Path::new("/proc/1").exists(),
        }
    })
}

/// Whether the `status` of a process says that it has this number, and no other one in a namespace
/// within that of /proc.
fn is_status_of(status: &str, pid: u32) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // Linux before 4.1 has no NSpid.
    let numbers = field("NSpid:").or_else(|| field("Pid:"));
    numbers.is_none_or(|numbers| numbers.trim() == pid.to_string())
}

/// Why the kernel may refuse a process to root, as the end of a message.
pub const REFUSED_TO_ROOT: &str =
    ": it has a capability that this root lacks, or a security module forbids it";

/// The file of a process in /proc.
fn path(pid: u32, file: &str) -> std::path::PathBuf {
    std::path::PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// A file of a process. The kernel does not say how long such a file is, and makes most of them
/// anew for each process, so they are read in few steps.
fn read_bytes(pid: u32, file: &str) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    const INITIAL_CAPACITY: usize = 4096;
    if !is_proc_ours() {
        return Err(std::io::Error::other(
            "/proc shows the processes of another namespace; mount one here (mount -t proc proc \
             /proc)",
        ));
    }
    let mut bytes = Vec::with_capacity(INITIAL_CAPACITY);
    let opened = std::fs::File::open(path(pid, file))?;
    opened.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of a process in /proc as text. What is no text, as a name may be, is replaced.
///
/// # Errors
/// The kernel refuses it, or there is no such process, or /proc is that of another namespace.
pub fn read(pid: u32, file: &str) -> std::io::Result<String> {
    let bytes = read_bytes(pid, file)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_ours_where_it_knows_us_by_one_number() {
        assert!(is_proc_ours());
        for (status, expected) in [
            ("Name:\tx\nPid:\t7\nNSpid:\t7\n", true),
            ("Pid:\t7\n", true),
            ("", true),
            ("Pid:\t90\nNSpid:\t90\t7\n", false),
            ("Pid:\t7\nNSpid:\t7\t7\n", false),
            ("Pid:\t90\n", false),
        ] {
            assert_eq!(is_status_of(status, 7), expected, "{status:?}");
        }
    }
}

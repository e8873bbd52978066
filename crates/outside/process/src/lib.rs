//! Reads the kernel's facts about a process in /proc and in its control group: what the process is,
//! its mappings, which of their pages are present and shared with other processes, and the
//! resources that it has used when it ends. Also reads core files.
//!
//! This crate must not depend on SQLite, the terminal or profiles. A process may end at any moment,
//! so each function that reads may fail, and then returns an error.
#![deny(unsafe_code)]

mod cgroup;
pub mod clock;
mod core_file;
mod counters;
mod identity;
pub mod job_control;
mod kind;
mod lines;
pub mod maps;
mod memory_breakdown;
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
pub use self::identity::{
    ProcessIdentity, comm, is_there, run_state, start_ticks, status, thread_state, title,
};
pub use self::kind::{
    MAPPING_KINDS, MappingHints, MappingKind, MeasuredMapping, measured_mappings,
};
pub use self::memory_breakdown::{MemoryBreakdown, MemoryPart, MemoryTexts, explain};
pub use self::pages::{PAGE_SIZE, PageMap, PageSet, PagemapEntry};
pub use self::region::{NamedMapping, file_name, is_ours, regions};
pub use self::run::{MemoryAtEnd, RunUsage, run};
pub use self::smaps::{SmapsMapping, areas, is_shared_ledger_swapped, own_memory};
pub use self::statm::StatmSizes;
pub use self::tree::{all_processes, children, descendants};
pub use self::usage::{MemoryUsage, USAGE_FIELDS, UsageField};

/// Whether /proc shows the process numbers of this process's own namespace. It does not if a PID
/// namespace was made without a new /proc: the numbers in /proc then belong to other processes.
/// True if there is no /proc.
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

/// Whether a text of `/proc/PID/status` has `pid` as the process's only number. A process in a
/// namespace below the namespace of /proc has several numbers.
fn is_status_of(status: &str, pid: u32) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // Linux before 4.1 has no NSpid.
    let numbers = field("NSpid:").or_else(|| field("Pid:"));
    numbers.is_none_or(|numbers| numbers.trim() == pid.to_string())
}

/// Returns the end of an error message for root: why the kernel may have refused root. In a
/// container, root has only some capabilities.
pub fn refused_to_root() -> &'static str {
    const DAC_OVERRIDE: u64 = 1 << 1;
    const SYS_PTRACE: u64 = 1 << 19;
    let [own] = status(std::process::id(), ["CapEff:"]);
    let own = u64::from_str_radix(&own, 16).unwrap_or(u64::MAX);
    if own & SYS_PTRACE == 0 {
        ": root lacks CAP_SYS_PTRACE here, as in a container to which it was not added, and the \
         process has another user or another capability"
    } else if own & DAC_OVERRIDE == 0 {
        ": root lacks CAP_DAC_OVERRIDE here, without which it can't open the files of another \
         user's process"
    } else {
        ": it has a capability that root lacks here, or a security module forbids it"
    }
}

/// Returns the path of a process's file in /proc.
fn path(pid: u32, file: &str) -> std::path::PathBuf {
    std::path::PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Reads a /proc/PID file. The buffer is large, so that few reads are needed: the kernel does not
/// report the length of such a file, and makes most such files anew for each reader.
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

/// Reads a /proc/PID file as text. Bytes that are no text, as in a name, are replaced.
///
/// # Errors
/// The kernel may refuse access, there may be no such process, or /proc may belong to another
/// namespace.
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

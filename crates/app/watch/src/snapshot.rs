//! Reads the memory of a process at one moment, by kind of mapping, and lists all processes.

use std::io::{self, ErrorKind};

use heapprof_process::{
    Cgroup, MemoryBreakdown, MemoryUsage, ProcessIdentity, StatusCounters, all_processes, explain,
    machine_pressure, title,
};
use heapprof_report::{ListedProcess, ProcessParts, ProcessSnapshot};

/// Longest command line that is shown, in bytes.
const MAX_TITLE_BYTES: usize = 4096;

/// Reads a snapshot of a process's memory, as far as this user may read it.
/// `time_nanos` is the present time in nanoseconds since 1970.
///
/// # Errors
/// The process may be gone.
pub fn read_snapshot(pid: u32, time_nanos: i64) -> io::Result<ProcessSnapshot> {
    let mut notes = Vec::new();
    let (identity, counters, seen) = match explain(pid) {
        Ok(explained) => {
            if !explained.is_as_kernel_sums {
                notes.push(changed(&explained));
            }
            let seen = (!explained.mappings.is_empty()).then(|| ProcessParts::from(&explained));
            (explained.identity, explained.counters, seen)
        }
        Err(error) => {
            let is_refused = error.kind() == ErrorKind::PermissionDenied;
            if is_refused {
                notes.push(
                    "this user may not read the parts of its memory (smaps): for another user's \
                     process, only root with CAP_SYS_PTRACE may read them"
                        .to_string(),
                );
            }
            // The kernel gives the same error for its own threads as for a process that is gone.
            let identity = ProcessIdentity::from_pid(pid).map_err(|_| error)?;
            (identity, StatusCounters::from_pid(pid)?, None)
        }
    };
    if identity.has_ended() {
        notes.push("it has ended, but its parent has not waited for it (zombie)".to_string());
    } else if counters.get("VmRSS").is_none() {
        notes.push("it is a kernel thread, which has no memory of its own".to_string());
    }
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let cgroup = Cgroup::from_pid(pid);
    if cgroup.is_none() {
        notes.push(
            "its limit is not known: the files of its control group are not visible here (in a \
             container they may not be mounted)"
                .to_string(),
        );
    }
    Ok(ProcessSnapshot {
        pid,
        title: title(pid, MAX_TITLE_BYTES),
        name: identity.name,
        began: (identity.began, boot_id.trim().to_string()),
        time_nanos,
        parts: seen,
        counters: counters
            .iter()
            .map(|(counter, bytes)| (counter.name.to_string(), bytes))
            .collect(),
        cgroup,
        pressure: machine_pressure(),
        notes,
    })
}

fn changed(explained: &MemoryBreakdown) -> String {
    match explained.mappings.is_empty() {
        true => "it has no mappings".to_string(),
        false => "it changed each time it was read, so the total is the sum of its mappings, not \
                  that of smaps_rollup"
            .to_string(),
    }
}

/// Returns all processes that have private memory, the largest first.
///
/// # Errors
/// The list of processes may not be readable.
pub fn list_processes() -> io::Result<Vec<ListedProcess>> {
    let one = |pid: u32| {
        let rss = StatusCounters::from_pid(pid).ok()?.get("VmRSS")?;
        Some(ListedProcess {
            pid,
            name: heapprof_process::comm(pid),
            title: title(pid, MAX_TITLE_BYTES),
            rss,
            usage: MemoryUsage::from_pid(pid).ok(),
        })
    };
    let mut all: Vec<ListedProcess> = all_processes()?.into_iter().filter_map(one).collect();
    all.sort_by_key(|one| {
        let pss = one.usage.as_ref().map_or(0, |usage| usage.pss);
        (std::cmp::Reverse(pss), std::cmp::Reverse(one.rss), one.pid)
    });
    Ok(all)
}

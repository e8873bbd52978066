//! Finds the processes that an argument names: by a number, or by a name.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use heapprof_process::{StatmSizes, all_processes, comm, status, title};
use heapprof_recorder::outside::process_title;
use rustix::process::geteuid;

use crate::words::{base_name, shown};

pub use heapprof_process::is_there;

/// Maximum number of processes that are listed if a name is ambiguous.
const MAX_LISTED_PROCESSES: usize = 10;

/// Returns the processes that an argument names: one by its number, or those with a name. There is
/// at least one.
///
/// # Errors
/// There is no such process.
pub fn candidates(argument: &str) -> Result<Vec<u32>> {
    let word = argument.strip_prefix("pid:").unwrap_or(argument);
    if let Ok(pid) = word.parse::<u32>() {
        let [process] = status(pid, ["Tgid:"]);
        match process.parse::<u32>() {
            Ok(process) if process == pid => return Ok(vec![pid]),
            Ok(process) => bail!("{pid}: is a thread of process {process}; give that instead"),
            Err(_) => bail!("process {pid}: there is no such process"),
        }
    }
    if word.is_empty() {
        bail!("{argument:?} does not name a process; give its number or its name");
    }
    let found = find_where(|pid| has_name(pid, word))?;
    if found.is_empty() {
        bail!("{word}: no process has this name; heapprof proc lists them");
    }
    Ok(found)
}

/// Returns a line about a process: its number, its name with the script that it runs, and its
/// resident memory. The name may have control characters.
#[must_use]
pub fn line(pid: u32) -> String {
    let resident = StatmSizes::from_pid(pid).map_or(0, |sizes| sizes.rss);
    format!("{pid:>9}  {:>10}  {}", shown(resident), title_of(pid))
}

/// Returns the processes of this user that have a name.
///
/// # Errors
/// The processes can't be listed.
pub fn own(name: &str) -> Result<Vec<u32>> {
    find_where(|pid| has_name(pid, name) && is_own(pid))
}

/// Returns the processes of this user that run a program or a script.
#[must_use]
pub fn running(program: &Path) -> Vec<u32> {
    let id = |path: &Path| std::fs::metadata(path).ok().map(|of| (of.dev(), of.ino()));
    let Some(wanted) = id(program) else {
        return Vec::new();
    };
    let runs_it = |pid| {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let script = process_title(&comm(pid), pid);
        let script = script.map(|script| proc.join("cwd").join(script));
        id(&proc.join("exe")) == Some(wanted) || script.is_some_and(|of| id(&of) == Some(wanted))
    };
    find_where(|pid| is_own(pid) && runs_it(pid)).unwrap_or_default()
}

/// Returns the error for a name that several processes have.
#[must_use]
pub fn several(name: &str, pids: &[u32]) -> anyhow::Error {
    let shown: Vec<String> = pids
        .iter()
        .take(MAX_LISTED_PROCESSES)
        .map(u32::to_string)
        .collect();
    let more = match pids.len().saturating_sub(MAX_LISTED_PROCESSES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    anyhow!(
        "{name}: {} processes have this name; give one by its number: {}{more}",
        pids.len(),
        shown.join(", ")
    )
}

/// Returns the processes for which `is_wanted` is true, without this one and those that have ended.
fn find_where(is_wanted: impl Fn(u32) -> bool) -> Result<Vec<u32>> {
    let own = std::process::id();
    let all = all_processes().context("/proc: the list of processes cannot be read")?;
    let found = all.into_iter().filter(|&pid| pid != own && is_wanted(pid));
    Ok(found.filter(|&pid| is_there(pid)).collect())
}

/// Whether a process has a name: the kernel's, that of its file, or that of the script that it
/// runs.
fn has_name(pid: u32, name: &str) -> bool {
    // The kernel's own threads have no title.
    if name.is_empty() {
        return false;
    }
    let is_script = || {
        let title = process_title(&comm(pid), pid).unwrap_or_default();
        base_name(&title) == name
    };
    comm(pid) == name || file(pid) == name || is_script()
}

/// Returns the name of a process, with the script that it runs.
pub(crate) fn title_of(pid: u32) -> String {
    let name = comm(pid);
    match process_title(&name, pid) {
        // A title often begins with the name.
        Some(title) if title.starts_with(&name) => title,
        Some(script) => format!("{name} {script}"),
        None => name,
    }
}

/// Whether a process belongs to this user.
fn is_own(pid: u32) -> bool {
    let found = std::fs::metadata(format!("/proc/{pid}"));
    found.is_ok_and(|found| found.uid() == geteuid().as_raw())
}

/// Returns the file name with which a process was started. It may be longer than the kernel's name
/// of the process.
fn file(pid: u32) -> String {
    let title = title(pid, 4096).unwrap_or_default();
    let first = title.split(' ').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default().to_string()
}

//! Finds the process that an argument names: by its number, or by a name that only one process has.

use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, bail};
use heapprof_process::{all_processes, comm, is_there, status, title};
use rustix::process::geteuid;

/// Maximum number of processes that are listed if a name is ambiguous.
const MAX_LISTED_PROCESSES: usize = 10;

/// Whether a word names a running process: by its number, or one of this user by its name.
#[must_use]
pub fn is_named(word: &str) -> bool {
    match word.parse::<u32>() {
        Ok(pid) => is_there(pid),
        Err(_) => !word.starts_with('-') && find_own(word).is_ok(),
    }
}

/// Returns the process id of the process of this user that has a name.
///
/// # Errors
/// No process of this user has the name, or several have it.
pub fn find_own(name: &str) -> Result<u32> {
    let own = geteuid().as_raw();
    find_where(name, |pid| {
        let found = std::fs::metadata(format!("/proc/{pid}"));
        found.is_ok_and(|found| found.uid() == own)
    })
}

/// Returns the process id of the process that an argument names: by its number, or by a name that
/// only one process has.
///
/// # Errors
/// There is no such process, or several have the name.
pub fn find(argument: &str) -> Result<u32> {
    find_where(argument, |_| true)
}

/// Returns the process id of the process that an argument names, by its number, or by a name. Of
/// several processes with the name, those count for which `is_wanted` is true.
fn find_where(argument: &str, is_wanted: impl Fn(u32) -> bool) -> Result<u32> {
    let word = argument.strip_prefix("pid:").unwrap_or(argument);
    if let Ok(pid) = word.parse::<u32>() {
        let [process] = status(pid, ["Tgid:"]);
        match process.parse::<u32>() {
            Ok(process) if process == pid => return Ok(pid),
            Ok(process) => bail!("{pid}: is a thread of process {process}; name that"),
            Err(_) => bail!("process {pid}: there is no such process"),
        }
    }
    if word.is_empty() {
        bail!("{argument:?} names no process; say its number or its name");
    }
    let own = std::process::id();
    let all = all_processes().context("/proc: the list of processes cannot be read")?;
    let is_named =
        |pid: &u32| *pid != own && (comm(*pid) == word || file(*pid) == word) && is_there(*pid);
    let found: Vec<u32> = all
        .into_iter()
        .filter(is_named)
        .filter(|pid| is_wanted(*pid))
        .collect();
    match found.as_slice() {
        [pid] => Ok(*pid),
        [] => bail!("{word}: no process has this name; heapprof proc lists them"),
        several => {
            let pids: Vec<String> = several
                .iter()
                .take(MAX_LISTED_PROCESSES)
                .map(u32::to_string)
                .collect();
            let more = match several.len().saturating_sub(MAX_LISTED_PROCESSES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            bail!(
                "{word}: {} processes have this name; name one by its number: {}{more}",
                several.len(),
                pids.join(", ")
            )
        }
    }
}

/// Returns the file name with which a process was started. It may be longer than the kernel's name
/// of the process.
fn file(pid: u32) -> String {
    let title = title(pid, 4096).unwrap_or_default();
    let first = title.split(' ').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default().to_string()
}

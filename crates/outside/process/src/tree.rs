//! Lists processes, and the descendants of a process.

use std::collections::BTreeSet;
use std::io;

use crate::path;

/// Maximum number of processes in a list of descendants, with the first process.
const MAX_DESCENDANTS: usize = 1000;

/// Lists the processes of this machine that this user can see, in order of their numbers.
///
/// # Errors
/// The list of processes may be unreadable.
pub fn all_processes() -> io::Result<Vec<u32>> {
    let mut pids: Vec<u32> = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    Ok(pids)
}

/// Lists the children of a process and of all of its threads. Empty if the process is gone.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(path(pid, "task")) else {
        return Vec::new();
    };
    let of_thread = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let pids = text.split_whitespace().filter_map(|id| id.parse().ok());
        pids.collect::<Vec<u32>>()
    };
    threads.flatten().flat_map(of_thread).collect()
}

/// Lists a process and its descendants; 1000 at most.
#[must_use]
pub fn descendants(pid: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([pid]);
    let mut left = vec![pid];
    while let Some(process) = left.pop() {
        for child in children(process) {
            if found.len() < MAX_DESCENDANTS && found.insert(child) {
                left.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_descends_from_this_process() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep")
            .arg("20")
            .spawn()
            .unwrap();
        assert!(descendants(own).contains(&child.id()));
        assert!(children(own).contains(&child.id()));
        assert!(all_processes().unwrap().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children(own).contains(&child.id()));
    }
}

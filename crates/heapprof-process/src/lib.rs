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

pub use self::cgroup::{Cgroup, Folder, Pressure, machine_pressure};
pub use self::core_file::{CoreError, CoreFile, Segment};
pub use self::counters::{COUNTERS, Counter, Counters};
pub use self::explained::{Explained, Part, explain};
pub use self::identity::{Identity, began, comm, is_there, run_state, status, thread_state, title};
pub use self::kind::{KINDS, Kind};
pub use self::pages::{PAGE, Page, PageMap, PageSet};
pub use self::region::{Region, file_name, is_ours, regions};
pub use self::run::{AtEnd, Ran, run};
pub use self::smaps::{Area, areas, is_swapped, own_memory};
pub use self::statm::Statm;
pub use self::tree::{all_processes, children, descendants};
pub use self::usage::{FIELDS, Field, Usage};

/// The file of a process in /proc.
fn path(pid: u32, file: &str) -> std::path::PathBuf {
    std::path::PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// A file of a process. The kernel does not say how long such a file is, and makes most of them
/// anew for each process, so they are read in few steps.
fn read_bytes(pid: u32, file: &str) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    const USUAL: usize = 4096;
    let mut bytes = Vec::with_capacity(USUAL);
    let opened = std::fs::File::open(path(pid, file))?;
    opened.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file of a process, as text. A process's name may be no text, so what is none is replaced.
fn read(pid: u32, file: &str) -> std::io::Result<String> {
    let bytes = read_bytes(pid, file)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

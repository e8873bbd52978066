//! The files that recorded processes run, held open: afterwards the names of these files may lead
//! to others (an upgrade), or nowhere (a file in memory, another mount namespace).
//!
//! Each process hands its own over, which it has opened itself. What a user's processes hand over
//! is that user's word, so it names the code of that user's processes only.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heapprof_process::{is_proc_ours, maps};
use rustix::process::Pid;

use crate::place::Owner;
use crate::rights::ProcessRights;

/// More files are not held open.
const MAX_FILES: usize = 256;
/// With more processes than this, they are not looked through for deleted files.
const MAX_PROCESSES: usize = 64;

/// Open files, each once for each user, by the user, the device and the inode.
#[derive(Default)]
pub(super) struct Executables(BTreeMap<(u32, u64, u64), File>);

impl Executables {
    /// Opens the code that processes have mapped and whose names lead to other files by now. Only
    /// root may do that, so of another user's processes only what everybody may read is held.
    pub(super) fn add_deleted(
        &mut self,
        processes: impl ExactSizeIterator<Item = (Pid, ProcessRights)>,
    ) {
        let may_open = rustix::process::geteuid().is_root() && is_proc_ours();
        if processes.len() > MAX_PROCESSES || !may_open {
            return;
        }
        for (process, rights) in processes {
            let ProcessRights::User(owner) = rights else {
                continue;
            };
            let maps = std::fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
            let deleted = maps::parse(&maps).into_iter();
            for map in deleted.filter(|map| map.is_code && map.path.ends_with(b" (deleted)")) {
                if self.0.len() >= MAX_FILES {
                    return;
                }
                let range = map.range();
                let range = format!("{:x}-{:x}", range.start, range.end);
                let opened = File::open(format!("/proc/{process}/map_files/{range}")).ok();
                self.hold(
                    owner,
                    opened.filter(|file| rights.are_ours() || is_for_all(file)),
                );
            }
        }
    }

    /// Holds a file that a process of this user has mapped.
    pub(super) fn hold(&mut self, owner: Owner, file: Option<File>) {
        if let Some(file) = file
            && self.0.len() < MAX_FILES
            && let Ok(about) = file.metadata()
            && about.is_file()
        {
            let key = (owner.user, about.dev(), about.ino());
            self.0.entry(key).or_insert(file);
        }
    }

    /// Where those of a user can be opened again, with the rights of whoever does so.
    pub(super) fn of(&self, owner: Owner) -> Vec<PathBuf> {
        let of_user = self
            .0
            .range((owner.user, 0, 0)..=(owner.user, u64::MAX, u64::MAX));
        let path = |file: &File| Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
        of_user.map(|(_, file)| path(file)).collect()
    }
}

/// Whether everybody may read a file.
fn is_for_all(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.mode() & 0o004 != 0)
}

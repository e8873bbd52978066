//! Keeps the executables of recorded processes open, because their names may later lead to other
//! files (after an upgrade), or to none (a file in memory, another mount namespace).
//!
//! Each process opens its own executable and hands it over. Only the process's user vouches for the
//! file. So the file names code only in processes of this user.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use heapprof_files::FileOwner;
use heapprof_process::{is_proc_ours, maps};
use rustix::process::Pid;

use crate::rights::ProcessRights;

/// Maximum number of files that are kept open for this user. Other users have separate limits, so
/// they can't exhaust this limit.
const MAX_FILES: usize = 256;
/// Maximum number of files that are kept open for one other user.
const MAX_FILES_PER_OTHER_USER: usize = 32;
/// Maximum number of files that are kept open for all other users together.
const MAX_FILES_OF_OTHER_USERS: usize = 128;
/// The first bytes of an executable.
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// Maximum number of processes that are searched for deleted files. If there are more, no process
/// is searched.
const MAX_PROCESSES: usize = 64;

/// Open executables. The key is the user, the device and the inode.
#[derive(Default)]
pub(crate) struct OpenExecutables(BTreeMap<(u32, u64, u64), File>);

impl OpenExecutables {
    /// Opens code files that processes have mapped, and whose names lead to other files by now.
    /// Only root can open such files. Files of another user's process are kept only if everybody
    /// may read them.
    pub(crate) fn add_deleted(
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
                let range = map.range();
                let range = format!("{:x}-{:x}", range.start, range.end);
                let path = format!("/proc/{process}/map_files/{range}");
                // A file that is kept already, or may not be kept, is not opened.
                let may = |about: &Metadata| rights.are_ours() || about.mode() & 0o004 != 0;
                let is_wanted = std::fs::metadata(&path)
                    .is_ok_and(|about| may(&about) && self.has_room_for(owner, &about));
                let opened = is_wanted.then(|| File::open(path).ok()).flatten();
                // Another file may have this path by now.
                let opened = opened.filter(|file| file.metadata().is_ok_and(|about| may(&about)));
                self.hold(owner, opened);
            }
        }
    }

    /// Keeps a file open that a process of `owner` has mapped.
    pub(crate) fn hold(&mut self, owner: FileOwner, file: Option<File>) {
        if let Some(file) = file
            && let Ok(about) = file.metadata()
            && self.has_room_for(owner, &about)
            && is_executable(&file)
        {
            self.0.insert(key(owner, &about), file);
        }
    }

    /// Whether a file can be added for its user: it is not open yet, and the limits allow one more.
    fn has_room_for(&self, owner: FileOwner, about: &Metadata) -> bool {
        let users = self.0.keys().map(|(user, _, _)| *user);
        let of_user = users.clone().filter(|user| *user == owner.user).count();
        let own = FileOwner::us().user;
        let has_room = match owner.is_us() {
            true => of_user < MAX_FILES,
            false => {
                let of_others = users.filter(|user| *user != own).count();
                of_user < MAX_FILES_PER_OTHER_USER && of_others < MAX_FILES_OF_OTHER_USERS
            }
        };
        about.is_file() && has_room && !self.0.contains_key(&key(owner, about))
    }

    /// Returns the paths below `/proc/self/fd` at which a user's files can be opened again. The
    /// kernel then checks the rights of the opener.
    pub(crate) fn paths_for(&self, owner: FileOwner) -> Vec<PathBuf> {
        let of_user = self
            .0
            .range((owner.user, 0, 0)..=(owner.user, u64::MAX, u64::MAX));
        let path = |file: &File| Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
        of_user.map(|(_, file)| path(file)).collect()
    }
}

fn key(owner: FileOwner, about: &Metadata) -> (u32, u64, u64) {
    (owner.user, about.dev(), about.ino())
}

/// Whether a file may be code that a process runs.
fn is_executable(file: &File) -> bool {
    let mut magic = [0; ELF_MAGIC.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == ELF_MAGIC
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Returns a temporary file with the content `text`.
    fn file(text: &[u8]) -> Option<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        Some(file)
    }

    #[test]
    fn no_user_takes_the_room_of_another() {
        let mut held = OpenExecutables::default();
        let count = |held: &OpenExecutables, owner| held.paths_for(owner).len();
        let us = FileOwner::us();
        let other = |n: u32| FileOwner {
            user: us.user + n,
            group: us.group,
        };
        for owner in (1..10).map(other) {
            for _ in 0..MAX_FILES_PER_OTHER_USER + 1 {
                held.hold(owner, file(b"\x7fELF\x02"));
            }
            assert!(count(&held, owner) <= MAX_FILES_PER_OTHER_USER);
        }
        assert_eq!(held.0.len(), MAX_FILES_OF_OTHER_USERS);
        for text in [&b"#!/bin/sh"[..], b"", b"\x7fEL"] {
            held.hold(us, file(text));
        }
        assert_eq!(count(&held, us), 0);
        let own = file(b"\x7fELF").unwrap();
        for _ in 0..3 {
            held.hold(us, own.try_clone().ok());
        }
        assert_eq!(count(&held, us), 1);
    }
}

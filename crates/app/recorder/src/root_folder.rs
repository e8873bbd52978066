//! The root folders of recorded processes that run in a container or a chroot. They are kept open,
//! so that the files that such a process named can be read even after it has ended.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heapprof_process::is_proc_ours;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

/// Maximum number of root folders that are kept open.
const MAX_ROOTS: usize = 64;

/// A root folder other than heapprof's, with the mounts below it.
#[derive(Clone, Debug)]
pub struct RootFolder(Arc<OpenedRoot>);

#[derive(Debug)]
struct OpenedRoot {
    folder: OwnedFd,
    id: FileId,
    /// The mount namespace of the process. As long as it is open, the kernel keeps its mounts.
    _mounts: Option<File>,
}

impl RootFolder {
    /// Opens the root folder of a process; `None` if it is heapprof's own, or can't be opened.
    /// `given` is the folder that the process itself has opened.
    fn open(pid: u32, given: Option<File>) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match given {
            Some(given) => given.into(),
            None => openat(CWD, other_root(pid)?, flags, Mode::empty()).ok()?,
        };
        let found = fstat(&folder).ok()?;
        if !FileType::from_raw_mode(found.st_mode).is_dir() {
            return None;
        }
        Some(Self(Arc::new(OpenedRoot {
            folder,
            id: FileId(found.st_dev, found.st_ino),
            _mounts: File::open(format!("/proc/{pid}/ns/mnt")).ok(),
        })))
    }

    /// Returns a path that leads to the folder.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.folder.as_raw_fd()).into()
    }
}

impl PartialEq for RootFolder {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for RootFolder {}

/// The root folders of a recording's processes.
#[derive(Default)]
pub(crate) struct RootFolders(Vec<RootFolder>);

impl RootFolders {
    /// Returns the root folder of a process; `None` if it is heapprof's own. `given` is the folder
    /// that the process itself has handed over.
    pub(crate) fn find(&mut self, pid: u32, given: Option<File>) -> Option<RootFolder> {
        let found = RootFolder::open(pid, given)?;
        match self.0.iter().find(|known| **known == found) {
            Some(known) => Some(known.clone()),
            None if self.0.len() < MAX_ROOTS => {
                self.0.push(found.clone());
                Some(found)
            }
            None => None,
        }
    }
}

/// Returns a path that leads to the root folder of a process; `None` if it is heapprof's own, or if
/// the process changed it after it had loaded its program: then its files lie outside.
pub(crate) fn other_root(pid: u32) -> Option<PathBuf> {
    let path = PathBuf::from(format!("/proc/{pid}/root"));
    let is_other = is_proc_ours() && FileId::at_path(&path)? != FileId::at_path(Path::new("/"))?;
    let folder = std::fs::read_link(&path).ok()?;
    let is_inside = || {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        program.is_ok_and(|program| program.starts_with(folder))
    };
    (is_other && is_inside()).then_some(path)
}

/// The device and the inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    /// Returns the file to which a path leads; `None` if it can't be inspected.
    pub(crate) fn at_path(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self(found.dev(), found.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_this_root_has_no_other() {
        assert_eq!(other_root(std::process::id()), None);
        assert!(
            RootFolders::default()
                .find(std::process::id(), None)
                .is_none()
        );
    }
}

//! The folder in which `record` and the recorded processes communicate. Its name is random, and it
//! is removed when `record` ends. If `record` is killed, the next `record` of the same user removes
//! the folder: its lock is free, so no process uses it any more.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::TempDir;

/// The beginning of the name of a recording's folder.
const FOLDER_PREFIX: &str = ".heapprof-";
/// The mode of a recording's folder.
const FOLDER_MODE: u32 = 0o711;
/// The mode of the list of profiles in the folder.
const LIST_MODE: u32 = 0o1733;
/// The name of the list of profiles.
const LIST_NAME: &str = "list";
/// The maximum number of folders of killed recordings that are removed at once.
const MAX_REMOVED: usize = 64;
/// Maximum depth of nested folders that are removed. Recorded processes may have made folders in a
/// recording's folder.
const MAX_DEPTH: usize = 32;

/// The folder of a file system in memory.
const MEMORY_FOLDER: &str = "/dev/shm";

const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The folder of a recording.
pub(crate) struct RecordFolder {
    folder: TempDir,
    /// The lock of the folder. The kernel releases it when this process ends, even if it is killed.
    _lock: OwnedFd,
}

impl RecordFolder {
    /// Makes the folder. Folders of killed recordings are removed first.
    pub(crate) fn new() -> io::Result<Self> {
        let place = temporary_folder();
        match Self::new_in(&place) {
            // In a container, this may be the only folder that a process can write to.
            Err(error) if is_unwritable(&error) => {
                Self::new_in(Path::new(MEMORY_FOLDER)).map_err(|_| error)
            }
            made => made,
        }
    }

    fn new_in(place: &Path) -> io::Result<Self> {
        remove_abandoned(place);
        loop {
            // The program may become another user, so others may enter the folder. They can't list
            // it, so they do not find its files.
            let only = || Permissions::from_mode(FOLDER_MODE);
            let folder = tempfile::Builder::new()
                .prefix(FOLDER_PREFIX)
                .permissions(only())
                .tempdir_in(place)?;
            // Sets the mode whatever the umask is.
            std::fs::set_permissions(folder.path(), only())?;
            let lock = openat(CWD, folder.path(), FOLDER_FLAGS, Mode::empty())?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                // Another `record` that removes abandoned folders may have come before the lock.
                Err(Errno::WOULDBLOCK) => continue,
                Ok(()) if fstat(&lock)?.st_nlink == 0 => continue,
                // On a file system without locks, no folder is removed.
                Ok(()) | Err(_) => {}
            }
            return Ok(Self {
                folder,
                _lock: lock,
            });
        }
    }

    /// Makes the folder that is the list of profiles. Each user may add files to it, and remove
    /// only their own files.
    pub(crate) fn make_list(&self) -> io::Result<PathBuf> {
        let path = self.folder.path().join(LIST_NAME);
        std::fs::create_dir(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(LIST_MODE))?;
        Ok(path)
    }
}

/// Returns a folder for temporary files, in which no other user can change this user's files.
/// `TMPDIR` may come from another user (`sudo -E`), so an unsafe folder in it is ignored.
fn temporary_folder() -> PathBuf {
    let named = std::env::temp_dir();
    // The path of a socket in the folder has 107 bytes at most.
    let is_short = named.as_os_str().len() <= 70;
    let is_safe = std::fs::metadata(&named).is_ok_and(|found| {
        let (ours, sticky) = ([0, geteuid().as_raw()], found.mode() & 0o1000 != 0);
        ours.contains(&found.uid()) && (found.mode() & 0o022 == 0 || sticky)
    });
    if is_safe && is_short {
        named
    } else {
        PathBuf::from("/tmp")
    }
}

/// Whether an error means that no file can be made in a folder.
fn is_unwritable(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(
        error.kind(),
        NotFound | PermissionDenied | ReadOnlyFilesystem
    )
}

/// Removes the folders of this user's recordings that were killed.
fn remove_abandoned(place: &Path) {
    let Ok(place) = openat(CWD, place, FOLDER_FLAGS, Mode::empty()) else {
        return;
    };
    let is_ours = |name: &OsString| name.as_bytes().starts_with(FOLDER_PREFIX.as_bytes());
    let mut removed = 0;
    // Other users may have made many folders with such names; these do not count.
    for name in names(&place).into_iter().filter(is_ours) {
        removed += usize::from(remove_if_abandoned(&place, &name).is_ok_and(|is_gone| is_gone));
        if removed == MAX_REMOVED {
            return;
        }
    }
}

/// Removes a folder if it belongs to this user and is not locked. Returns whether it is gone.
fn remove_if_abandoned(place: &OwnedFd, name: &OsString) -> io::Result<bool> {
    if statat(place, name, AtFlags::SYMLINK_NOFOLLOW)?.st_uid != geteuid().as_raw() {
        return Ok(false);
    }
    let folder = openat(place, name, FOLDER_FLAGS, Mode::empty())?;
    let found = fstat(&folder)?;
    // A folder of another program may have such a name.
    let list = statat(&folder, LIST_NAME, AtFlags::SYMLINK_NOFOLLOW);
    let is_recording = found.st_mode & 0o7777 == FOLDER_MODE
        && list.is_ok_and(|list| list.st_mode & 0o7777 == LIST_MODE && is_folder(&list));
    if found.st_uid != geteuid().as_raw() || !is_recording {
        return Ok(false);
    }
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    empty(&folder, MAX_DEPTH)?;
    // The folder still has its name, because no other user can rename it there.
    let there = statat(place, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let id = |of: &Stat| (of.st_dev, of.st_ino);
    if id(&there) == id(&found) {
        unlinkat(place, name, AtFlags::REMOVEDIR)?;
        return Ok(true);
    }
    Ok(false)
}

/// Removes everything in a folder. No link is followed. Names are resolved inside the opened
/// folder, so moving the folder can't redirect the removal.
fn empty(folder: &OwnedFd, depth: usize) -> io::Result<()> {
    for name in names(folder) {
        let found = statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_folder = is_folder(&found);
        if is_folder && depth > 0 {
            empty(
                &openat(folder, &name, FOLDER_FLAGS, Mode::empty())?,
                depth - 1,
            )?;
        }
        let flags = match is_folder {
            true => AtFlags::REMOVEDIR,
            false => AtFlags::empty(),
        };
        unlinkat(folder, &name, flags)?;
    }
    Ok(())
}

fn is_folder(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode).is_dir()
}

/// Returns the names in a folder.
fn names(folder: &OwnedFd) -> Vec<OsString> {
    let Ok(entries) = Dir::read_from(folder) else {
        return Vec::new();
    };
    let names = entries.filter_map(Result::ok);
    let names = names.map(|entry| entry.file_name().to_bytes().to_vec());
    let names = names.filter(|name| !matches!(&name[..], b"." | b".."));
    names
        .map(std::os::unix::ffi::OsStringExt::from_vec)
        .collect()
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_has_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(format!("{FOLDER_PREFIX}{name}"));
        for name in ["left", "held"] {
            std::fs::create_dir_all(at(name).join("list/a/b")).unwrap();
            std::fs::write(at(name).join("list/0"), "x").unwrap();
            std::os::unix::fs::symlink("/", at(name).join("list/a/link")).unwrap();
            let be = |path: &Path, mode| {
                std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            };
            be(&at(name), FOLDER_MODE);
            be(&at(name).join(LIST_NAME), LIST_MODE);
        }
        std::fs::create_dir(place.path().join("other")).unwrap();
        std::fs::create_dir(at("of_another_kind")).unwrap();
        std::os::unix::fs::symlink("other", at("link")).unwrap();
        for n in 0..2 * MAX_REMOVED {
            std::fs::create_dir(at(&format!("a{n}"))).unwrap();
        }
        let held = openat(CWD, at("held"), FOLDER_FLAGS, Mode::empty()).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        remove_abandoned(place.path());
        assert!(!at("left").exists() && at("link").is_symlink());
        assert!(at("held").join("list/a/b").is_dir() && place.path().join("other").is_dir());
        assert!(at("of_another_kind").is_dir());
        drop(held);
        remove_abandoned(place.path());
        assert!(!at("held").exists());
    }
}

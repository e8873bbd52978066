//! Writes files safely, even in folders in which other users may write.
//!
//! A [`FilePlace`] is a folder that was opened once, and a name in it. If another user renames
//! folders or plants links afterwards, the file still goes to that folder. [`PathTrust`] decides
//! whose links are followed in a path. A [`FileDraft`] gets the file's name when it is complete.
//! [`acting`] does work with the rights of a file's owner. SECURITY.md lists the rules for each
//! file.
//!
//! This crate must never know profiles or the command line.
#![forbid(unsafe_code)]
// The rules are for programs. Tests write where nobody else does.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod draft;
mod owner;
mod typed_path;
mod walk;
mod write;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fstat, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

pub use draft::{FileAccess, FileDraft, parse_mode};
pub use owner::{FileOwner, acting};
pub use typed_path::{TypedPath, TypedPathError, check_writable, resolve_typed};
pub use walk::{PathTrust, make_folder, open_folder};
pub use write::{FileWriteError, replace_file, write_named};

/// A name in an opened folder, where a file may be.
pub struct FilePlace {
    folder: OwnedFd,
    name: OsString,
}

/// A file that exists, with its metadata.
pub struct OpenedFile {
    /// The open file.
    pub file: File,
    /// The file's metadata.
    pub stat: Stat,
}

/// Renames a folder to a name that is not taken. Before Linux 3.15, and on some file systems, an
/// empty folder with the new name may be replaced.
pub fn rename_folder(
    (from, name): (BorrowedFd<'_>, impl Arg + Copy),
    (to, named): (BorrowedFd<'_>, impl Arg + Copy),
) -> rustix::io::Result<()> {
    match renameat_with(from, name, to, named, RenameFlags::NOREPLACE) {
        Err(Errno::NOSYS | Errno::INVAL) => match renameat(from, name, to, named) {
            Err(Errno::NOTEMPTY | Errno::NOTDIR) => Err(Errno::EXIST),
            renamed => renamed,
        },
        renamed => renamed,
    }
}

impl FilePlace {
    /// Returns the place of `path`. `trust` decides which links and folders are accepted in the
    /// path of its folder.
    pub fn resolve(path: &Path, trust: PathTrust) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        let folder = open_folder(folder.unwrap_or(Path::new(".")), trust)?;
        Ok(Self::in_folder(folder, name))
    }

    /// Makes the place of `name` in an opened folder.
    pub fn in_folder(folder: OwnedFd, name: impl Into<OsString>) -> Self {
        let name = name.into();
        Self { folder, name }
    }

    /// Returns the name in the folder.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the opened folder.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Returns the metadata of the file or link with this name; `None` if there is none. A link is
    /// not followed.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a plain file for reading. Fails for a link, a pipe, and a file with several names.
    pub fn open(&self) -> io::Result<OpenedFile> {
        // Without `NONBLOCK`, opening a pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.folder, &self.name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::LOOP) => return Err(io::Error::other("is a link")),
            Err(error) => return Err(error.into()),
        };
        let stat = fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_nlink == 1 => {}
            FileType::RegularFile => {
                return Err(io::Error::other(
                    "has several hard links, so another name may lead to the same file",
                ));
            }
            _ => return Err(io::Error::other("is not a regular file")),
        }
        let file = File::from(file);
        Ok(OpenedFile { file, stat })
    }

    /// Makes a temporary file beside the place. The file gets the name of the place when it is
    /// complete.
    pub fn draft(&self, access: FileAccess) -> io::Result<FileDraft<'_>> {
        FileDraft::new(self.folder.as_fd(), &self.name, access)
    }

    /// Makes an empty file with the mode `mode`, unless a file exists at this place.
    pub fn make(&self, mode: u32) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        match openat(&self.folder, &self.name, flags | OFlags::CLOEXEC, mode) {
            Ok(file) => Ok(rustix::fs::fchmod(file, mode)?),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the file at this place.
    pub fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }
}

/// Whether a file may have been planted: its folder allows everybody to add files, and its owner is
/// neither this user nor the folder's owner. This is the rule of fs.protected_symlinks and
/// fs.protected_fifos. It holds here even if the kernel's rules are switched off.
fn is_planted(folder: &Stat, found: &Stat) -> bool {
    const STICKY_AND_OPEN: u32 = 0o1002;
    let own = rustix::process::geteuid().as_raw();
    folder.st_mode & STICKY_AND_OPEN == STICKY_AND_OPEN
        && found.st_uid != own
        && found.st_uid != folder.st_uid
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;

    use super::*;

    /// Returns a folder, and the path of a file in it with the text `old`.
    fn folder_with_file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "old").unwrap();
        (folder, path)
    }

    fn names(folder: &Path) -> Vec<OsString> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_draft_takes_the_place_when_it_is_whole() {
        let (folder, path) = folder_with_file();
        let place = FilePlace::resolve(&path, PathTrust::Any).unwrap();
        let mut draft = place.draft(FileAccess::Exactly(0o640)).unwrap();
        draft.file().write_all(b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        draft.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o640);
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn a_draft_that_is_given_up_leaves_nothing() {
        let (folder, path) = folder_with_file();
        let place = FilePlace::resolve(&path, PathTrust::Any).unwrap();
        drop(place.draft(FileAccess::Exactly(0o600)).unwrap());
        let draft = place.draft(FileAccess::Exactly(0o600)).unwrap();
        assert!(draft.finish_new().is_err(), "a file is there");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn a_place_stays_where_its_folder_went() {
        let (folder, _) = folder_with_file();
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let place = FilePlace::resolve(&inside.join("new"), PathTrust::Any).unwrap();
        let moved = folder.path().join("moved");
        std::fs::rename(&inside, &moved).unwrap();
        std::fs::create_dir(&inside).unwrap();
        let draft = place.draft(FileAccess::Exactly(0o600)).unwrap();
        draft.finish_new().unwrap();
        assert!(moved.join("new").is_file() && names(&inside).is_empty());
    }

    #[test]
    fn only_plain_files_with_one_name_are_opened() {
        let (folder, path) = folder_with_file();
        let open = |name: &str| {
            let place = FilePlace::resolve(&folder.path().join(name), PathTrust::Any).unwrap();
            place.open().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(open("file"), Ok(()));
        symlink(&path, folder.path().join("link")).unwrap();
        assert_eq!(open("link"), Err("is a link".to_string()));
        std::fs::hard_link(&path, folder.path().join("second")).unwrap();
        assert!(
            open("file")
                .unwrap_err()
                .starts_with("has several hard links")
        );
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        assert_eq!(open("folder"), Err("is not a regular file".to_string()));
    }

    #[test]
    fn a_typed_path_is_a_place_or_says_why_not() {
        let (folder, path) = folder_with_file();
        let resolve = |name: &str| resolve_typed(&folder.path().join(name), PathTrust::Any);
        assert!(matches!(resolve("file"), Ok(TypedPath::Place(_, Some(_)))));
        assert!(matches!(resolve("new"), Ok(TypedPath::Place(_, None))));
        assert!(matches!(
            resolve("gone/new"),
            Err(TypedPathError::NoFolder { .. })
        ));
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(matches!(resolve("folder"), Err(TypedPathError::Folder(_))));
        symlink(&path, folder.path().join("link")).unwrap();
        let Ok(TypedPath::Place(place, Some(_))) = resolve("link") else {
            panic!("an own link is followed");
        };
        assert_eq!(place.name(), "file");
        symlink("ring", folder.path().join("ring")).unwrap();
        assert!(matches!(
            resolve("ring"),
            Err(TypedPathError::Unwritable { .. })
        ));
        assert!(matches!(
            resolve_typed(Path::new("/dev/null"), PathTrust::Any),
            Ok(TypedPath::Open(_))
        ));
    }

    #[test]
    fn a_folder_is_not_renamed_over_another_one() {
        let (folder, _) = folder_with_file();
        for name in ["one", "two"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let at = open_folder(folder.path(), PathTrust::Any).unwrap();
        let rename = |to: &str| rename_folder((at.as_fd(), "one"), (at.as_fd(), to));
        assert_eq!(rename("two"), Err(Errno::EXIST));
        assert_eq!(rename("three"), Ok(()));
        assert_eq!(names(folder.path()), ["file", "three", "two"]);
    }
}

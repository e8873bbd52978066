//! Places where files are written: a folder that was opened once, and a name in it. If another user
//! renames folders or plants links afterwards, the file goes to the same place.

mod draft;
mod owner;
mod typed;
mod walk;

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

pub(crate) use draft::{FileAccess, FileDraft};
pub(crate) use owner::{FileOwner, acting};
pub(crate) use typed::{TypedPath, resolve_typed};
pub(crate) use walk::{PathTrust, make_folder, open_folder};

/// A name in an opened folder.
pub(crate) struct FilePlace {
    folder: OwnedFd,
    name: OsString,
}

/// A file that exists, with its metadata.
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    pub(crate) stat: Stat,
}

/// Gives a folder a name that is not taken yet. Before Linux 3.15, and on a file system that does
/// not support this, the name of an empty folder may be taken over, too.
pub(crate) fn rename_folder(
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
    /// Returns the place of `path`. If `trust` says so, no links of other users are followed on the
    /// way to its folder.
    pub(crate) fn resolve(path: &Path, trust: PathTrust) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        let folder = open_folder(folder.unwrap_or(Path::new(".")), trust)?;
        Ok(Self::in_folder(folder, name))
    }

    pub(crate) fn in_folder(folder: OwnedFd, name: impl Into<OsString>) -> Self {
        let name = name.into();
        Self { folder, name }
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Returns the metadata of what is there, without following a link.
    pub(crate) fn stat(&self) -> io::Result<Option<Stat>> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a plain file for reading. Fails for a link, a pipe, and a file that has a second name.
    pub(crate) fn open(&self) -> io::Result<OpenedFile> {
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
                    "has more than one name, so it is another file, too",
                ));
            }
            _ => return Err(io::Error::other("is no plain file")),
        }
        let file = File::from(file);
        Ok(OpenedFile { file, stat })
    }

    /// Makes a new file beside the place. It takes the place when it is complete.
    pub(crate) fn draft(&self, access: FileAccess) -> io::Result<FileDraft<'_>> {
        FileDraft::new(self.folder.as_fd(), &self.name, access)
    }

    /// Makes an empty file with the mode `mode`, unless there is a file.
    pub(crate) fn make(&self, mode: u32) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        match openat(&self.folder, &self.name, flags | OFlags::CLOEXEC, mode) {
            Ok(file) => Ok(rustix::fs::fchmod(file, mode)?),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the file that has the name.
    pub(crate) fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }
}

/// Whether a file in a folder where everybody may put files belongs to another user than this one
/// and the folder's owner. This is the rule of fs.protected_symlinks and fs.protected_fifos. It
/// holds here even if the kernel's rules are switched off.
fn is_planted(folder: &Stat, found: &Stat) -> bool {
    const STICKY_AND_OPEN: u32 = 0o1002;
    let own = rustix::process::geteuid().as_raw();
    folder.st_mode & STICKY_AND_OPEN == STICKY_AND_OPEN
        && found.st_uid != own
        && found.st_uid != folder.st_uid
}

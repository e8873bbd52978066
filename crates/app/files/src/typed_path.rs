//! Follows a path that a user typed, as a shell does for `>`. The user's own links are followed,
//! and links that others planted are refused. A plain file is replaced, and anything else is
//! written to in place.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, access, fstat, fstatfs,
    openat, readlinkat, statat,
};
use rustix::io::Errno;

use super::walk::{is_own, open_folder_from};
use super::{FilePlace, PathTrust, is_planted};

/// The target of a path.
pub enum TypedPath {
    /// A place for a file, and the metadata of the file that is there.
    Place(FilePlace, Option<Stat>),
    /// A pipe, a device or an open file: it can be written to, but not replaced.
    Open(File),
}

/// Maximum number of links that are followed in a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Why a path can't be written to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypedPathError {
    /// The kernel refuses to follow a part of the path.
    #[error("{}: cannot be written", path.display())]
    Unwritable {
        /// The path that can't be written to.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The path names a folder.
    #[error("{}: is a folder; give a file in it", .0.display())]
    Folder(PathBuf),
    /// A folder in the path does not exist.
    #[error(
        "{}: cannot be written: there is no folder {}; create it first",
        path.display(),
        folder.display()
    )]
    NoFolder {
        /// The path that can't be written to.
        path: PathBuf,
        /// The missing folder.
        folder: PathBuf,
    },
    /// The path leads to a link or a pipe of another user.
    #[error(
        "{}: leads to a {what} of another user, who could have the output written elsewhere; \
         remove the {what}, or give another file",
        path.display()
    )]
    Planted {
        /// The path that can't be written to.
        path: PathBuf,
        /// The kind of the file that the path leads to.
        what: &'static str,
    },
    /// The file at the path was replaced while it was opened.
    #[error("{}: was changed in the meantime", .0.display())]
    Changed(PathBuf),
}

/// Checks that a file can be written at a path, and changes nothing there. Writing may still fail
/// later for other reasons.
///
/// # Errors
/// The path is a folder, or its folder can't be written to.
pub fn check_writable(path: &Path) -> Result<(), TypedPathError> {
    if path.is_dir() {
        return Err(TypedPathError::Folder(path.to_path_buf()));
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // A path that exists may be no file, and then its folder is not written to.
    if path.exists() {
        return Ok(());
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| TypedPathError::Unwritable {
        path: folder.to_path_buf(),
        source: error.into(),
    })
}

/// Follows a path to its target. With [`PathTrust::OwnLinks`], links of other users are not
/// followed.
pub fn resolve_typed(path: &Path, trust: PathTrust) -> Result<TypedPath, TypedPathError> {
    let unwritable = |source: io::Error| TypedPathError::Unwritable {
        path: path.to_path_buf(),
        source,
    };
    let refused = |error: Errno| unwritable(error.into());
    let is_folder = || TypedPathError::Folder(path.to_path_buf());
    let changed = || TypedPathError::Changed(path.to_path_buf());
    let mut folder = openat(CWD, ".", FOLDER_FLAGS, Mode::empty()).map_err(refused)?;
    let mut left = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Some(name) = left.file_name() else {
            return Err(is_folder());
        };
        if let Some(parent) = left.parent().filter(|p| !p.as_os_str().is_empty()) {
            let opened = match trust {
                // The kernel can also follow its own links.
                PathTrust::Any => {
                    openat(&folder, parent, FOLDER_FLAGS, Mode::empty()).map_err(Into::into)
                }
                _ => open_folder_from(folder, parent, trust),
            };
            folder = match opened {
                Ok(folder) => folder,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(TypedPathError::NoFolder {
                        path: path.to_path_buf(),
                        folder: parent.to_path_buf(),
                    });
                }
                Err(error) => return Err(unwritable(error)),
            };
        }
        let place = FilePlace::in_folder(folder, name);
        let Some(found) = place.stat().map_err(unwritable)? else {
            return Ok(TypedPath::Place(place, None));
        };
        let around = fstat(&place.folder).map_err(refused)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_ours = match (kind, trust) {
            (FileType::Symlink, PathTrust::OwnLinks | PathTrust::Own) => {
                is_own(&found).map_err(unwritable)?
            }
            _ => !is_planted(&around, &found),
        };
        match kind {
            FileType::RegularFile => return Ok(TypedPath::Place(place, Some(found))),
            FileType::Directory => return Err(is_folder()),
            FileType::Symlink if is_of_kernel(&place.folder) => {
                let file = open_stream(&place).map_err(unwritable)?;
                return match file {
                    Some(file) => Ok(TypedPath::Open(file)),
                    None => Err(is_folder()),
                };
            }
            _ if !is_ours => {
                let what = match kind {
                    FileType::Symlink => "link",
                    FileType::Fifo => "pipe",
                    _ => "file",
                };
                return Err(TypedPathError::Planted {
                    path: path.to_path_buf(),
                    what,
                });
            }
            FileType::Symlink => {
                // The link is read through a descriptor, because its name may lead elsewhere by
                // now.
                let link = openat(
                    &place.folder,
                    &place.name,
                    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                )
                .map_err(refused)?;
                if !is_same(&fstat(&link).map_err(refused)?, &found) {
                    return Err(changed());
                }
                let target = readlinkat(&link, "", Vec::new()).map_err(refused)?;
                left = OsString::from_vec(target.into_bytes()).into();
                folder = place.folder;
            }
            _ => {
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = openat(&place.folder, &place.name, flags, Mode::empty());
                let file = file.map_err(refused)?;
                if !is_same(&fstat(&file).map_err(refused)?, &found) {
                    return Err(changed());
                }
                return Ok(TypedPath::Open(file.into()));
            }
        }
    }
    Err(refused(Errno::LOOP))
}

const FOLDER_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether the links in a folder are the kernel's own. Such a link leads to an open file and not to
/// a name. For example, `/dev/stdout` leads to such a link.
fn is_of_kernel(folder: &OwnedFd) -> bool {
    fstatfs(folder).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC)
}

/// Returns another descriptor for the open file to which a kernel link leads; `None` for a folder.
/// A standard stream continues at its position, even if it is a socket or a file that others write
/// to as well.
fn open_stream(place: &FilePlace) -> io::Result<Option<File>> {
    let led = statat(&place.folder, &place.name, AtFlags::empty())?;
    let (out, err) = (io::stdout(), io::stderr());
    if fstat(&out).is_ok_and(|stat| is_same(&stat, &led)) {
        return Ok(Some(rustix::io::dup(&out)?.into()));
    }
    if fstat(&err).is_ok_and(|stat| is_same(&stat, &led)) {
        return Ok(Some(rustix::io::dup(&err)?.into()));
    }
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(&place.folder, &place.name, flags, Mode::empty()) {
        Err(Errno::ISDIR) => return Ok(None),
        file => File::from(file?),
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile {
        file.set_len(0)?;
    }
    Ok(Some(file))
}

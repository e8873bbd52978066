//! Opens the folders of a path one after another, with a descriptor for each step. So each folder
//! can be checked, and can't be exchanged after the check.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, open, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum number of links that are followed in a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// The conditions that the links and folders in a path must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathTrust {
    /// No condition, because the caller has no more rights than the owner of the folders.
    Any,
    /// Links must belong to this user or to root.
    OwnLinks,
    /// Links and folders must belong to this user or to root, and no other user may be able to
    /// replace anything in the folders.
    Own,
    /// Links and the last folder must belong to this user or to root. No folder may belong to the
    /// user with this number, and no other user may be able to replace anything in the folders.
    NotOf(u32),
}

/// Whether a link may be followed, because it belongs to this user, to root or to the owner of `/`.
pub(super) fn is_own(link: &Stat) -> io::Result<bool> {
    let root = open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok(TrustedUsers::new(&fstat(root)?).with(link))
}

/// The users whose links and folders are trusted: this user, root, and the owner of `/`, because
/// every path begins at `/`.
struct TrustedUsers([u32; 3]);

impl TrustedUsers {
    fn new(root: &Stat) -> Self {
        Self([0, geteuid().as_raw(), root.st_uid])
    }

    fn with(&self, found: &Stat) -> bool {
        self.0.contains(&found.st_uid)
    }
}

/// Opens a folder in which files can be opened and made.
pub fn open_folder(path: &Path, trust: PathTrust) -> io::Result<OwnedFd> {
    walk(None, path, trust, false)
}

/// Opens a folder as [`open_folder`] does, starting from another folder.
pub(super) fn open_folder_from(
    start: OwnedFd,
    path: &Path,
    trust: PathTrust,
) -> io::Result<OwnedFd> {
    walk(Some(start), path, trust, false)
}

/// Opens a folder as [`open_folder`] does, and makes missing folders. This user may write to new
/// folders, and all users may read them.
pub fn make_folder(path: &Path, trust: PathTrust) -> io::Result<OwnedFd> {
    walk(None, path, trust, true)
}

fn walk(start: Option<OwnedFd>, path: &Path, trust: PathTrust, make: bool) -> io::Result<OwnedFd> {
    let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = || open("/", step | OFlags::DIRECTORY, Mode::empty());
    let trusted = TrustedUsers::new(&fstat(root()?)?);
    let mut folder = match start {
        _ if path.is_absolute() => root()?,
        Some(start) => start,
        None => openat(CWD, ".", step | OFlags::DIRECTORY, Mode::empty())?,
    };
    check_folder(&folder, trust, &trusted)?;
    let mut left: VecDeque<OsString> = steps(path).collect();
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        let next = match openat(&folder, &name, step, Mode::empty()) {
            Err(Errno::NOENT) if make => {
                match mkdirat(&folder, &name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                let made = openat(&folder, &name, step, Mode::empty())?;
                be_readable(&folder, &name, &fstat(&made)?)?;
                made
            }
            next => next?,
        };
        let found = fstat(&next)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                folder = next;
                check_folder(&folder, trust, &trusted)?;
            }
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if trust != PathTrust::Any && !trusted.with(&found) {
                    return Err(io::Error::other(format!(
                        "a folder on the way, {}, is a link of another user",
                        name.display()
                    )));
                }
                let target = readlinkat(&next, "", Vec::new())?.into_bytes();
                let target = OsString::from_vec(target);
                let target = Path::new(&target);
                if target.is_absolute() {
                    folder = root()?;
                }
                let ahead: Vec<OsString> = steps(target).collect();
                for name in ahead.into_iter().rev() {
                    left.push_front(name);
                }
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    if let PathTrust::NotOf(_) = trust
        && !trusted.with(&fstat(&folder)?)
    {
        return Err(io::Error::other("the folder belongs to another user"));
    }
    Ok(folder)
}

/// Returns the names in a path, one after the other.
fn steps(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Fails for a folder whose content another user can change.
fn check_folder(folder: &OwnedFd, trust: PathTrust, trusted: &TrustedUsers) -> io::Result<()> {
    if !matches!(trust, PathTrust::Own | PathTrust::NotOf(_)) {
        return Ok(());
    }
    let found = fstat(folder)?;
    let is_trusted = match trust {
        PathTrust::NotOf(user) => found.st_uid != user,
        _ => trusted.with(&found),
    };
    let (is_sticky, is_open) = (found.st_mode & 0o1000 != 0, found.st_mode & 0o022 != 0);
    // In a sticky folder, only the owner of a file can replace it, and the owner is checked in the
    // next step.
    match is_trusted && (is_sticky || !is_open) {
        true => Ok(()),
        false => Err(io::Error::other("other users can change its contents")),
    }
}

/// Gives a new folder the rights for reading that the umask took away.
fn be_readable(folder: &OwnedFd, name: &OsStr, made: &Stat) -> io::Result<()> {
    let is_ours = made.st_uid == geteuid().as_raw();
    if !is_ours || made.st_mode & 0o755 == 0o755 {
        return Ok(());
    }
    // A folder without the right to read can't be opened, so its mode is changed by its name. The
    // name is not a link, so it leads to the folder.
    if FileType::from_raw_mode(made.st_mode) == FileType::Directory {
        let mode = Mode::from_raw_mode(made.st_mode & 0o7777 | 0o755);
        rustix::fs::chmodat(folder, name, mode, rustix::fs::AtFlags::empty())?;
    }
    Ok(())
}

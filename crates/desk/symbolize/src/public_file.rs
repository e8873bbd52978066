//! Opens only files that every user may read. This is for names from a process whose rights are
//! unknown.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, open, openat, readlinkat};
use rustix::io::Errno;

/// Maximum number of symbolic links in a path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Permission bit by which every user may enter a folder.
const ENTER_BY_OTHERS: u32 = 0o001;
/// Permission bit by which every user may read a file.
const READ_BY_OTHERS: u32 = 0o004;

const STEP_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a plain file if every user may read it and enter all folders of its path. With a `root`,
/// the path and its symbolic links begin in that folder.
pub(crate) fn open_public(path: &Path, root: Option<&Path>) -> io::Result<File> {
    let below = root.and_then(|root| Some((root, path.strip_prefix(root).ok()?)));
    let (top, path) = below.unwrap_or((Path::new("/"), path));
    let top = open(top, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let mut left: VecDeque<OsString> = steps(path).collect();
    let is_relative = below.is_none() && path.is_relative();
    let mut here = match is_relative {
        true => openat(CWD, ".", STEP_FLAGS, Mode::empty())?,
        false => duplicate(&top)?,
    };
    let mut links = 0;
    loop {
        let found = fstat(&here)?;
        let Some(name) = left.pop_front() else {
            return match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile if found.st_mode & READ_BY_OTHERS != 0 => reopen(&here),
                FileType::RegularFile => Err(refusal_error()),
                FileType::Directory => Err(io::ErrorKind::NotFound.into()),
                _ => Err(io::Error::other("is not a regular file")),
            };
        };
        if !FileType::from_raw_mode(found.st_mode).is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        if found.st_mode & ENTER_BY_OTHERS == 0 {
            return Err(refusal_error());
        }
        let next = openat(&here, &name, STEP_FLAGS, Mode::empty())?;
        if !FileType::from_raw_mode(fstat(&next)?.st_mode).is_symlink() {
            here = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = OsString::from_vec(readlinkat(&next, "", Vec::new())?.into_bytes());
        let target = Path::new(&target);
        if target.is_absolute() {
            here = duplicate(&top)?;
        }
        let ahead: Vec<OsString> = steps(target).collect();
        ahead
            .into_iter()
            .rev()
            .for_each(|name| left.push_front(name));
    }
}

/// Returns the names in a path, in order.
fn steps(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn duplicate(folder: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(folder, 0)?)
}

/// Opens a checked file for reading, without using its path again.
fn reopen(file: &OwnedFd) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(open(path.as_str(), flags, Mode::empty())?.into())
}

fn refusal_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it is not readable by everyone, and it is not known whether the process that uses it may \
         read it",
    )
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_what_everybody_may_read_is_opened() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let be =
            |name: &str, mode| set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        be("", 0o755);
        for folder in ["open", "closed"] {
            create_dir(at(folder)).unwrap();
        }
        for file in ["open/all", "open/own", "closed/all"] {
            write(at(file), file).unwrap();
        }
        symlink("../open/all", at("open/link")).unwrap();
        symlink("../closed/all", at("open/into")).unwrap();
        symlink("/open/all", at("open/absolute")).unwrap();
        symlink("round", at("open/round")).unwrap();
        rustix::fs::mknodat(
            CWD,
            at("open/pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        for (name, mode) in [
            ("open", 0o711),
            ("closed", 0o770),
            ("open/all", 0o604),
            ("open/own", 0o660),
            ("closed/all", 0o644),
            ("open/pipe", 0o666),
        ] {
            be(name, mode);
        }
        let opens = |name: &str| open_public(&at(name), None).is_ok();
        // The folder of temporary files may itself be closed to other users.
        let is_open = opens("open/all");
        for (name, expected) in [
            ("open/link", is_open),
            ("open/own", false),
            ("closed/all", false),
            ("open/into", false),
            ("open/round", false),
            ("open/pipe", false),
            ("open", false),
            ("open/all/x", false),
            ("none", false),
        ] {
            assert_eq!(opens(name), expected, "{name}");
        }
        // With a root, all paths begin in that folder.
        let below = |name: &str| open_public(&at(name), Some(place.path())).is_ok();
        let found = ["open/all", "open/link", "open/absolute", "open/own"].map(below);
        assert_eq!(found, [true, true, true, false]);
    }
}

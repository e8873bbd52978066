//! Follows a path that a user typed, by the rules of a shell's `>`: the user's own links are
//! followed, links that others planted are refused, and anything but a plain file is written to as
//! it is.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat,
    readlinkat, statat,
};
use rustix::io::Errno;

use super::walk::{is_own, open_folder_from};
use super::{FilePlace, PathTrust, is_planted};

/// The target of a path.
pub(crate) enum TypedPath {
    /// A place for a file, and the metadata of the file that is there.
    Place(FilePlace, Option<Stat>),
    /// A pipe, a device or an open file, which can't be replaced, only written to.
    Open(File),
}

/// Maximum number of links that a path may lead over, as in the kernel.
const MAX_LINKS: usize = 40;

/// Follows a path to its place. With [`PathTrust::OwnLinks`] it follows no links of other users.
pub(crate) fn resolve_typed(path: &Path, trust: PathTrust) -> Result<TypedPath> {
    let named = || format!("{}: cannot be written", path.display());
    let is_folder = || format!("{}: is a folder; name a file in it", path.display());
    let mut folder = openat(CWD, ".", FOLDER_FLAGS, Mode::empty()).with_context(named)?;
    let mut left = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Some(name) = left.file_name() else {
            bail!(is_folder());
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
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
                    "{}: there is no folder {}; make it first",
                    named(),
                    parent.display()
                ),
                Err(error) => return Err(error).with_context(named),
            };
        }
        let place = FilePlace::in_folder(folder, name);
        let Some(found) = place.stat().with_context(named)? else {
            return Ok(TypedPath::Place(place, None));
        };
        let around = fstat(&place.folder).with_context(named)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_ours = match (kind, trust) {
            (FileType::Symlink, PathTrust::OwnLinks | PathTrust::Own) => {
                is_own(&found).with_context(named)?
            }
            _ => !is_planted(&around, &found),
        };
        match kind {
            FileType::RegularFile => return Ok(TypedPath::Place(place, Some(found))),
            FileType::Directory => bail!(is_folder()),
            FileType::Symlink if is_of_kernel(&place.folder) => {
                let file = open_stream(&place).with_context(named)?;
                return match file {
                    Some(file) => Ok(TypedPath::Open(file)),
                    None => bail!(is_folder()),
                };
            }
            _ if !is_ours => {
                let what = match kind {
                    FileType::Symlink => "link",
                    FileType::Fifo => "pipe",
                    _ => "file",
                };
                bail!(
                    "{}: leads to a {what} of another user, who could have the output written \
                     elsewhere; remove the {what}, or name another file",
                    path.display()
                );
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
                .with_context(named)?;
                if !is_same(&fstat(&link).with_context(named)?, &found) {
                    bail!("{}: was changed meanwhile", path.display());
                }
                let target = readlinkat(&link, "", Vec::new()).with_context(named)?;
                left = OsString::from_vec(target.into_bytes()).into();
                folder = place.folder;
            }
            _ => {
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = openat(&place.folder, &place.name, flags, Mode::empty());
                let file = file.with_context(named)?;
                if !is_same(&fstat(&file).with_context(named)?, &found) {
                    bail!("{}: was changed meanwhile", path.display());
                }
                return Ok(TypedPath::Open(file.into()));
            }
        }
    }
    Err(Errno::LOOP).with_context(named)
}

const FOLDER_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether links in a folder are the kernel's own, which lead to open files and not to names, as in
/// `/dev/stdout` and `/dev/fd/63`.
fn is_of_kernel(folder: &OwnedFd) -> bool {
    fstatfs(folder).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC)
}

/// Opens an open file again. Returns `None` if it is a folder. A standard stream goes on at its
/// position, even if it is a socket or a file that others write to as well.
fn open_stream(place: &FilePlace) -> std::io::Result<Option<File>> {
    let led = statat(&place.folder, &place.name, AtFlags::empty())?;
    let (out, err) = (std::io::stdout(), std::io::stderr());
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

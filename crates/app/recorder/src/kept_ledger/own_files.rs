//! Writes profiles of processes whose users may not write them. Such a profile is a file of
//! `record`'s user, which only that user may read. A process that gave up its rights may be under
//! another user's control by now. So the file is in a folder that the process's user can't change,
//! and it replaces no other user's file. The number and the size of these files are limited for
//! each user.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use heapprof_files::{FileAccess, FileOwner, FilePlace, PathTrust, make_folder, write_named};
use heapprof_profile::{Profile, encode};
use rustix::fs::FileType;

use super::number_name;
use crate::note::NoPlaceError;
use crate::path_text::shown_path;

/// Maximum number of files that are made for one user's processes, and of the bytes in them.
const MAX_USAGE_PER_USER: FileUsage = FileUsage {
    files: 1024,
    bytes: 256 << 20,
};
/// Maximum number of files that are made for the processes of all users together, and of the bytes
/// in them.
const MAX_TOTAL_USAGE: FileUsage = FileUsage {
    files: 4096,
    bytes: 1 << 30,
};
/// Maximum number of file names that are tried for a profile.
const MAX_NAME_ATTEMPTS: u32 = 100;
/// The mode of `record`'s own files, which only this user may read.
const OWN_FILE_MODE: u32 = 0o600;

/// A number of files, and the number of bytes in them.
#[derive(Clone, Copy, Default)]
struct FileUsage {
    files: u32,
    bytes: u64,
}

impl FileUsage {
    /// Returns the maximum size of a further file in bytes; `None` if no further file may be made.
    fn remaining_bytes(self, max: Self) -> Option<u64> {
        let bytes = max.bytes.saturating_sub(self.bytes);
        (self.files < max.files && bytes > 0).then_some(bytes)
    }

    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// The number and the size of the files that were made for other users' processes.
#[derive(Default)]
pub(crate) struct OwnFiles {
    all: FileUsage,
    of_user: HashMap<u32, FileUsage>,
}

/// Whether an operation failed because of missing rights.
pub(super) fn is_for_rights(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
    })
}

impl OwnFiles {
    /// Writes the profile of a process of `user` to the first trusted place. The flag of each place
    /// says whether a file of `record`'s user may be replaced there. Returns the profile's path.
    ///
    /// # Errors
    /// No place can be trusted, or a limit is reached.
    pub(super) fn put(
        &mut self,
        profile: &Profile,
        places: [(&Path, bool); 2],
        process: u32,
        user: u32,
    ) -> Result<PathBuf, NoPlaceError> {
        let folder = places[0].0.parent().unwrap_or(Path::new("/"));
        let lost = |why| NoPlaceError {
            process,
            user,
            folder: folder.to_path_buf(),
            why,
        };
        let of_user = self.of_user.entry(user).or_default();
        let left = of_user
            .remaining_bytes(MAX_USAGE_PER_USER)
            .zip(self.all.remaining_bytes(MAX_TOTAL_USAGE));
        let Some((of_user_left, all_left)) = left else {
            return Err(lost("it has already written too many".to_string()));
        };
        let most = of_user_left.min(all_left);
        let mut why = String::new();
        for (path, replaces) in places {
            match write(profile, path, replaces, user, most) {
                Ok((path, bytes)) => {
                    of_user.add(bytes);
                    self.all.add(bytes);
                    return Ok(path);
                }
                // The reported reason is about the place that the profile would have had.
                Err(error) if why.is_empty() => why = format!("{error:#}"),
                Err(_) => {}
            }
        }
        Err(lost(why))
    }
}

/// Writes a profile of at most `most` bytes to a folder that `user` can't change. If the name is
/// taken, uses another one. Returns the file's path, and its size in bytes.
fn write(
    profile: &Profile,
    path: &Path,
    replaces: bool,
    user: u32,
    most: u64,
) -> Result<(PathBuf, u64)> {
    let named = || format!("{}: cannot be written", shown_path(path));
    let name = path.file_name().with_context(named)?.to_os_string();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let opened = make_folder(folder, PathTrust::NotOf(user)).with_context(|| shown_path(folder))?;
    for number in 0..MAX_NAME_ATTEMPTS {
        let name = match number {
            0 => name.clone(),
            number => number_name(&name, number),
        };
        let place = FilePlace::in_folder(opened.try_clone()?, &name);
        let found = place.stat().with_context(named)?;
        let is_own = found.as_ref().is_some_and(|found| {
            FileOwner::from_stat(found).is_us()
                && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
        });
        let is_replaced = replaces && is_own;
        if found.is_some() && !is_replaced {
            continue;
        }
        let mut draft = place
            .draft(FileAccess::Exactly(OWN_FILE_MODE))
            .with_context(named)?;
        let mut limited = LimitedWriter {
            writer: draft.file(),
            left: most,
        };
        write_named(&shown_path(path), &mut limited, |writer| -> Result<()> {
            Ok(encode(profile, writer)?)
        })?;
        let bytes = most - limited.left;
        let finished = match is_replaced {
            true => draft.finish(),
            false => draft.finish_new(),
        };
        match finished {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            finished => {
                finished.with_context(named)?;
                return Ok((folder.join(name), bytes));
            }
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists)).with_context(named)
}

/// A writer that fails once more than a limited number of bytes are written to it.
struct LimitedWriter<W> {
    writer: W,
    left: u64,
}

impl<W: Write> Write for LimitedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::other("it is too large"));
        }
        let written = self.writer.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
mod tests {
    use std::fs::{DirBuilder, Permissions};
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    const NOBODY_UID: u32 = 65534;

    /// Makes a folder with the mode `mode`, which belongs to `user`.
    fn folder(path: &Path, mode: u32, user: u32) {
        DirBuilder::new().mode(mode).create(path).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        chown(path, Some(user), Some(user)).unwrap();
    }

    #[test]
    fn a_file_is_made_where_its_process_has_no_say() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let user = NOBODY_UID;
        let put = |path: &Path, replaces| {
            let mut own = OwnFiles::default();
            let places = [(path, replaces), (path, false)];
            own.put(&Profile::default(), places, 7, user)
        };
        // A folder that is missing is made.
        let path = at("new/p.pb.gz");
        assert_eq!(put(&path, false).unwrap(), path);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        // A file that is there stays, unless it is `record`'s own and the profile would have
        // replaced it.
        assert_eq!(put(&path, false).unwrap(), at("new/p.1.pb.gz"));
        assert_eq!(put(&path, true).unwrap(), path);
        symlink("p.pb.gz", at("new/link.pb.gz")).unwrap();
        let beside = put(&at("new/link.pb.gz"), true).unwrap();
        assert_eq!(beside, at("new/link.1.pb.gz"));
        assert!(at("new/link.pb.gz").is_symlink());
        let all = std::fs::read_dir(at("new")).unwrap().count();
        assert_eq!(all, 4, "no draft stays");
        let own = place.path().metadata().unwrap().uid();
        folder(&at("open"), 0o777, own);
        folder(&at("open/own"), 0o755, own);
        for name in ["open/p.pb.gz", "open/own/p.pb.gz"] {
            let said = put(&at(name), false).unwrap_err().to_string();
            let expected = "process 7 is lost: it ran as user 65534, who may not write in ";
            assert!(said.contains(expected), "{said}");
            assert!(
                said.contains("other users can change its contents"),
                "{said}"
            );
        }
        folder(&at("sticky"), 0o1777, own);
        assert!(put(&at("sticky/p.pb.gz"), false).is_ok());
        if own != 0 {
            // Only root can make folders of other users; without_place.rs tests that.
            return;
        }
        folder(&at("its"), 0o755, NOBODY_UID);
        folder(&at("its/own"), 0o755, 0);
        folder(&at("other"), 0o755, 1);
        folder(&at("other/own"), 0o755, 0);
        symlink("new", at("led")).unwrap();
        std::os::unix::fs::lchown(at("led"), Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
        for name in ["its", "its/own", "its/own/made", "other", "led"] {
            assert!(put(&at(name).join("p.pb.gz"), true).is_err(), "{name}");
        }
        assert!(put(&at("other/own/p.pb.gz"), false).is_ok());
        // Another user's file is not replaced.
        std::fs::write(at("sticky/its.pb.gz"), "x").unwrap();
        chown(at("sticky/its.pb.gz"), Some(NOBODY_UID), None).unwrap();
        let beside = put(&at("sticky/its.pb.gz"), true).unwrap();
        assert_eq!(beside, at("sticky/its.1.pb.gz"));
    }

    #[test]
    fn what_a_user_s_processes_fill_has_a_limit() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("p.pb.gz");
        let mut own = OwnFiles::default();
        let places = [(&*path, true), (&*path, false)];
        own.put(&Profile::default(), places, 7, NOBODY_UID).unwrap();
        own.of_user.get_mut(&NOBODY_UID).unwrap().files = MAX_USAGE_PER_USER.files;
        let said = own
            .put(&Profile::default(), places, 7, NOBODY_UID)
            .unwrap_err();
        assert!(said.to_string().contains("too many"), "{said}");
        // Another user has a share as well.
        own.put(&Profile::default(), places, 8, NOBODY_UID - 1)
            .unwrap();
        own.of_user.get_mut(&(NOBODY_UID - 1)).unwrap().bytes = MAX_USAGE_PER_USER.bytes - 3;
        let said = own.put(&Profile::default(), places, 8, NOBODY_UID - 1);
        let said = said.unwrap_err().to_string();
        assert!(said.contains("it is too large"), "{said}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
        own.all.bytes = MAX_TOTAL_USAGE.bytes;
        assert!(own.put(&Profile::default(), places, 9, 1).is_err());
    }
}

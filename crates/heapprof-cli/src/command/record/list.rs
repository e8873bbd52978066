//! Where the processes of a recording say what they wrote: a folder with one file for each user.
//! The kernel says who made a file, so what is in it is believed as that user's word and no more.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tempfile::TempDir;

use super::tail;
use crate::place::{Owner, Place, Trust, open_folder};

/// What one user's processes wrote into the list.
pub(super) struct Entries {
    pub(super) owner: Owner,
    pub(super) text: Vec<u8>,
}

/// The name of the file with which `--live` asks.
pub(super) const ASKED: &str = "asked";

/// The most bytes of our user's file: more than a program has to say, less than what would be in
/// our way.
const MOST: u64 = 256 << 20;
/// The most bytes of all other users together, because they may make any number of files.
const MOST_OF_OTHERS: u64 = 64 << 20;

/// A folder for temporary files in which others can change nothing of ours. The variable that names
/// it may be kept from another user (`sudo -E`), so it does not count if its folder is not safe.
fn temporary_folder() -> PathBuf {
    let named = std::env::temp_dir();
    // The path of a socket in it has 107 bytes at most.
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

/// The list of a recording.
pub(super) struct List {
    path: PathBuf,
    /// Our user's file. It stays readable, even if the program removes its name.
    own: File,
    _folder: TempDir,
}

impl List {
    pub(super) fn new() -> io::Result<Self> {
        let only = Permissions::from_mode;
        // The program may become another user, so others may enter the folder. They can't list it,
        // so other processes do not find the list.
        let folder = tempfile::Builder::new()
            .permissions(only(0o711))
            .tempdir_in(temporary_folder())?;
        // The rights are these whatever the umask is.
        std::fs::set_permissions(folder.path(), only(0o711))?;
        let path = folder.path().join("list");
        std::fs::create_dir(&path)?;
        // Each user may add a file, and remove their own.
        std::fs::set_permissions(&path, only(0o1733))?;
        let own = tail::make_own(&path, Owner::us().user.to_string().as_ref())?;
        Ok(Self {
            path,
            own,
            _folder: folder,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all entries, our own user's first.
    pub(super) fn read(&mut self) -> io::Result<Vec<Entries>> {
        let mut text = Vec::new();
        self.own.rewind()?;
        self.own.by_ref().take(MOST).read_to_end(&mut text)?;
        let mut all = vec![Entries {
            owner: Owner::us(),
            text,
        }];
        let Ok(names) = std::fs::read_dir(&self.path) else {
            return Ok(all);
        };
        let mut left = MOST_OF_OTHERS;
        for name in names {
            if let Ok(name) = &name
                && is_no_entry(name.file_name().as_bytes())
            {
                continue;
            }
            let folder = open_folder(&self.path, Trust::OwnLinks)?;
            let Ok(mut there) = Place::in_folder(folder, name?.file_name()).open() else {
                continue;
            };
            let owner = Owner::of(&there.stat);
            let mut text = Vec::new();
            if owner.is_us() && there.stat.st_ino == rustix::fs::fstat(&self.own)?.st_ino {
                continue;
            }
            there.file.by_ref().take(left).read_to_end(&mut text)?;
            left -= text.len() as u64;
            all.push(Entries { owner, text });
        }
        Ok(all)
    }
}

/// Whether a file in the folder holds something other than entries.
fn is_no_entry(name: &[u8]) -> bool {
    name.ends_with(tail::LINES) || name.ends_with(tail::LIVE) || name == ASKED.as_bytes()
}

//! The list in which the processes of a recording report the files that they wrote: a folder with
//! one file for each user. The kernel shows which user owns a file, so its content counts as a
//! report of that user only.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heapprof_files::{FileOwner, FilePlace, PathTrust, open_folder};

use crate::folder::RecordFolder;
use crate::tail;

/// The entries that one user's processes wrote into the list.
pub(crate) struct ListEntries {
    pub(crate) owner: FileOwner,
    pub(crate) text: Vec<u8>,
}

/// The name of the file with which the view requests profiles from processes.
pub(crate) const ASKED_FILE_NAME: &str = "asked";

/// Maximum number of bytes that are read of this user's file. A program reports less, and more
/// would slow heapprof down.
const MAX_OWN_BYTES: u64 = 256 << 20;
/// Maximum number of bytes that are read of all other users' files together, because these users
/// may make any number of files.
const MAX_BYTES_OF_OTHERS: u64 = 64 << 20;

/// The list of a recording.
pub(crate) struct ProfileList {
    path: PathBuf,
    /// This user's file. It stays readable, even if the program removes its name.
    own: File,
    _folder: RecordFolder,
}

impl ProfileList {
    pub(crate) fn new() -> io::Result<Self> {
        let folder = RecordFolder::new()?;
        let path = folder.make_list()?;
        let own = tail::make_own(&path, FileOwner::us().user.to_string().as_ref())?;
        Ok(Self {
            path,
            own,
            _folder: folder,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all entries. The entries of this user come first.
    pub(crate) fn read(&mut self) -> io::Result<Vec<ListEntries>> {
        let mut text = Vec::new();
        self.own.rewind()?;
        self.own
            .by_ref()
            .take(MAX_OWN_BYTES)
            .read_to_end(&mut text)?;
        let mut all = vec![ListEntries {
            owner: FileOwner::us(),
            text,
        }];
        let Ok(names) = std::fs::read_dir(&self.path) else {
            return Ok(all);
        };
        let mut left = MAX_BYTES_OF_OTHERS;
        for name in names {
            if let Ok(name) = &name
                && is_no_entry(name.file_name().as_bytes())
            {
                continue;
            }
            let folder = open_folder(&self.path, PathTrust::OwnLinks)?;
            let Ok(mut there) = FilePlace::in_folder(folder, name?.file_name()).open() else {
                continue;
            };
            let owner = FileOwner::from_stat(&there.stat);
            let mut text = Vec::new();
            if owner.is_us() && there.stat.st_ino == rustix::fs::fstat(&self.own)?.st_ino {
                continue;
            }
            there.file.by_ref().take(left).read_to_end(&mut text)?;
            left -= text.len() as u64;
            all.push(ListEntries { owner, text });
        }
        Ok(all)
    }
}

/// Whether a file in the folder holds something other than entries.
fn is_no_entry(name: &[u8]) -> bool {
    name.ends_with(tail::LINES_SUFFIX)
        || name.ends_with(tail::LIVE_SUFFIX)
        || name == ASKED_FILE_NAME.as_bytes()
}

//! A file that is not complete yet. The file is stored beside its final place, under a temporary
//! name, and is removed if it is not finished.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// The mode of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// The default mode of new files, which depends on the umask.
    Umask,
    /// Exactly this mode, whatever the umask is.
    Exactly(u32),
}

/// Reads the mode of a file in octal digits; `None` for any other text. The file's user must be
/// able to read and replace the file, and nobody can run it.
pub fn parse_mode(text: &str) -> Option<u32> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| mode & 0o600 == 0o600 && mode & !0o666 == 0)
}

/// A new file beside its final place. No other process has it open.
pub struct FileDraft<'a> {
    folder: BorrowedFd<'a>,
    place: &'a OsStr,
    name: OsString,
    file: File,
    is_whole: bool,
}

impl<'a> FileDraft<'a> {
    pub(super) fn new(
        folder: BorrowedFd<'a>,
        place: &'a OsStr,
        access: FileAccess,
    ) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = match access {
            FileAccess::Umask => 0o666,
            // The file never has more rights than these.
            FileAccess::Exactly(mode) => mode,
        };
        loop {
            let name = beside(place);
            let made = openat(
                folder,
                &name,
                flags | OFlags::CLOEXEC,
                Mode::from_raw_mode(mode),
            );
            let file = match made {
                Err(Errno::EXIST) => continue,
                made => File::from(made?),
            };
            let draft = Self {
                folder,
                place,
                name,
                file,
                is_whole: false,
            };
            if let FileAccess::Exactly(mode) = access {
                draft.set_mode(mode)?;
            }
            return Ok(draft);
        }
    }

    /// Sets the mode of the file.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file
            .set_permissions(Permissions::from_mode(mode & 0o777))
    }

    /// Returns the file that is being written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Moves the file to its final place. An existing file is replaced.
    pub fn finish(mut self) -> io::Result<()> {
        renameat(self.folder, &self.name, self.folder, self.place)?;
        self.is_whole = true;
        Ok(())
    }

    /// Moves the file to its final place, if nothing is there.
    ///
    /// # Errors
    /// There is already something at the final place. It is not changed.
    pub fn finish_new(mut self) -> io::Result<()> {
        let (from, to) = ((self.folder, &self.name), (self.folder, self.place));
        match renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE) {
            // Old kernels and some file systems do not support this. Then the file gets a second
            // name, and the first one is removed.
            Err(Errno::NOSYS | Errno::INVAL) => {
                linkat(from.0, from.1, to.0, to.1, AtFlags::empty())?;
            }
            renamed => {
                renamed?;
                self.is_whole = true;
            }
        }
        Ok(())
    }
}

impl Drop for FileDraft<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Returns a name for a temporary file beside another file. The name is unique in this process, and
/// most likely unique in the folder.
fn beside(place: &OsStr) -> OsString {
    // Longest name in bytes, minus the bytes that are added below.
    const MAX_NAME_BYTES: usize = 255 - 40;
    static DRAFT_COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.subsec_nanos());
    let (process, count) = (
        std::process::id(),
        DRAFT_COUNT.fetch_add(1, Ordering::Relaxed),
    );
    let place = place.as_bytes();
    let mut name = b".".to_vec();
    name.extend_from_slice(&place[..place.len().min(MAX_NAME_BYTES)]);
    name.extend_from_slice(format!(".{process}-{now:08x}-{count}.tmp").as_bytes());
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        for (text, mode) in [("600", 0o600), ("0644", 0o644), ("666", 0o666)] {
            assert_eq!(parse_mode(text), Some(mode));
        }
        for text in ["", "400", "755", "1600", "rw", "-600", "6000", "888"] {
            assert!(parse_mode(text).is_none(), "{text}");
        }
    }
}

//! The place where a dump is written: a folder, which is opened once, and a name in it. So the file
//! is written to this folder, even if another user renames folders or plants links meanwhile. This
//! matters if the program runs as root and the folder belongs to another user.

use std::ffi::{CStr, CString};

use heapprof_platform::sys::{self, EngineFile};

/// Longest file name, in bytes.
const MAX_NAME_LEN: usize = 255;
/// Maximum number of links that a path may lead over, as in the kernel.
const MAX_LINKS: usize = 40;
/// Flags to open a folder in which names are looked up.
const FOLDER_FLAGS: i32 = libc::O_PATH | libc::O_DIRECTORY;

/// A name in a folder.
pub(super) struct DumpPlace {
    folder: EngineFile,
    name: CString,
}

/// The identity of a file. It is checked before the file is removed, so that no other file is
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DumpFileIdentity {
    device: u64,
    number: u64,
}

impl DumpFileIdentity {
    fn from_stat(found: &libc::stat) -> Self {
        Self {
            device: found.st_dev,
            number: found.st_ino,
        }
    }
}

impl DumpPlace {
    /// Finds the place for a path. If `make` is true and the folder is missing, makes the folder.
    pub(super) fn from_path(path: &[u8], make: bool) -> Result<Self, i32> {
        let (folder, name) = split_path(path);
        if name.is_empty() {
            return Err(libc::EISDIR);
        }
        let folder = if make {
            // The user did not type the folder's name, so a link that another user put there is not
            // followed.
            let above = Self::from_path(folder, false)?;
            let open = || {
                EngineFile::open_in(
                    &above.folder,
                    &above.name,
                    FOLDER_FLAGS | libc::O_NOFOLLOW,
                    0,
                )
            };
            match open() {
                Err(libc::ENOENT) => {
                    let made = sys::make_folder_in(&above.folder, &above.name);
                    // Another process may have made the folder meanwhile. Otherwise the error is
                    // why the folder could not be made, not that it is missing.
                    open().map_err(|errno| match (errno, made) {
                        (libc::ENOENT, Err(why)) => why,
                        (errno, _) => errno,
                    })?
                }
                opened => opened?,
            }
        } else {
            open_folder(folder)?
        };
        let name = to_c_string(name)?;
        Ok(Self { folder, name })
    }

    /// Opens the device or pipe at this place, which is not replaced by a new file, but written to.
    /// Returns `None` if neither a device nor a pipe is there. A pipe without a reader is an error.
    pub(super) fn open_special(&self) -> Result<Option<EngineFile>, i32> {
        let Some(found) = sys::stat_in(&self.folder, &self.name, false) else {
            return Ok(None);
        };
        let is_link = file_kind(&found) == libc::S_IFLNK;
        let led = match is_link {
            true => sys::stat_in(&self.folder, &self.name, true),
            false => Some(found),
        };
        if !led.is_some_and(|led| is_special(&led)) {
            return Ok(None);
        }
        if self.is_planted(&found) {
            // A link is replaced. Anything else there is not ours to write to.
            return if is_link { Ok(None) } else { Err(libc::EACCES) };
        }
        let follow = if is_link { 0 } else { libc::O_NOFOLLOW };
        let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY | follow;
        let file = EngineFile::open_in(&self.folder, &self.name, flags, 0)?;
        // A plain file that took the name meanwhile is not written into.
        Ok(Some(file).filter(|file| file.stat().is_some_and(|found| is_special(&found))))
    }

    /// Whether another user put the file into a folder where all users may put files.
    fn is_planted(&self, found: &libc::stat) -> bool {
        const STICKY_AND_OPEN: u32 = 0o1002;
        self.folder.stat().is_none_or(|folder| {
            folder.st_mode & STICKY_AND_OPEN == STICKY_AND_OPEN
                && found.st_uid != folder.st_uid
                && found.st_uid != sys::effective_user()
        })
    }

    /// Makes a new file with a temporary name in the place's folder, with exactly the rights
    /// `mode`.
    pub(super) fn draft(&self, mode: u32) -> Result<DumpDraft<'_>, i32> {
        let mut name = self.name.to_bytes().to_vec();
        // The new name is at most 24 bytes longer than this.
        name.truncate(MAX_NAME_LEN - 40);
        // Processes of several namespaces may have the same number.
        let now = sys::nanoseconds(libc::CLOCK_REALTIME) as u32;
        name.extend_from_slice(format!(".{}-{now:08x}.tmp", sys::process_id()).as_bytes());
        let name = to_c_string(&name)?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let file = EngineFile::open_in(&self.folder, &name, flags, mode)?;
        // The program's umask is meant for the program's own files.
        file.set_mode(mode);
        let identity = file.stat().map(|found| DumpFileIdentity::from_stat(&found));
        Ok(DumpDraft {
            place: self,
            name,
            file: Some(file),
            identity,
        })
    }

    /// Removes the file at this place. Returns whether a file was removed.
    pub(super) fn remove(&self) -> bool {
        sys::unlink_in(&self.folder, &self.name)
    }

    /// Removes the file at this place if it is `file`.
    pub(super) fn remove_only(&self, file: DumpFileIdentity) {
        let found = sys::stat_in(&self.folder, &self.name, false);
        if found.is_some_and(|found| DumpFileIdentity::from_stat(&found) == file) {
            self.remove();
        }
    }
}

/// The file of a dump while it is incomplete. It is removed unless [`finish`](Self::finish) is
/// called.
pub(super) struct DumpDraft<'a> {
    place: &'a DumpPlace,
    name: CString,
    pub(super) file: Option<EngineFile>,
    identity: Option<DumpFileIdentity>,
}

impl DumpDraft<'_> {
    /// Moves the file to its place. Returns its identity.
    pub(super) fn finish(mut self) -> Result<Option<DumpFileIdentity>, i32> {
        sys::rename_in(&self.place.folder, &self.name, &self.place.name)?;
        self.name = CString::default();
        Ok(self.identity)
    }
}

impl Drop for DumpDraft<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            sys::unlink_in(&self.place.folder, &self.name);
        }
    }
}

/// Opens the folder of a dump, step by step. A link on the way must belong to this user, to root or
/// to the owner of `/`. Without this rule, another user could redirect the dumps of root's program
/// after `record` has checked the path. (`record` applies the same rule to the path that its user
/// typed.) The error is an errno: EACCES for a link of another user.
fn open_folder(path: &[u8]) -> Result<EngineFile, i32> {
    let trusted = [Some(0), Some(sys::effective_user()), sys::file_owner(c"/")];
    let open_start = |path: &[u8]| match path.first() {
        Some(b'/') => EngineFile::open(c"/", FOLDER_FLAGS, 0),
        _ => EngineFile::open(c".", FOLDER_FLAGS, 0),
    };
    let mut folder = open_start(path)?;
    let (mut rest, mut links) = (path.to_vec(), 0);
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'/');
        let name: Vec<u8> = rest.drain(..end.map_or(rest.len(), |at| at + 1)).collect();
        let name = name.strip_suffix(b"/").unwrap_or(&name);
        if name.is_empty() || name == b"." {
            continue;
        }
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let next = EngineFile::open_in(&folder, &to_c_string(name)?, flags, 0)?;
        let found = next.stat().ok_or(libc::ENOENT)?;
        match file_kind(&found) {
            libc::S_IFDIR => folder = next,
            libc::S_IFLNK => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(libc::ELOOP);
                }
                if !trusted.contains(&Some(found.st_uid)) {
                    return Err(libc::EACCES);
                }
                let mut target = [0; libc::PATH_MAX as usize];
                let target = next.read_link(&mut target);
                if target.first() == Some(&b'/') {
                    folder = open_start(target)?;
                }
                rest = [target, b"/", &rest].concat();
            }
            _ => return Err(libc::ENOTDIR),
        }
    }
    Ok(folder)
}

/// Splits a path into its folder and its last name.
fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b".", path),
    }
}

fn to_c_string(bytes: &[u8]) -> Result<CString, i32> {
    CString::new(bytes).map_err(|_| libc::EINVAL)
}

fn file_kind(found: &libc::stat) -> u32 {
    found.st_mode & libc::S_IFMT
}

/// Whether the file is a device, a pipe or a socket.
fn is_special(found: &libc::stat) -> bool {
    !matches!(
        file_kind(found),
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK
    )
}

/// Opens this user's file for appending, in a folder that has a file for each user. The file's name
/// ends with `ending`.
pub(super) fn open_own(folder: &CStr, ending: &str) -> Option<EngineFile> {
    let user = sys::effective_user();
    let own = [
        format!("{user}{ending}"),
        // Another user may have taken the name.
        format!("{user}.{}{ending}", sys::process_id()),
    ];
    own.iter().find_map(|name| {
        let path = [folder.to_bytes(), b"/", name.as_bytes()].concat();
        // Otherwise this would wait for a pipe that another user put there.
        let plain = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | plain;
        let file = EngineFile::open(&to_c_string(&path).ok()?, flags, 0o600).ok()?;
        let found = file.stat()?;
        if found.st_uid != user || file_kind(&found) != libc::S_IFREG || found.st_nlink != 1 {
            return None;
        }
        // The umask must not matter, because the next process opens the file, too.
        file.set_mode(0o600);
        Some(file)
    })
}

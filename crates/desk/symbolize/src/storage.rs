//! Owns the bytes of a binary and its debug files while they are in use. The bytes are mapped files
//! and inflated sections.

use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use rustix::fs::OFlags;
use typed_arena::Arena;

use crate::SymbolizeOptions;
use crate::public_file::open_public;

/// Maximum number of bytes that are read, for one binary, from files that other users may write to.
const MAX_COPIED_BYTES: u64 = 1 << 30;

/// The owner of all bytes of one binary. It is dropped before the next binary is opened.
pub(crate) struct FileStorage {
    maps: Arena<Mmap>,
    bytes: Arena<Vec<u8>>,
    /// Number of bytes that may still be read from files that other users may write to.
    left: Cell<u64>,
    /// Whether only files are opened that every user may read.
    is_public: bool,
    /// The folder that contains the files of the profiled machine, if it is not `/`.
    root: Option<PathBuf>,
}

impl FileStorage {
    /// Returns a storage that opens every file that this process may read.
    pub(crate) fn new() -> Self {
        Self {
            maps: Arena::new(),
            bytes: Arena::new(),
            left: Cell::new(MAX_COPIED_BYTES),
            is_public: false,
            root: None,
        }
    }

    /// Makes a storage with these options, which may limit it to files that every user may read.
    pub(crate) fn with_options(options: &SymbolizeOptions) -> Self {
        Self {
            is_public: options.public_files_only,
            root: options.root.clone(),
            ..Self::new()
        }
    }

    /// Returns the content of a plain file.
    ///
    /// If only the current user and root may write to the file, it is mapped, so that the kernel
    /// can reclaim its pages. But file names come from profiles, so they may lead to another user's
    /// file. Such a file is [read](Self::read), because if a mapped file were shortened, this
    /// process would be killed.
    pub(crate) fn map(&self, path: &Path) -> io::Result<&[u8]> {
        let file = match self.is_public {
            true => open_public(path, self.root.as_deref())?,
            false => open_plain(path)?,
        };
        let metadata = file.metadata()?;
        is_plain(&metadata)?;
        if metadata.len() == 0 {
            return Ok(&[]);
        }
        if is_written_by_others(&metadata) {
            return self.read(file, &metadata);
        }
        // SAFETY: the map is read-only and private, and is given out only as bytes, which have no
        // invalid values. Only we or root can shorten the file meanwhile, which ends this process
        // with SIGBUS, as with any debugger; package managers and linkers replace files instead.
        let map = unsafe { Mmap::map(&file)? };
        Ok(self.maps.alloc(map))
    }

    /// Reads the content of an ELF file that other users may write to. The total size of such files
    /// is limited. The size of each file is also limited to a multiple of its size on the disk,
    /// because a file of holes costs its owner nothing.
    fn read(&self, file: File, metadata: &Metadata) -> io::Result<&[u8]> {
        let on_disk = metadata.blocks().saturating_mul(512 * 16);
        if metadata.len() > self.left.get().min(on_disk) {
            let why = "can be changed by other users, and is larger than heapprof allows for such \
                       files";
            return Err(io::Error::other(why));
        }
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(metadata.len() as usize)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut file = file.take(metadata.len());
        file.by_ref().take(4).read_to_end(&mut bytes)?;
        if bytes != b"\x7fELF" {
            return Err(io::Error::other("is not an ELF file"));
        }
        file.read_to_end(&mut bytes)?;
        self.left.set(self.left.get() - bytes.len() as u64);
        Ok(self.keep(bytes))
    }

    /// Stores bytes that were inflated or read.
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        self.bytes.alloc(bytes)
    }
}

/// Opens a file by its path.
fn open_plain(path: &Path) -> io::Result<File> {
    // Only plain files are opened, because opening another kind of file can have an effect.
    is_plain(&std::fs::metadata(path)?)?;
    // Meanwhile the path may lead to another file. If that is a pipe, opening must not wait for it.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Whether a user other than the current user and root may write to the file. If the file has an
/// access control list, the group's permission bits hold the mask of the list. The current user is
/// the real user, because a thread that acts for another user changes only its effective user.
fn is_written_by_others(metadata: &Metadata) -> bool {
    let user = rustix::process::getuid().as_raw();
    ![0, user].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0
}

fn is_plain(metadata: &Metadata) -> io::Result<()> {
    match (metadata.is_file(), metadata.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(io::ErrorKind::NotFound.into()),
        _ => Err(io::Error::other("is not a regular file")),
    }
}

//! Keeps the bytes of one binary and its debug files while they are asked: mapped files, and what
//! was inflated.

use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use memmap2::Mmap;
use rustix::fs::OFlags;
use typed_arena::Arena;

/// The most that is read, for one binary, of files that others may write to.
const MOST: u64 = 1 << 30;

/// Owner of all bytes of one binary; dropped before the next binary is opened.
pub(crate) struct Storage {
    maps: Arena<Mmap>,
    bytes: Arena<Vec<u8>>,
    /// How much may still be read of files that others may write to.
    left: Cell<u64>,
}

impl Storage {
    pub(crate) fn new() -> Self {
        Self {
            maps: Arena::new(),
            bytes: Arena::new(),
            left: Cell::new(MOST),
        }
    }

    /// The content of a plain file. Where only we or root may write to it, it is mapped: the pages
    /// that are read take memory, and the kernel may take them back. Names come from profiles, and
    /// so may lead to another user's file. That is [read](Self::read): if it were shortened while
    /// it is mapped, that would end this process.
    pub(crate) fn map(&self, path: &Path) -> io::Result<&[u8]> {
        // What is no plain file is not even opened, as that alone can have an effect.
        is_plain(&std::fs::metadata(path)?)?;
        // It may be another one by now: a pipe is not waited for.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
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

    /// The content of an ELF file that others may write to. What is read of all such files together
    /// has a bound, and so has what is read of one that takes little room on the disk: a file of
    /// holes costs its owner nothing.
    fn read(&self, file: File, metadata: &Metadata) -> io::Result<&[u8]> {
        let on_disk = metadata.blocks().saturating_mul(512 * 16);
        if metadata.len() > self.left.get().min(on_disk) {
            let why = "can be changed by other users, and is larger than is read of such files";
            return Err(io::Error::other(why));
        }
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(metadata.len() as usize)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut file = file.take(metadata.len());
        file.by_ref().take(4).read_to_end(&mut bytes)?;
        if bytes != b"\x7fELF" {
            return Err(io::Error::other("is no ELF file"));
        }
        file.read_to_end(&mut bytes)?;
        self.left.set(self.left.get() - bytes.len() as u64);
        Ok(self.keep(bytes))
    }

    /// Keeps bytes that were made.
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        self.bytes.alloc(bytes)
    }
}

/// Whether somebody may write to it who is neither us nor root. The mask of an access list is in
/// the group's rights.
fn is_written_by_others(metadata: &Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    ![0, user].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0
}

fn is_plain(metadata: &Metadata) -> io::Result<()> {
    match (metadata.is_file(), metadata.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(io::ErrorKind::NotFound.into()),
        _ => Err(io::Error::other("is no plain file")),
    }
}

//! Keeps the bytes of one binary and its debug files while they are asked: mapped files, and what was inflated.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use memmap2::Mmap;
use rustix::fs::OFlags;
use typed_arena::Arena;

/// The most that is read of a file that others may write to.
const MOST: u64 = 1 << 30;

/// Owner of all bytes of one binary; dropped before the next binary is opened.
pub(crate) struct Storage {
    maps: Arena<Mmap>,
    bytes: Arena<Vec<u8>>,
}

impl Storage {
    pub(crate) fn new() -> Self {
        Self {
            maps: Arena::new(),
            bytes: Arena::new(),
        }
    }

    /// The content of a plain file. Where only we or root may write to it, it is mapped: the pages that are read take
    /// memory, and the kernel may take them back. Names come from profiles, and so may lead to another user's file. That is read, up to
    /// a gigabyte, for if it were shortened while it is mapped, that would end this process.
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
            if metadata.len() > MOST {
                return Err(io::Error::other(
                    "can be changed by other users and is larger than 1 GiB",
                ));
            }
            let mut bytes = Vec::with_capacity(metadata.len() as usize);
            file.take(MOST).read_to_end(&mut bytes)?;
            return Ok(self.keep(bytes));
        }
        // SAFETY: the map is read-only and private, and is given out only as bytes, which have no invalid
        // values. Only we or root can shorten the file meanwhile, which ends this process with SIGBUS, as with any
        // debugger; package managers and linkers replace files instead.
        let map = unsafe { Mmap::map(&file)? };
        Ok(self.maps.alloc(map))
    }

    /// Keeps bytes that were made.
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        self.bytes.alloc(bytes)
    }
}

/// Whether somebody may write to it who is neither us nor root. An access list shows in the group's rights.
fn is_written_by_others(metadata: &Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let of_group = if metadata.gid() == group { 0 } else { 0o020 };
    ![0, user].contains(&metadata.uid()) || metadata.mode() & (0o002 | of_group) != 0
}

fn is_plain(metadata: &Metadata) -> io::Result<()> {
    match (metadata.is_file(), metadata.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(io::ErrorKind::NotFound.into()),
        _ => Err(io::Error::other("is no plain file")),
    }
}

//! Keeps the bytes of one binary and its debug files while they are asked: mapped files, and what was inflated.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;
use typed_arena::Arena;

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

    /// The content of a plain file. Only the pages that are read take memory, and the kernel may take them back.
    pub(crate) fn map(&self, path: &Path) -> io::Result<&[u8]> {
        // A pipe would be waited for, a device has no end.
        let metadata = std::fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !metadata.is_file() {
            return Err(io::Error::other("is no plain file"));
        }
        if metadata.len() == 0 {
            return Ok(&[]);
        }
        let file = File::open(path)?;
        // SAFETY: the map is read-only and private, and is given out only as bytes, which have no invalid
        // values. Whoever shortens the file meanwhile ends this process with SIGBUS, as with any debugger;
        // package managers and linkers replace files instead.
        let map = unsafe { Mmap::map(&file)? };
        Ok(self.maps.alloc(map))
    }

    /// Keeps bytes that were made.
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        self.bytes.alloc(bytes)
    }
}

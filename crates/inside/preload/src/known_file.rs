//! Files that the library keeps open in the program. The program may close them, and give their
//! numbers to other files.

use std::ffi::CString;

use heapprof_platform::sys::EngineFile;

/// A file that the program may have closed in the meantime.
pub struct KnownFile {
    file: EngineFile,
    id: (u64, u64),
}

impl KnownFile {
    /// Notes an open file; `None` if it can't be inspected.
    pub fn new(file: EngineFile) -> Option<Self> {
        let id = Self::id(&file)?;
        Some(Self { file, id })
    }

    /// Opens the file at a path; `None` on failure.
    pub fn open(path: &[u8], flags: i32) -> Option<Self> {
        Self::new(EngineFile::open(&CString::new(path).ok()?, flags, 0).ok()?)
    }

    fn id(file: &EngineFile) -> Option<(u64, u64)> {
        file.stat().map(|found| (found.st_dev, found.st_ino))
    }

    /// Returns the file; `None` if its number belongs to another file by now.
    pub fn get(&self) -> Option<&EngineFile> {
        (Self::id(&self.file) == Some(self.id)).then_some(&self.file)
    }
}

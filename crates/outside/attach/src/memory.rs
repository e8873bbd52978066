//! Reads and writes the memory of another process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use heapprof_memory::Memory;

/// Maximum number of reads of a process. The limit ends the reading of circular lists.
const MAX_READS: u32 = 20_000_000;

/// The memory of another process, through `/proc/PID/mem`.
#[derive(Debug)]
pub(crate) struct TargetMemoryFile {
    file: File,
    /// Number of reads so far.
    reads: AtomicU32,
}

impl TargetMemoryFile {
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            reads: AtomicU32::new(0),
        }
    }

    pub(crate) fn memory(&self) -> TargetMemory<'_> {
        TargetMemory(self)
    }
}

/// A copyable handle for the memory of another process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetMemory<'a>(&'a TargetMemoryFile);

impl Memory for TargetMemory<'_> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        let may = self.0.reads.fetch_add(1, Ordering::Relaxed) < MAX_READS;
        may && at < 1 << 62 && self.0.file.read_exact_at(to, at).is_ok()
    }
}

impl TargetMemory<'_> {
    /// Writes to the memory, even where the process itself has no write access.
    pub(crate) fn write(self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.file.write_all_at(bytes, at)
    }
}

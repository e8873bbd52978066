//! Reads the ledger in a core file, which contains the memory of a program at its death.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use heapprof_memory::Memory;
use heapprof_process::maps::ProcessMapping;
use heapprof_process::{CoreFile, CoreSegment};
use heapprof_profile::Profile;

use crate::bounded_reads::BoundedMemoryReader;
use crate::error::LiveError;
use crate::ledger::{self, LiveLedger};
use crate::ledger_copy::LedgerSnapshot;
use crate::process::code;
use crate::profile::{RecordingContext, profile};
use crate::writer::MAX_FRAMES;

/// A core file with the ledger of a recording.
#[derive(Debug)]
pub struct CoreLedger {
    file: File,
    core: CoreFile,
    files: Vec<ProcessMapping>,
    ledger: u64,
}

#[derive(Clone, Copy)]
struct CoreLedgerMemory<'a>(&'a File, &'a CoreFile);

impl Memory for CoreLedgerMemory<'_> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        self.1.read_memory(self.0, at, to)
    }
}

impl CoreLedger {
    /// Finds the ledger in a core file.
    ///
    /// # Errors
    /// The file may be no core file of a 64-bit program, and may have no ledger.
    pub fn open(file: File) -> Result<Self, LiveError> {
        let core = CoreFile::read(&file)?;
        let files = core.mapped_files(&file);
        let is_writable = |segment: &&CoreSegment| segment.is_writable && segment.len != 0;
        // The files are in order of their addresses.
        let is_file = |segment: &CoreSegment| {
            let start = segment.memory.start;
            let next = files.partition_point(|file| file.end <= start);
            let found = files.get(next);
            found.is_some_and(|file| file.range().contains(&start))
        };
        let writable = || core.segments.iter().filter(is_writable);
        // The ledger is in memory of a file. If the core file lists no files, it can be anywhere.
        let first = writable().filter(|segment| is_file(segment));
        let pieces = first.chain(writable().filter(|segment| !is_file(segment)));
        let pieces = pieces
            .map(|segment| segment.memory.start..segment.memory.start.saturating_add(segment.len));
        let ends = |segment: &CoreSegment| segment.offset.saturating_add(segment.len);
        let is_cut = core
            .segments
            .iter()
            .any(|segment| ends(segment) > core.length);
        let found = ledger::find(CoreLedgerMemory(&file, &core), pieces);
        let ledger = found.map_err(|error| match error {
            LiveError::NotRecorded if is_cut => LiveError::NotCore("its end is missing"),
            error => error,
        })?;
        Ok(Self {
            file,
            core,
            files,
            ledger,
        })
    }

    /// Makes a profile of the moment at which the program died.
    ///
    /// # Errors
    /// A part of the ledger may be missing in the file, or damaged.
    pub fn snapshot(&self) -> Result<Profile, LiveError> {
        let memory = CoreLedgerMemory(&self.file, &self.core);
        let reader = BoundedMemoryReader::new(memory);
        let ledger = LiveLedger::read(&reader, self.ledger)?;
        let program = self
            .files
            .first()
            .and_then(|map| map.path.rsplit(|&b| b == b'/').next());
        let metadata = self.file.metadata()?;
        let written = metadata.mtime().saturating_mul(1_000_000_000);
        let around = RecordingContext {
            reason: "core file",
            is_last: false,
            program: String::from_utf8_lossy(program.unwrap_or(b"unknown")).into_owned(),
            pid: i64::from(reader.u32(ledger.process)? as i32),
            wrappers: "",
            resident: [0; 2],
            code: code(&self.files, memory),
            duration: &|started, _| written.saturating_sub(started),
            max_frames: MAX_FRAMES,
            thread_name: &|_| None,
        };
        profile(&reader, &ledger, &around)
    }

    /// Returns the ledger in the core file, with the blocks and stacks of the moment at which the
    /// program died.
    #[must_use]
    pub fn frozen(&self) -> LedgerSnapshot<impl Memory> {
        let memory = CoreLedgerMemory(&self.file, &self.core);
        LedgerSnapshot {
            memory,
            ledger: self.ledger,
            code: code(&self.files, memory),
        }
    }
}

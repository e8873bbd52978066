//! The books in a core file: the memory that a program had when it died.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use heapprof_memory::Memory;
use heapprof_process::maps::Map;
use heapprof_process::{CoreFile, Segment};
use heapprof_profile::Profile;

use crate::books::{self, Books};
use crate::error::Error;
use crate::frozen::Frozen;
use crate::process::code;
use crate::profile::{Around, profile};
use crate::read::Reader;
use crate::writer::MAX_FRAMES;

/// A core file with the books of a recording.
#[derive(Debug)]
pub struct Core {
    file: File,
    core: CoreFile,
    files: Vec<Map>,
    books: u64,
}

#[derive(Clone, Copy)]
struct Kept<'a>(&'a File, &'a CoreFile);

impl Memory for Kept<'_> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        self.1.read_memory(self.0, at, to)
    }
}

impl Core {
    /// Finds the books in a core file.
    ///
    /// # Errors
    /// It may be no core file of a 64-bit program, and there may be no books in it.
    pub fn open(file: File) -> Result<Self, Error> {
        let core = CoreFile::read(&file)?;
        let files = core.mapped_files(&file);
        let is_writable = |segment: &&Segment| segment.is_writable && segment.len != 0;
        // They are in order of their addresses.
        let is_file = |segment: &Segment| {
            let start = segment.memory.start;
            let next = files.partition_point(|file| file.end <= start);
            let found = files.get(next);
            found.is_some_and(|file| file.range().contains(&start))
        };
        let writable = || core.segments.iter().filter(is_writable);
        // The books are in memory of a file. Where files are not listed, they can be anywhere.
        let first = writable().filter(|segment| is_file(segment));
        let pieces = first.chain(writable().filter(|segment| !is_file(segment)));
        let pieces = pieces
            .map(|segment| segment.memory.start..segment.memory.start.saturating_add(segment.len));
        let ends = |segment: &Segment| segment.offset.saturating_add(segment.len);
        let is_cut = core
            .segments
            .iter()
            .any(|segment| ends(segment) > core.length);
        let found = books::find(Kept(&file, &core), pieces);
        let books = found.map_err(|error| match error {
            Error::NotRecorded if is_cut => Error::NotCore("its end is missing"),
            error => error,
        })?;
        Ok(Self {
            file,
            core,
            files,
            books,
        })
    }

    /// A profile of the moment at which the program died.
    ///
    /// # Errors
    /// A part of the books may be missing in the file, or damaged.
    pub fn snapshot(&self) -> Result<Profile, Error> {
        let memory = Kept(&self.file, &self.core);
        let reader = Reader::new(memory);
        let books = Books::read(&reader, self.books)?;
        let program = self
            .files
            .first()
            .and_then(|map| map.path.rsplit(|&b| b == b'/').next());
        let metadata = self.file.metadata()?;
        let written = metadata.mtime().saturating_mul(1_000_000_000);
        let around = Around {
            reason: "core file",
            program: String::from_utf8_lossy(program.unwrap_or(b"unknown")).into_owned(),
            pid: i64::from(reader.u32(books.process)? as i32),
            wrappers: "",
            resident: [0; 2],
            code: code(&self.files, memory),
            duration: &|started, _| written.saturating_sub(started),
            max_frames: MAX_FRAMES,
            thread_name: &|_| None,
        };
        profile(&reader, &books, &around)
    }

    /// The books, whose blocks and stacks are those of that moment.
    #[must_use]
    pub fn frozen(&self) -> Frozen<impl Memory> {
        let memory = Kept(&self.file, &self.core);
        Frozen {
            memory,
            books: self.books,
            code: code(&self.files, memory),
        }
    }
}

//! The books in a core file: the memory that a program had when it died.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use heapprof_memory::Memory;
use heapprof_process::maps::Map;
use heapprof_profile::Profile;
use object::NativeEndian;
use object::elf::{ET_CORE, FileHeader64, NT_FILE, PF_W, PF_X, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::books::{self, Books};
use crate::error::Error;
use crate::process::code;
use crate::profile::{Around, profile};
use crate::read::Reader;

/// The headers of a core file lie in its first bytes. Those of 65,535 segments have 3.7 MB.
const MOST_HEADERS: u64 = 4 << 20;
/// The notes of a program with many threads and files have some hundred KB.
const MOST_NOTES: u64 = 64 << 20;

/// The kernel lets a process map 65,530 pieces, unless root says otherwise.
const MOST_FILES: usize = 1 << 17;

/// A piece of memory that is in the file.
#[derive(Clone, Debug)]
struct Segment {
    memory: Range<u64>,
    /// Where its first byte is in the file, and how many bytes are there.
    offset: u64,
    len: u64,
    is_writable: bool,
    is_code: bool,
}

/// A core file with the books of a recording.
#[derive(Debug)]
pub struct Core {
    file: File,
    segments: Vec<Segment>,
    /// What was mapped of files: where, from which byte, and the path.
    files: Vec<(Range<u64>, u64, Vec<u8>)>,
    books: u64,
}

#[derive(Clone, Copy)]
struct Kept<'a>(&'a File, &'a [Segment]);

impl Memory for Kept<'_> {
    fn read(self, mut at: u64, mut to: &mut [u8]) -> bool {
        let Self(file, segments) = self;
        while !to.is_empty() {
            // They are in order of their addresses.
            let next = segments.partition_point(|segment| segment.memory.end <= at);
            let Some(segment) = segments.get(next).filter(|s| s.memory.contains(&at)) else {
                return false;
            };
            let from = at - segment.memory.start;
            let left = segment.len.saturating_sub(from);
            let len = left.min(to.len() as u64) as usize;
            let Some(offset) = segment.offset.checked_add(from).filter(|_| len != 0) else {
                return false;
            };
            if file.read_exact_at(&mut to[..len], offset).is_err() {
                return false;
            }
            let Some(next) = at.checked_add(len as u64) else {
                return false;
            };
            at = next;
            to = &mut to[len..];
        }
        true
    }
}

impl Core {
    /// Finds the books in a core file.
    ///
    /// # Errors
    /// It may be no core file of a 64-bit program, and there may be no books in it.
    pub fn open(file: File) -> Result<Self, Error> {
        let endian = NativeEndian;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Error::NotCore("it is no regular file"));
        }
        let length = metadata.len();
        let mut head = vec![0; length.min(MOST_HEADERS) as usize];
        file.read_exact_at(&mut head, 0)?;
        let no_core = |_| Error::NotCore("its head is not that of an ELF file of this machine");
        let header = FileHeader64::<NativeEndian>::parse(&head[..]).map_err(no_core)?;
        if header.e_type(endian) != ET_CORE {
            return Err(Error::NotCore("it is another kind of ELF file"));
        }
        let headers = header.program_headers(endian, &head[..]);
        let headers = headers.map_err(|_| Error::NotCore("its segments are not listed"))?;
        let (mut segments, mut notes_left) = (Vec::new(), MOST_NOTES);
        let mut files: Vec<(Range<u64>, u64, Vec<u8>)> = Vec::new();
        for segment in headers {
            let (offset, len) = (segment.p_offset(endian), segment.p_filesz(endian));
            let memory = segment.p_vaddr(endian);
            match segment.p_type(endian) {
                PT_LOAD => segments.push(Segment {
                    memory: memory..memory.saturating_add(segment.p_memsz(endian)),
                    offset,
                    len,
                    is_writable: segment.p_flags(endian).contains(PF_W),
                    is_code: segment.p_flags(endian).contains(PF_X),
                }),
                PT_NOTE if files.is_empty() => {
                    let len = len.min(notes_left).min(length);
                    notes_left -= len;
                    let mut notes = vec![0; len as usize];
                    if file.read_exact_at(&mut notes, offset).is_ok() {
                        files = mapped_files(&notes);
                    }
                }
                _ => {}
            }
        }
        segments.sort_by_key(|segment| segment.memory.start);
        let is_writable = |segment: &&Segment| segment.is_writable && segment.len != 0;
        // They are in order of their addresses.
        let is_file = |segment: &Segment| {
            let start = segment.memory.start;
            let next = files.partition_point(|(range, ..)| range.end <= start);
            files
                .get(next)
                .is_some_and(|(range, ..)| range.contains(&start))
        };
        let writable = || segments.iter().filter(is_writable);
        // The books are in memory of a file. Where files are not listed, they can be anywhere.
        let first = writable().filter(|segment| is_file(segment));
        let pieces = first.chain(writable().filter(|segment| !is_file(segment)));
        let pieces = pieces
            .map(|segment| segment.memory.start..segment.memory.start.saturating_add(segment.len));
        let ends = |segment: &Segment| segment.offset.saturating_add(segment.len);
        let is_cut = segments.iter().any(|segment| ends(segment) > length);
        let found = books::find(Kept(&file, &segments), pieces);
        let books = found.map_err(|error| match error {
            Error::NotRecorded if is_cut => Error::NotCore("its end is missing"),
            error => error,
        })?;
        Ok(Self {
            file,
            segments,
            files,
            books,
        })
    }

    /// A profile of the moment at which the program died.
    ///
    /// # Errors
    /// A part of the books may be missing in the file, or damaged.
    pub fn snapshot(&self) -> Result<Profile, Error> {
        let memory = Kept(&self.file, &self.segments);
        let reader = Reader::new(memory);
        let books = Books::read(&reader, self.books)?;
        // A debugger leaves out what can be read from the files, so code may be no segment.
        let is_code = |range: &Range<u64>| {
            let segments = &self.segments;
            let next = segments.partition_point(|segment| segment.memory.end <= range.start);
            let found = segments.get(next);
            let found = found.filter(|segment| segment.memory.contains(&range.start));
            found.is_none_or(|segment| segment.is_code)
        };
        let maps: Vec<Map> = self
            .files
            .iter()
            .map(|(range, offset, path)| Map {
                start: range.start,
                end: range.end,
                offset: *offset,
                is_writable: false,
                is_private: true,
                is_code: is_code(range),
                path: path.clone(),
            })
            .collect();
        let program = maps
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
            code: code(&maps, memory),
            duration: &|started, _| written.saturating_sub(started),
            thread_name: &|_| None,
        };
        profile(&reader, &books, &around)
    }
}

/// Reads the note that lists the mapped files (`NT_FILE`): their number, the size of a page, three
/// numbers for each, and their names.
fn mapped_files(notes: &[u8]) -> Vec<(Range<u64>, u64, Vec<u8>)> {
    let word = |bytes: &[u8], at: usize| {
        let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
        found.map(|word| u64::from_ne_bytes(*word))
    };
    let mut at = 0;
    while let Some(head) = notes.get(at..at + 12) {
        let number = |i: usize| crate::read::u32_at(head, 4 * i) as usize;
        let (name, len, kind) = (number(0), number(1), number(2));
        let first = at + 12 + name.next_multiple_of(4);
        let next = first.saturating_add(len.next_multiple_of(4));
        if kind as u32 != NT_FILE.0 {
            at = next;
            continue;
        }
        let Some(note) = notes.get(first..first + len) else {
            break;
        };
        let read = || {
            let (count, page) = (word(note, 0)? as usize, word(note, 8)?);
            let names_at = count.checked_mul(24)?.checked_add(16)?;
            let mut names = note.get(names_at..)?.split(|&byte| byte == 0);
            let one = |i: usize| {
                let at = 16 + 24 * i;
                let (start, end) = (word(note, at)?, word(note, at + 8)?);
                let offset = word(note, at + 16)?.checked_mul(page)?;
                Some((start..end, offset, names.next()?.to_vec()))
            };
            let all = (0..count.min(MOST_FILES)).map_while(one);
            let mut all: Vec<_> = all.filter(|(range, ..)| range.start < range.end).collect();
            all.sort_by_key(|(range, ..)| range.start);
            Some(all)
        };
        return read().unwrap_or_default();
    }
    Vec::new()
}

//! Reads a core file: the memory segments of a program that has died, and notes about the program.
//!
//! The kernel's `fs/binfmt_elf.c` defines the format. The content is not trusted: segments may
//! reach beyond the end of the file, and notes may be cut off.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::NativeEndian;
use object::elf::{ET_CORE, FileHeader64, NT_FILE, PF_W, PF_X, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::maps::ProcessMapping;

/// Maximum number of bytes at the beginning of a core file that are read for its headers. The
/// headers of 65,535 segments have 3.7 MB.
const MAX_HEADER_BYTES: u64 = 4 << 20;
/// Maximum number of bytes of notes. The notes of a program with many threads and files have some
/// hundred KB.
const MAX_NOTE_BYTES: u64 = 256 << 20;
/// Maximum number of mapped files. The kernel allows a process 65,530 mappings, unless root changes
/// that.
const MAX_MAPPED_FILES: usize = 1 << 17;

/// The reason why a file can't be read as a core file.
#[derive(Debug)]
pub enum CoreError {
    /// The file can't be read.
    Io(io::Error),
    /// The file is no core file that can be read; the text says why.
    NotCore(&'static str),
}

impl From<io::Error> for CoreError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A segment in a core file: a piece of the program's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreSegment {
    /// The addresses of the segment.
    pub memory: Range<u64>,
    /// Offset in the file at which the segment's first byte should be.
    pub offset: u64,
    /// Number of the segment's bytes that should be in the file. The kernel leaves out memory whose
    /// content is in other files.
    pub len: u64,
    /// Whether the program could write to the segment.
    pub is_writable: bool,
    /// Whether the segment is code.
    pub is_code: bool,
}

/// The headers of a core file.
#[derive(Debug)]
pub struct CoreFile {
    /// The listed segments of memory, in order of their addresses.
    pub segments: Vec<CoreSegment>,
    /// Length of the file in bytes.
    pub length: u64,
    /// The number of the machine that the program ran on (`e_machine`).
    pub machine: u16,
    /// Offset and length of each section of the file that contains notes.
    notes: Vec<(u64, u64)>,
}

impl CoreFile {
    /// Reads the headers of a core file.
    ///
    /// # Errors
    /// The file may be no core file of a 64-bit program.
    pub fn read(file: &File) -> Result<Self, CoreError> {
        let endian = NativeEndian;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(CoreError::NotCore("it is not a regular file"));
        }
        let length = metadata.len();
        let mut head = vec![0; length.min(MAX_HEADER_BYTES) as usize];
        file.read_exact_at(&mut head, 0)?;
        let no_core =
            |_| CoreError::NotCore("its header is not that of an ELF file for this machine");
        let header = FileHeader64::<NativeEndian>::parse(&head[..]).map_err(no_core)?;
        if header.e_type(endian) != ET_CORE {
            return Err(CoreError::NotCore("it is another kind of ELF file"));
        }
        let headers = header.program_headers(endian, &head[..]);
        let headers =
            headers.map_err(|_| CoreError::NotCore("its list of segments cannot be read"))?;
        let (mut segments, mut notes) = (Vec::new(), Vec::new());
        for segment in headers {
            let (offset, len) = (segment.p_offset(endian), segment.p_filesz(endian));
            let memory = segment.p_vaddr(endian);
            match segment.p_type(endian) {
                PT_LOAD => segments.push(CoreSegment {
                    memory: memory..memory.saturating_add(segment.p_memsz(endian)),
                    offset,
                    len,
                    is_writable: segment.p_flags(endian).contains(PF_W),
                    is_code: segment.p_flags(endian).contains(PF_X),
                }),
                PT_NOTE => notes.push((offset, len)),
                _ => {}
            }
        }
        segments.sort_by_key(|segment| segment.memory.start);
        Ok(Self {
            segments,
            length,
            machine: header.e_machine(endian).0,
            notes,
        })
    }

    /// Returns the segment that contains an address.
    #[must_use]
    pub fn segment(&self, at: u64) -> Option<&CoreSegment> {
        let next = self.segments.partition_point(|one| one.memory.end <= at);
        self.segments
            .get(next)
            .filter(|one| one.memory.contains(&at))
    }

    /// Fills `to` with the memory at an address. Returns whether the file contains all of it.
    #[must_use]
    pub fn read_memory(&self, file: &File, mut at: u64, mut to: &mut [u8]) -> bool {
        while !to.is_empty() {
            let Some(segment) = self.segment(at) else {
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

    /// Calls `each` with the kind and the content of each note. Notes that are missing or cut off
    /// are left out.
    pub fn each_note(&self, file: &File, mut each: impl FnMut(u32, &[u8])) {
        let mut left = MAX_NOTE_BYTES;
        for &(offset, len) in &self.notes {
            let len = len.min(left).min(self.length);
            left -= len;
            let mut notes = vec![0; len as usize];
            if file.read_exact_at(&mut notes, offset).is_ok() {
                each_note_in(&notes, &mut each);
            }
        }
    }

    /// Returns the files that were mapped, in order of their addresses.
    #[must_use]
    pub fn mapped_files(&self, file: &File) -> Vec<ProcessMapping> {
        let mut all = Vec::new();
        self.each_note(file, |kind, note| {
            if kind == NT_FILE.0 && all.is_empty() {
                all = mapped_files(note).unwrap_or_default();
            }
        });
        for map in &mut all {
            // A debugger leaves out memory that can be read from the files, so code may be in no
            // segment.
            let segment = self.segment(map.start);
            map.is_code = segment.is_none_or(|segment| segment.is_code);
            map.is_writable = segment.is_some_and(|segment| segment.is_writable);
        }
        all
    }
}

/// Calls `each` with each note in `notes`. A note has three numbers: the length of its name, the
/// length of its content, and its kind. Then come the name and the content, each padded to four
/// bytes.
fn each_note_in(notes: &[u8], mut each: impl FnMut(u32, &[u8])) {
    let mut at = 0;
    while let Some(head) = notes.get(at..at + 12) {
        let numbers = head.as_chunks::<4>().0;
        let [name, len, kind] = [0, 1, 2].map(|i| u32::from_ne_bytes(numbers[i]));
        let first = at + 12 + (name as usize).next_multiple_of(4);
        let Some(note) = notes.get(first..first + len as usize) else {
            return;
        };
        each(kind, note);
        at = first + (len as usize).next_multiple_of(4);
    }
}

/// Parses the list of mapped files (`NT_FILE`): their number, the size of a page, three numbers for
/// each file, and their names. The list does not contain the rights of the mappings.
fn mapped_files(note: &[u8]) -> Option<Vec<ProcessMapping>> {
    let word = |at: usize| Some(u64::from_ne_bytes(*note.get(at..)?.first_chunk()?));
    let (count, page) = (word(0)? as usize, word(8)?);
    let names_at = count.checked_mul(24)?.checked_add(16)?;
    let mut names = note.get(names_at..)?.split(|&byte| byte == 0);
    let one = |i: usize| {
        let at = 16 + 24 * i;
        Some(ProcessMapping {
            start: word(at)?,
            end: word(at + 8)?,
            offset: word(at + 16)?.checked_mul(page)?,
            is_writable: false,
            is_code: false,
            is_private: true,
            path: names.next()?.to_vec(),
        })
    };
    let all = (0..count.min(MAX_MAPPED_FILES)).map_while(one);
    let mut all: Vec<ProcessMapping> = all.filter(|map| map.start < map.end).collect();
    all.sort_by_key(|map| map.start);
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, bytes: &[u8]) -> Vec<u8> {
        let head = [5, bytes.len() as u32, kind].map(u32::to_ne_bytes);
        let mut note = head.concat();
        note.extend(b"CORE\0\0\0\0");
        note.extend(bytes);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    fn files(count: u64, words: &[u64], names: &[u8]) -> Vec<u8> {
        let head = [count, 4096];
        let words = head.iter().chain(words);
        let mut all: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
        all.extend(names);
        all
    }

    #[test]
    fn notes_follow_each_other_until_one_is_cut() {
        let mut notes = note(1, b"abc");
        notes.extend(note(2, b"defg"));
        let whole = notes.len();
        notes.extend(note(3, b"cut"));
        let found = |notes: &[u8]| {
            let mut found = Vec::new();
            each_note_in(notes, |kind, note| found.push((kind, note.to_vec())));
            found
        };
        assert_eq!(found(&notes).len(), 3);
        let cut = found(&notes[..whole + 14]);
        assert_eq!(cut, [(1, b"abc".to_vec()), (2, b"defg".to_vec())]);
        assert!(found(&[0xff; 64]).is_empty());
    }

    #[test]
    fn mapped_files_are_in_order_and_none_is_empty() {
        let words = [0x8000, 0x9000, 2, 0x3000, 0x4000, 0, 0x7000, 0x7000, 1];
        let found = mapped_files(&files(3, &words, b"/b\0/a\0/none\0")).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|map| (map.start, map.offset, map.path.as_slice()))
            .collect();
        assert_eq!(found, [(0x3000, 0, &b"/a"[..]), (0x8000, 8192, b"/b")]);
        // The note claims more files than it has, or more than any note could have.
        assert_eq!(mapped_files(&files(3, &[1, 2, 3], b"")), None);
        assert_eq!(mapped_files(&files(u64::MAX, &[], b"")), None);
    }
}

//! The memory of a program that has died, from a core file.
//!
//! A core file is an ELF file with the memory as segments, and notes: the registers of each thread
//! (`NT_PRSTATUS`) and which files were mapped where (`NT_FILE`). Its form is that of the kernel's
//! `fs/binfmt_elf.c`.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::NativeEndian;
use object::elf::{ET_CORE, FileHeader64, NT_FILE, NT_PRSTATUS, PF_W, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::error::Error;
use crate::image::{Image, Region, Thread};

/// The headers of a core file lie in its first bytes.
const MOST_HEADERS: u64 = 4 << 20;
/// The notes of a program with many threads and files have some hundred KB.
const MOST_NOTES: u64 = 256 << 20;
/// More memory than this is not read.
const MOST: u64 = 1 << 40;
/// A segment is read in pieces of so many bytes.
const PIECE: u64 = 64 << 20;

// Where the thread's number and its registers are in the kernel's `elf_prstatus` on x86-64, and how
// many registers there are.
const TID: usize = 32;
const REGISTERS: usize = 112;
const COUNT: usize = 27;
/// The stack pointer among the registers.
const STACK: usize = 19;

/// Reads the memory that a core file has.
///
/// # Errors
/// It may be no core file of a 64-bit program.
pub fn of_core(file: &File) -> Result<Image, Error> {
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
    let (mut threads, mut files) = (Vec::new(), Vec::new());
    let mut notes_left = MOST_NOTES;
    for segment in headers.iter().filter(|one| one.p_type(endian) == PT_NOTE) {
        let offset = segment.p_offset(endian);
        let len = segment.p_filesz(endian).min(notes_left).min(length);
        notes_left -= len;
        let mut notes = vec![0; len as usize];
        if file.read_exact_at(&mut notes, offset).is_ok() {
            read_notes(&notes, &mut threads, &mut files);
        }
    }
    let (mut regions, mut missing, mut left) = (Vec::new(), 0u64, MOST);
    for segment in headers.iter().filter(|one| one.p_type(endian) == PT_LOAD) {
        if !segment.p_flags(endian).contains(PF_W) {
            continue;
        }
        let start = segment.p_vaddr(endian);
        let name = files
            .iter()
            .find(|(range, _): &&(Range<u64>, String)| range.contains(&start))
            .map_or_else(String::new, |(_, name)| name.clone());
        let size = segment.p_filesz(endian);
        let offset = segment.p_offset(endian);
        // What the file says to have and does not.
        let there = size.min(length.saturating_sub(offset));
        missing = missing.saturating_add(segment.p_memsz(endian).saturating_sub(there));
        left = left.checked_sub(there).ok_or(Error::TooLarge(MOST))?;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < there {
            let from = bytes.len();
            let more = (there - from as u64).min(PIECE) as usize;
            bytes.resize(from + more, 0);
            if file
                .read_exact_at(&mut bytes[from..], offset + from as u64)
                .is_err()
            {
                bytes.truncate(from);
                break;
            }
        }
        regions.push(Region {
            start,
            bytes,
            is_own: ["/memfd:heapprof", "/libheapprof.so"]
                .iter()
                .any(|own| name.contains(own)),
            name,
            is_writable: true,
            is_shared: false,
        });
    }
    let is_writable = |at: u64| {
        regions
            .iter()
            .any(|region: &Region| region.range().contains(&at))
    };
    let mut of_files: Vec<Range<u64>> = files
        .iter()
        .map(|(range, _)| range.clone())
        .filter(|range| !is_writable(range.start))
        .collect();
    of_files.sort_by_key(|range| range.start);
    let mut image = Image::new(regions, threads, missing);
    image.files = of_files;
    Ok(image)
}

fn read_notes(notes: &[u8], threads: &mut Vec<Thread>, files: &mut Vec<(Range<u64>, String)>) {
    let mut at = 0;
    while let Some(head) = notes.get(at..at + 12) {
        let number = |i: usize| {
            let bytes = head[4 * i..].first_chunk::<4>();
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize
        };
        let (name, len, kind) = (number(0), number(1), number(2) as u32);
        let first = at + 12 + name.next_multiple_of(4);
        let Some(note) = notes.get(first..first.saturating_add(len)) else {
            return;
        };
        if kind == NT_PRSTATUS.0 {
            threads.extend(thread(note));
        } else if kind == NT_FILE.0 {
            files.extend(mapped(note).unwrap_or_default());
        }
        at = first.saturating_add(len.next_multiple_of(4));
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word))
}

fn thread(note: &[u8]) -> Option<Thread> {
    let tid = note.get(TID..)?.first_chunk::<4>()?;
    let registers = (0..COUNT).map(|i| word(note, REGISTERS + 8 * i));
    let registers: Vec<u64> = registers.collect::<Option<_>>()?;
    Some(Thread {
        tid: u32::from_le_bytes(*tid),
        stack: registers[STACK],
        registers,
    })
}

/// The list of mapped files: their number, the size of a page, three numbers for each, names.
fn mapped(note: &[u8]) -> Option<Vec<(Range<u64>, String)>> {
    let count = word(note, 0)? as usize;
    let names_at = count.checked_mul(24)?.checked_add(16)?;
    let mut names = note.get(names_at..)?.split(|&byte| byte == 0);
    let one = |i: usize| {
        let (start, end) = (word(note, 16 + 24 * i)?, word(note, 24 + 24 * i)?);
        let name = String::from_utf8_lossy(names.next()?).into_owned();
        Some((start..end, name))
    };
    Some((0..count).map_while(one).collect())
}

//! Reads a core file: the memory of a program that has died, with its segments, the registers of
//! each thread (the notes `NT_PRSTATUS`), and the list of mapped files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::auxiliary_value;
use heapprof_process::maps::{self, ProcessMapping};
use heapprof_process::{CoreFile, CoreSegment, PAGE_SIZE};
use object::elf::{NT_AUXV, NT_PRSTATUS};

use crate::arch::{self, ThreadNoteLayout};
use crate::error::HeapWalkError;
use crate::image::{ImageRegion, ImageThread, ProcessImage};

/// Names of heapprof's own mappings in a program that it records.
const OWN_MAPPINGS: [&str; 3] = ["/memfd:heapprof", "/memfd:libheapprof", "/libheapprof.so"];
/// Bytes of a segment that are read at a time.
const SEGMENT_PIECE_SIZE: u64 = 64 << 20;

/// Key of the program's entry point in the auxiliary vector.
const AT_ENTRY_KEY: u64 = 9;

/// A core file, and the files that were mapped when it was written.
#[derive(Debug)]
pub struct CoreMemory {
    file: File,
    core: CoreFile,
    thread_note: &'static ThreadNoteLayout,
    files: Vec<ProcessMapping>,
    /// The path of the program's file when the core file was written, and its present path.
    program: Option<(Vec<u8>, PathBuf)>,
    /// The opened file of each mapping, if it is still the file that was mapped.
    open_files: Vec<OnceLock<Option<File>>>,
}

impl CoreMemory {
    /// Reads the head of a core file. `program` is the present path of the program's file, if the
    /// file was moved.
    ///
    /// # Errors
    /// The file may be no core file of a 64-bit program.
    pub fn open(file: File, program: Option<PathBuf>) -> Result<Self, HeapWalkError> {
        let core = CoreFile::read(&file)?;
        let thread_note = arch::thread_note(core.machine).ok_or(HeapWalkError::NotCore(
            "it is from a machine other than x86-64",
        ))?;
        let files = core.mapped_files(&file);
        let mut own = Self {
            open_files: files.iter().map(|_| OnceLock::new()).collect(),
            file,
            core,
            thread_note,
            files,
            program: None,
        };
        if let Some(program) = program {
            if !program.is_file() {
                return Err(HeapWalkError::OtherProgram("there is no such file"));
            }
            let then = own.entry().and_then(|at| own.mapping(at));
            let then = then.ok_or(HeapWalkError::OtherProgram(
                "the core file does not record the path of its program",
            ))?;
            own.program = Some((own.files[then].path.clone(), program));
            if own.open_mapping(then).is_none() {
                return Err(HeapWalkError::OtherProgram(
                    "it is a different program or build, or the core file lacks its first page",
                ));
            }
        }
        Ok(own)
    }

    /// Whether the program's file can be read, and is still the file that was mapped when the
    /// program died.
    #[must_use]
    pub fn has_program(&self) -> bool {
        let own = self.entry().and_then(|at| self.mapping(at));
        own.is_some_and(|own| self.open_mapping(own).is_some())
    }

    /// Returns the address of the program's entry point, which lies in the program's file.
    fn entry(&self) -> Option<u64> {
        auxiliary_value(&self.auxiliary(), AT_ENTRY_KEY)
    }

    /// Returns the auxiliary vector, which the kernel gave the program at its start.
    fn auxiliary(&self) -> Vec<u8> {
        let mut found = Vec::new();
        self.core.each_note(&self.file, |kind, note| {
            if kind == NT_AUXV.0 && found.is_empty() {
                found = note.to_vec();
            }
        });
        found
    }

    /// Reads the memory that the program could write to, as far as the core file contains it.
    ///
    /// # Errors
    /// The file may contradict itself.
    pub fn image(&self) -> Result<ProcessImage, HeapWalkError> {
        let mut threads = Vec::new();
        self.core.each_note(&self.file, |kind, note| {
            if kind == NT_PRSTATUS.0 {
                threads.extend(thread(note, self.thread_note));
            }
        });
        // No byte is read twice: segments that share bytes are not written for a program.
        let mut left = self.core.length;
        let (mut regions, mut missing) = (Vec::new(), 0u64);
        for segment in self.core.segments.iter().filter(|one| one.is_writable) {
            // Bytes that the segment should have and the file does not.
            let there = self.core.length.saturating_sub(segment.offset);
            let there = segment.len.min(there);
            let len = segment.memory.end - segment.memory.start;
            missing = missing.saturating_add(len.saturating_sub(there));
            left = left
                .checked_sub(there)
                .ok_or(HeapWalkError::NotCore("its segments overlap"))?;
            let name = self
                .mapping(segment.memory.start)
                .map_or_else(String::new, |i| {
                    String::from_utf8_lossy(&self.files[i].path).into_owned()
                });
            regions.push(ImageRegion {
                start: segment.memory.start,
                bytes: self.bytes(segment, there),
                is_own: OWN_MAPPINGS.iter().any(|own| name.contains(own)),
                name,
                is_writable: true,
                is_shared: false,
            });
        }
        let mut image = ProcessImage::new(regions, threads, missing);
        image.auxiliary = self.auxiliary();
        let files = self.files.iter();
        let constant = files.filter(|file| !file.is_writable);
        image.files = constant.cloned().collect();
        let writable = self.core.segments.iter().filter(|one| one.is_writable);
        image.mapped = writable.map(|one| one.memory.clone()).collect();
        Ok(image)
    }

    /// Reads the first `len` bytes of a segment.
    fn bytes(&self, segment: &CoreSegment, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < len {
            let from = bytes.len();
            let more = (len - from as u64).min(SEGMENT_PIECE_SIZE) as usize;
            bytes.resize(from + more, 0);
            let at = segment.offset + from as u64;
            if self.file.read_exact_at(&mut bytes[from..], at).is_err() {
                bytes.truncate(from);
                break;
            }
        }
        bytes
    }

    /// Returns the index of the file mapping that contains an address.
    fn mapping(&self, at: u64) -> Option<usize> {
        let next = self.files.partition_point(|file| file.start <= at);
        let last = next.checked_sub(1)?;
        self.files[last].range().contains(&at).then_some(last)
    }

    /// Returns the present path of the file that was mapped at an address. Returns `None` if
    /// another file is at that path now.
    #[must_use]
    pub fn path_at(&self, at: u64) -> Option<&Path> {
        let number = self.mapping(at)?;
        let opened = self.open_mapping(number);
        opened.map(|_| self.path_of(&self.files[number].path))
    }

    fn path_of<'a>(&'a self, path: &'a [u8]) -> &'a Path {
        match &self.program {
            Some((then, now)) if then == path => now,
            _ => Path::new(OsStr::from_bytes(path)),
        }
    }

    /// Opens the file of a mapping. Returns `None` if the first bytes of the file differ from those
    /// in the core file. The kernel writes the first page of each mapped file, with the build ID,
    /// to a core file.
    fn open_mapping(&self, number: usize) -> Option<&File> {
        let open = || {
            let path = &self.files[number].path;
            // Opening a file can have an effect by itself, as with a device, so only regular files
            // are opened. Without `O_NONBLOCK`, opening a pipe would wait for its other end.
            if !std::fs::metadata(self.path_of(path)).ok()?.is_file() {
                return None;
            }
            let mut options = File::options();
            options.read(true).custom_flags(libc::O_NONBLOCK);
            let file = options.open(self.path_of(path)).ok()?;
            if !file.metadata().ok()?.is_file() {
                return None;
            }
            let first = maps::image_start(&self.files, number)?;
            let mut then = [0; PAGE_SIZE as usize];
            let len = then.len().min((first.end - first.start) as usize);
            if !self
                .core
                .read_memory(&self.file, first.start, &mut then[..len])
            {
                return None;
            }
            let mut now = [0; PAGE_SIZE as usize];
            let read = read_up_to(&file, &mut now[..len])?;
            (now[..read] == then[..read] && read > 0).then_some(file)
        };
        self.open_files[number].get_or_init(open).as_ref()
    }
}

/// Fills `to` with the beginning of a file, as far as the file reaches. Returns the number of bytes
/// read.
fn read_up_to(file: &File, to: &mut [u8]) -> Option<usize> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(done)
}

/// Reads the program's memory from the core file. Read-only memory, which core files leave out, is
/// read from the mapped files.
impl Memory for &CoreMemory {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        if self.core.read_memory(&self.file, at, to) {
            return true;
        }
        let mut from_file = || {
            let number = self.mapping(at)?;
            let mapping = &self.files[number];
            if mapping.end - at < to.len() as u64 {
                return None;
            }
            let offset = mapping.offset.checked_add(at - mapping.start)?;
            self.open_mapping(number)?.read_exact_at(to, offset).ok()
        };
        from_file().is_some()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word))
}

fn thread(note: &[u8], layout: &ThreadNoteLayout) -> Option<ImageThread> {
    let tid = note.get(layout.tid_offset..)?.first_chunk::<4>()?;
    let registers = 0..layout.register_count;
    let registers = registers.map(|i| word(note, layout.registers_offset + 8 * i));
    let registers: Vec<u64> = registers.collect::<Option<_>>()?;
    Some(ImageThread {
        tid: u32::from_le_bytes(*tid),
        stack: registers[layout.stack_pointer],
        registers,
    })
}

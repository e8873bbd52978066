//! The books of a process that runs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use heapprof_memory::Memory;
use heapprof_profile::Profile;
use object::NativeEndian;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::io::Errno;

use crate::books::{self, Books};
use crate::error::Error;
use crate::maps::{self, Map};
use crate::profile::{Around, Code, profile};
use crate::read::Reader;

/// The memory of a process, as the kernel gives it to whoever may debug it. It is the memory that
/// the process had when it was opened: another program that it becomes has another one.
#[derive(Clone, Copy)]
struct Outside<'a>(&'a File);

impl Memory for Outside<'_> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        self.0.read_exact_at(to, at).is_ok()
    }
}

/// A process that is recorded.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    memory: File,
    /// Where its books are.
    books: u64,
}

/// A recorded process, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub pid: u32,
    /// What it is called.
    pub program: String,
    /// Mean bytes between samples; 1 if every allocation is counted.
    pub period: u64,
    /// Whether it is recorded now.
    pub is_running: bool,
    /// When the recording began, in nanoseconds since 1970.
    pub started: i64,
    /// Bytes in use.
    pub in_use: i64,
    /// The most bytes that were in use.
    pub peak: i64,
}

impl Process {
    /// Finds the books of a process.
    ///
    /// # Errors
    /// There may be no such process, it may not be this user's to read, or nothing is recorded of
    /// it.
    pub fn open(pid: u32) -> Result<Self, Error> {
        let of_kernel = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoProcess,
            io::ErrorKind::PermissionDenied => Error::NotAllowed,
            // It ends just now.
            _ if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Error::NoProcess,
            _ => Error::Io(error),
        };
        let memory = File::open(path(pid, "mem")).map_err(of_kernel)?;
        let maps = std::fs::read(path(pid, "maps")).map_err(of_kernel)?;
        if maps.is_empty() {
            // A kernel thread, or a process that has ended and was not waited for.
            return Err(Error::NoProcess);
        }
        let maps = maps::parse(&maps);
        let is_ours = |map: &&Map| has(&map.path, b"heapprof");
        let of_files = || {
            maps.iter()
                .filter(|map| map.is_writable && !map.path.is_empty())
        };
        let first = of_files().filter(is_ours);
        let pieces = first.chain(of_files().filter(|map| !is_ours(map)));
        let books = books::find(Outside(&memory), pieces.map(|map| map.start..map.end))?;
        let process = Self { pid, memory, books };
        process.check_owner()?;
        Ok(process)
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process still has the books, so that they can be read again.
    #[must_use]
    pub fn is_there(&self) -> bool {
        Books::read(&Reader::new(Outside(&self.memory)), self.books).is_ok()
    }

    /// A profile of this moment. The process goes on meanwhile.
    ///
    /// # Errors
    /// The process may end meanwhile, and its books may be damaged.
    pub fn snapshot(&self) -> Result<Profile, Error> {
        let reader = Reader::new(Outside(&self.memory));
        let books = Books::read(&reader, self.books)?;
        let thread_name = |tid: u32| {
            let name = std::fs::read(path(self.pid, &format!("task/{tid}/comm"))).ok()?;
            Some(crate::profile::text(name.strip_suffix(b"\n")?))
        };
        let around = Around {
            reason: "read from outside",
            program: program(self.pid),
            pid: self.pid.into(),
            resident: self.resident(),
            code: self.code(),
            duration: &|_, since| monotonic().saturating_sub(since),
            thread_name: &thread_name,
        };
        profile(&reader, &books, around)
    }

    /// What a list shows of it.
    ///
    /// # Errors
    /// Those of [`snapshot`](Self::snapshot).
    pub fn summary(&self) -> Result<Found, Error> {
        let reader = Reader::new(Outside(&self.memory));
        let books = Books::read(&reader, self.books)?;
        let period = reader.u64(books.period)?;
        let scaled = |n: i64| match period {
            1 => n,
            _ => crate::sums::rounded(n, heapprof_books::BYTE_BITS),
        };
        let heap = |offset: usize| reader.i64(books.heap.wrapping_add(offset as u64));
        Ok(Found {
            pid: self.pid,
            program: program(self.pid),
            period,
            is_running: reader.array::<1>(books.mode)? != [0],
            started: reader.i64(books.started)?,
            in_use: scaled(heap(heapprof_books::heap::IN_USE)?).max(0),
            peak: scaled(heap(heapprof_books::heap::PEAK)?).max(0),
        })
    }

    /// Refuses the books of another process, of which this one is a copy.
    fn check_owner(&self) -> Result<(), Error> {
        let reader = Reader::new(Outside(&self.memory));
        let books = Books::read(&reader, self.books)?;
        let owner = reader.u32(books.process)? as i32;
        let own = self.status("NSpid:").and_then(|ids| {
            let innermost = ids.split_whitespace().next_back()?;
            innermost.parse::<i32>().ok()
        });
        match own {
            Some(own) if own != owner => Err(Error::OfParent(owner)),
            _ => Ok(()),
        }
    }

    fn status(&self, field: &str) -> Option<String> {
        let status = std::fs::read_to_string(path(self.pid, "status")).ok()?;
        let mut lines = status.lines();
        lines.find_map(|line| {
            line.strip_prefix(field)
                .map(|value| value.trim().to_string())
        })
    }

    fn resident(&self) -> [u64; 2] {
        ["VmRSS:", "VmHWM:"].map(|field| {
            let value = self.status(field).unwrap_or_default();
            let kib: u64 = value.trim_end_matches("kB").trim().parse().unwrap_or(0);
            kib << 10
        })
    }

    /// The code that is mapped now.
    fn code(&self) -> Vec<Code> {
        let maps = std::fs::read(path(self.pid, "maps")).unwrap_or_default();
        code(&maps::parse(&maps), Outside(&self.memory))
    }
}

/// The recorded processes that this user may read, by their numbers.
///
/// # Errors
/// The list of processes may not be there.
pub fn recorded() -> io::Result<Vec<Process>> {
    let mut pids: Vec<u32> = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let own = std::process::id();
    pids.retain(|&pid| pid != own);
    Ok(pids
        .into_iter()
        .filter_map(|pid| Process::open(pid).ok())
        .collect())
}

/// The code among these mappings, with its build ids.
pub(crate) fn code(maps: &[Map], memory: impl Memory) -> Vec<Code> {
    let mut all: Vec<Code> = Vec::new();
    for map in maps.iter().filter(|map| map.is_code) {
        let is_file = map.path.starts_with(b"/") || map.path == b"[vdso]";
        if !is_file {
            continue;
        }
        let intact = map.path.strip_suffix(b" (deleted)");
        let path = intact.unwrap_or(&map.path);
        // Neighbours that continue each other in the file are one.
        if let Some(last) = all.last_mut()
            && last.end == map.start
            && last.path == path
            && last.offset.wrapping_add(last.end - last.start) == map.offset
        {
            last.end = map.end;
            continue;
        }
        // The image begins with the mapping of the file's first byte.
        let image = maps
            .iter()
            .rfind(|first| first.start <= map.start && first.offset == 0 && first.path == map.path);
        all.push(Code {
            start: map.start,
            end: map.end,
            offset: map.offset,
            path: path.to_vec(),
            is_deleted: intact.is_some(),
            build_id: image
                .and_then(|image| build_id(memory, image))
                .unwrap_or_default(),
            last: u32::MAX,
        });
    }
    all
}

/// The build id that an image has in the notes of its first page.
fn build_id(memory: impl Memory, image: &Map) -> Option<Vec<u8>> {
    let mut first = vec![0; 4096.min((image.end - image.start) as usize)];
    if !memory.read(image.start, &mut first) {
        return None;
    }
    let header = FileHeader64::<NativeEndian>::parse(&first[..]).ok()?;
    let endian = NativeEndian;
    for segment in header.program_headers(endian, &first[..]).ok()? {
        if segment.p_type(endian) != PT_NOTE {
            continue;
        }
        let Ok(Some(mut notes)) = segment.notes(endian, &first[..]) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.n_type(endian) == NT_GNU_BUILD_ID && note.name() == b"GNU" {
                let id = note.desc();
                return Some(id[..id.len().min(64)].to_vec());
            }
        }
    }
    None
}

fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// What a process is called: the name of the file that runs.
fn program(pid: u32) -> String {
    let exe = std::fs::read_link(path(pid, "exe")).unwrap_or_default();
    let name = exe
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.map(|name| name.trim_end_matches(" (deleted)").to_string());
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_string())
}

fn monotonic() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

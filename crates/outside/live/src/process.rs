//! Reads the ledger of a running process.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use heapprof_abi::RecordingEpoch;
use heapprof_memory::Memory;
use heapprof_process::maps::{self, ProcessMapping};
use heapprof_process::{StatusCounters, status};
use heapprof_profile::recording::RecordedMapping;
use heapprof_profile::{Profile, recording_texts};
use object::NativeEndian;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::io::Errno;

use crate::bounded_reads::{BoundedMemoryReader, u64_at};
use crate::error::LiveError;
use crate::ledger::{self, LiveLedger};
use crate::profile::{RecordingContext, profile};
use crate::ring::LiveLogReader;
use crate::writer::MAX_FRAMES;

/// Maximum number of attempts to read a process. An attempt fails if the recording restarts
/// meanwhile.
const MAX_READ_ATTEMPTS: usize = 4;

/// The resident memory of a process. The kernel allows reading it to readers that may debug the
/// process. If the process becomes another program, the new program's memory is not read.
///
/// Only pages that the process has touched are read, and all others are zero. A page that is not
/// resident would have to come from a file system or a page fault handler. These may never answer,
/// and the handler may even be the process itself.
#[derive(Debug)]
struct ResidentPages {
    memory: File,
    /// The kernel's `pagemap` file, with 64 bits for each page.
    map: File,
    page: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct ResidentMemory<'a>(&'a ResidentPages);

/// Bits of a `pagemap` entry: the page is in memory, or swapped out.
const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
/// Maximum number of `pagemap` entries that are read at a time.
const MAX_PAGES_PER_READ: usize = 512;

impl ResidentPages {
    /// Calls `run` with each run of pages in `at..at + len` that are all present or all missing.
    /// The arguments are whether the pages are present, the offset of the run from `at`, and its
    /// length. Returns false if the process is gone, or as soon as `run` returns false.
    fn runs(&self, at: u64, len: usize, mut run: impl FnMut(bool, usize, usize) -> bool) -> bool {
        let mut done = 0;
        let mut words = [0; MAX_PAGES_PER_READ * 8];
        while done < len {
            let first = (at + done as u64) / self.page;
            let last = (at + len as u64 - 1) / self.page;
            let count = ((last - first + 1) as usize).min(MAX_PAGES_PER_READ);
            let words = &mut words[..count * 8];
            if self.map.read_exact_at(words, first * 8).is_err() {
                return false;
            }
            let is_there = |i: usize| u64_at(words, 8 * i) & PRESENT_OR_SWAPPED != 0;
            let mut i = 0;
            while i < count {
                let same = (i..count)
                    .take_while(|&k| is_there(k) == is_there(i))
                    .count();
                let end = (first + (i + same) as u64) * self.page;
                let end = ((end - at) as usize).min(len);
                if !run(is_there(i), done, end - done) {
                    return false;
                }
                done = end;
                i += same;
            }
        }
        true
    }
}

impl Memory for ResidentMemory<'_> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        let Self(pages) = self;
        // Higher addresses belong to the kernel.
        let is_ours = at
            .checked_add(to.len() as u64)
            .is_some_and(|end| end < 1 << 62);
        is_ours
            && pages.runs(at, to.len(), |is_there, from, len| {
                let to = &mut to[from..from + len];
                if !is_there {
                    to.fill(0);
                    return true;
                }
                pages.memory.read_exact_at(to, at + from as u64).is_ok()
            })
    }
}

/// A process that is recorded.
#[derive(Debug)]
pub struct LiveProcess {
    pid: u32,
    memory: ResidentPages,
    /// Address of the ledger.
    ledger: u64,
}

/// The summary of a recorded process for a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveProcessSummary {
    /// The number of the process.
    pub pid: u32,
    /// The program's name.
    pub program: String,
    /// Mean bytes between samples; 1 if every allocation is counted.
    pub period: u64,
    /// Whether the process is recorded now.
    pub is_running: bool,
    /// When the recording began, in nanoseconds since 1970.
    pub started: i64,
    /// Bytes in use at the moment.
    pub in_use: i64,
    /// The most bytes that were in use.
    pub peak: i64,
}

impl LiveProcess {
    /// Finds the ledger of a process.
    ///
    /// # Errors
    /// There may be no such process, this user may not read it, or it is not recorded.
    pub fn open(pid: u32) -> Result<Self, LiveError> {
        let of_kernel = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => LiveError::NoProcess,
            io::ErrorKind::PermissionDenied => LiveError::NotAllowed,
            // The process is just ending.
            _ if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => LiveError::NoProcess,
            _ => LiveError::Io(error),
        };
        let memory = ResidentPages {
            memory: File::open(path(pid, "mem")).map_err(of_kernel)?,
            map: File::open(path(pid, "pagemap")).map_err(of_kernel)?,
            page: rustix::param::page_size() as u64,
        };
        let maps = std::fs::read(path(pid, "maps")).map_err(of_kernel)?;
        if maps.is_empty() {
            // A kernel thread, or a process that has ended and was not waited for.
            return Err(LiveError::NoProcess);
        }
        let maps = maps::parse(&maps);
        let is_ours = |map: &&ProcessMapping| contains_bytes(&map.path, b"heapprof");
        let is_data =
            |map: &&ProcessMapping| map.is_writable && map.is_private && map.path.starts_with(b"/");
        let of_files = || maps.iter().filter(is_data);
        let first = of_files().filter(is_ours);
        let pieces = first.chain(of_files().filter(|map| !is_ours(map)));
        let ledger = ledger::find(
            ResidentMemory(&memory),
            pieces.map(|map| map.start..map.end),
        )?;
        let process = Self {
            pid,
            memory,
            ledger,
        };
        process.check_owner()?;
        Ok(process)
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns a reader of the process's memory. Pages that the process has not touched read as
    /// zeros.
    pub fn memory(&self) -> impl Memory {
        ResidentMemory(&self.memory)
    }

    /// Whether the process still has the ledger in its memory.
    #[must_use]
    pub fn is_there(&self) -> bool {
        LiveLedger::read(
            &BoundedMemoryReader::new(ResidentMemory(&self.memory)),
            self.ledger,
        )
        .is_ok()
    }

    /// Makes a profile of the present moment. The process goes on meanwhile.
    ///
    /// # Errors
    /// The process may end meanwhile, and its ledger may be damaged.
    pub fn snapshot(&self) -> Result<Profile, LiveError> {
        let thread_name = |tid: u32| {
            let name = std::fs::read(path(self.pid, &format!("task/{tid}/comm"))).ok()?;
            Some(recording_texts::thread_name(name.strip_suffix(b"\n")?))
        };
        let around = RecordingContext {
            reason: "read from outside",
            is_last: false,
            program: self.program(),
            pid: self.pid.into(),
            wrappers: "",
            resident: self.resident(),
            code: self.code(),
            duration: &|_, since| monotonic().saturating_sub(since),
            max_frames: MAX_FRAMES,
            thread_name: &thread_name,
        };
        if heapprof_process::is_shared_ledger_swapped(self.pid) {
            return Err(LiveError::LedgerSwapped);
        }
        for _ in 0..MAX_READ_ATTEMPTS {
            let reader = BoundedMemoryReader::new(ResidentMemory(&self.memory));
            let ledger = LiveLedger::read(&reader, self.ledger)?;
            let which = || -> Result<_, LiveError> {
                let epoch = RecordingEpoch::from_u64(reader.u64(ledger.epoch)?);
                Ok((epoch, reader.u64(ledger.period)?))
            };
            let before = which()?;
            let made = profile(&reader, &ledger, &around);
            // A profile that mixes two recordings is worthless.
            if which()? == before {
                return made;
            }
        }
        Err(LiveError::RecordingRestarted)
    }

    /// Makes a summary of the process for a list.
    ///
    /// # Errors
    /// The process may end meanwhile, and its ledger may be damaged.
    pub fn summary(&self) -> Result<LiveProcessSummary, LiveError> {
        self.with_ledger(|reader, ledger| summary(reader, ledger, self.pid, self.program()))
    }

    /// Runs `work` with a reader of the process's memory, and with its ledger.
    pub(crate) fn with_ledger<'s, R, F>(&'s self, work: F) -> Result<R, LiveError>
    where
        F: FnOnce(&BoundedMemoryReader<ResidentMemory<'s>>, &LiveLedger) -> Result<R, LiveError>,
    {
        let reader = BoundedMemoryReader::new(ResidentMemory(&self.memory));
        let ledger = LiveLedger::read(&reader, self.ledger)?;
        work(&reader, &ledger)
    }

    /// Opens the log of the recording, from its first event on; `None` if there is no log.
    pub(crate) fn log(&self) -> Result<Option<LiveLogReader>, LiveError> {
        let at = self.with_ledger(|_, ledger| Ok(ledger.log))?;
        let log = (at != 0).then(|| LiveLogReader::new(self.memory.memory.try_clone()?, at));
        log.transpose()
    }

    /// Fails if the ledger belongs to an ancestor from which the process was forked.
    fn check_owner(&self) -> Result<(), LiveError> {
        let owner = self.with_ledger(|reader, ledger| reader.u32(ledger.process))? as i32;
        let [ids] = status(self.pid, ["NSpid:"]);
        let own = ids.split_whitespace().next_back();
        let own = own.and_then(|innermost| innermost.parse::<i32>().ok());
        match own {
            Some(own) if own != owner => Err(LiveError::ParentLedger(owner)),
            _ => Ok(()),
        }
    }

    /// Returns the program's name, as the collector determines it: from the executed path if that
    /// path leads to the running file, and otherwise from the path of the running file. A script's
    /// path does not lead to the running file, because that file is the interpreter.
    #[must_use]
    pub fn program(&self) -> String {
        let exe = path(self.pid, "exe");
        let running = std::fs::read_link(&exe).unwrap_or_default();
        let last = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.trim_end_matches(" (deleted)").to_string()
        };
        let same = |executed: &Path| {
            let below = if executed.is_absolute() {
                "root"
            } else {
                "cwd"
            };
            let place = path(self.pid, below);
            let relative = executed.strip_prefix("/").unwrap_or(executed);
            let stat = |path: &Path| std::fs::metadata(path).ok();
            let (found, wanted) = (stat(&place.join(relative)), stat(&exe));
            let id = |of: std::fs::Metadata| (of.dev(), of.ino());
            found
                .map(id)
                .is_some_and(|found| wanted.map(id) == Some(found))
        };
        let name = match self.executed_path().filter(|executed| same(executed)) {
            Some(executed) => last(&executed),
            None => last(&running),
        };
        match name.is_empty() {
            true => "unknown".to_string(),
            false => name,
        }
    }

    /// Returns the path that was executed, from the auxiliary vector.
    fn executed_path(&self) -> Option<PathBuf> {
        const AT_EXECFN: u64 = 31;
        const MAX_PATH_LEN: usize = 4096;
        let auxiliary = std::fs::read(path(self.pid, "auxv")).ok()?;
        let mut pairs = auxiliary.as_chunks::<16>().0.iter();
        let pair = pairs.find(|pair| u64_at(*pair, 0) == AT_EXECFN)?;
        let mut at = u64_at(pair, 8);
        let mut text = Vec::new();
        // The path is at the very end of the stack, and nothing behind the stack may be read.
        while text.len() < MAX_PATH_LEN && !text.contains(&0) {
            let left = self.memory.page - at % self.memory.page;
            let mut bytes = vec![0; left as usize];
            if !ResidentMemory(&self.memory).read(at, &mut bytes) {
                return None;
            }
            text.extend(bytes);
            at += left;
        }
        let end = text.iter().position(|&byte| byte == 0);
        text.truncate(end.unwrap_or(MAX_PATH_LEN).min(MAX_PATH_LEN));
        // The path says no name if a program executes its own file anew.
        let is_own = text.starts_with(b"/proc/") || text.ends_with(b"self/exe");
        let is_open = text.starts_with(b"/dev/fd/") || text.is_empty();
        (!is_own && !is_open).then(|| PathBuf::from(OsString::from_vec(text)))
    }

    fn resident(&self) -> [u64; 2] {
        let counters = StatusCounters::from_pid(self.pid).ok();
        ["VmRSS", "VmHWM"].map(|name| counters.as_ref().and_then(|c| c.get(name)).unwrap_or(0))
    }

    /// Returns the mappings of code that the process has now.
    pub(crate) fn code(&self) -> Vec<RecordedMapping<'static>> {
        let maps = std::fs::read(path(self.pid, "maps")).unwrap_or_default();
        code(&maps::parse(&maps), ResidentMemory(&self.memory))
    }
}

/// Makes a summary of a recorded process for a list.
pub(crate) fn summary<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    pid: u32,
    program: String,
) -> Result<LiveProcessSummary, LiveError> {
    let period = reader.u64(ledger.period)?;
    let scaled = |n: i64| match period {
        1 => n,
        _ => recording_texts::rounded(n, heapprof_abi::BYTE_BITS),
    };
    let heap = |offset: usize| reader.i64(ledger.heap.wrapping_add(offset as u64));
    Ok(LiveProcessSummary {
        pid,
        program,
        period,
        is_running: reader.array::<1>(ledger.mode)? != [0],
        started: reader.i64(ledger.started)?,
        in_use: scaled(heap(heapprof_abi::heap::IN_USE)?).max(0),
        peak: scaled(heap(heapprof_abi::heap::PEAK)?).max(0),
    })
}

/// Finds the recorded processes that this user may read, in order of their numbers.
///
/// # Errors
/// The list of processes may be unreadable.
pub fn recorded_processes() -> io::Result<Vec<LiveProcess>> {
    let own = std::process::id();
    let pids = heapprof_process::all_processes()?.into_iter();
    Ok(pids
        .filter(|&pid| pid != own)
        .filter_map(|pid| LiveProcess::open(pid).ok())
        .collect())
}

/// Returns the mappings of code among `maps`, with the build IDs of their files.
pub(crate) fn code(maps: &[ProcessMapping], memory: impl Memory) -> Vec<RecordedMapping<'static>> {
    let mut all: Vec<RecordedMapping<'static>> = Vec::new();
    // For each file, the last mapping so far of the file's first byte.
    let mut images: HashMap<&[u8], &ProcessMapping> = HashMap::new();
    for map in maps {
        if map.offset == 0 {
            images.insert(&map.path, map);
        }
        if !map.is_code {
            continue;
        }
        let is_file = map.path.starts_with(b"/") || map.path == b"[vdso]";
        if !is_file {
            continue;
        }
        let intact = map.path.strip_suffix(b" (deleted)");
        let path = intact.unwrap_or(&map.path);
        // Adjacent mappings that continue each other in the file are joined.
        if let Some(last) = all.last_mut()
            && last.end == map.start
            && *last.path == *path
            && last.offset.wrapping_add(last.end - last.start) == map.offset
        {
            last.end = map.end;
            continue;
        }
        let image = images.get(&map.path[..]);
        all.push(RecordedMapping {
            start: map.start,
            end: map.end,
            offset: map.offset,
            path: path.to_vec().into(),
            is_deleted: intact.is_some(),
            build_id: image
                .and_then(|image| build_id(memory, image))
                .unwrap_or_default()
                .into(),
            last: RecordedMapping::STILL_MAPPED,
        });
    }
    all
}

/// Reads the build ID in the notes of an image's first page.
fn build_id(memory: impl Memory, image: &ProcessMapping) -> Option<Vec<u8>> {
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

pub(crate) fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

pub(crate) fn monotonic() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}

fn contains_bytes(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

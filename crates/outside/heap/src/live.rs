//! Copies the memory of a running process. All of its threads are suspended while the memory that
//! it can write to is copied.
//!
//! Buffers for the copy are allocated before, so that the process waits only for the copying
//! itself. If heapprof dies meanwhile, the kernel resumes the threads.
#![allow(unsafe_code)] // The kernel copies from one process's memory to another's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use heapprof_attach::SuspendedThread;
use heapprof_memory::Memory;
use heapprof_process::maps::{self, ProcessMapping};
use heapprof_process::{
    PAGE_SIZE, PageMap, SmapsMapping, areas, regions as regions_of, status, thread_state,
};

use crate::error::HeapWalkError;
use crate::image::{ImageRegion, ImageThread, ProcessImage};

/// Maximum number of bytes that are copied.
const MAX_COPIED_BYTES: u64 = 1 << 40;
/// Maximum number of times that the list of threads is read until all of them are suspended.
const MAX_STOP_ROUNDS: usize = 16;
/// Maximum number of pieces that one call copies.
const MAX_PIECES_PER_CALL: usize = 512;
/// Maximum number of bytes that one call copies.
const MAX_BYTES_PER_CALL: usize = 4 << 20;
/// Minimum size in bytes of pieces that get a larger buffer, because they may grow before they are
/// copied.
const MIN_LARGE_PIECE: u64 = 1 << 20;
/// Maximum number of threads that copy. More threads would only wait for the memory.
const MAX_COPY_THREADS: usize = 4;

/// A copy of a process's memory, and the costs of making it.
#[derive(Debug)]
pub struct ImageCapture {
    /// The copy of the process's memory.
    pub image: ProcessImage,
    /// How long the process was suspended.
    pub suspended: Duration,
    /// Number of bytes that were copied.
    pub copied: u64,
    /// The memory of the process as it is now.
    pub memory: LiveMemory,
}

/// Reads the present memory of a process, which continues to run. Memory that the process can't
/// write to is the same as at the time of the copy.
#[derive(Debug)]
pub struct LiveMemory(File);

impl Memory for &LiveMemory {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        self.0.read_exact_at(to, at).is_ok()
    }
}

/// Copies the memory of a process.
///
/// # Errors
/// The process may be gone, or belong to another user. Another process may trace it.
pub fn capture(pid: u32) -> Result<ImageCapture, HeapWalkError> {
    capture_with(pid, || ()).map(|(captured, ())| captured)
}

/// Copies the memory of a process, and calls `observe` while the process is suspended. Returns the
/// copy and the result of `observe`, which are of the same moment.
///
/// # Errors
/// The process may be gone, or belong to another user. Another process may trace it.
pub fn capture_with<T>(
    pid: u32,
    observe: impl FnOnce() -> T,
) -> Result<(ImageCapture, T), HeapWalkError> {
    let [tracer] = status(pid, ["TracerPid:"]);
    if let Some(tracer) = tracer.parse().ok().filter(|tracer| *tracer != 0) {
        return Err(HeapWalkError::Traced(tracer));
    }
    // The thread through which the memory is read: a process goes on when its first thread has
    // ended.
    let whose = living_thread(pid)?;
    let memory = File::open(format!("/proc/{whose}/mem")).map_err(from_kernel_error)?;
    let pages = PageMap::open(whose).map_err(from_kernel_error)?;
    // Makes room for the pages that exist now. Pages that appear until the process is suspended get
    // their room later.
    let mut room = PieceRoom::default();
    for run in plan(whose, &pages)?.1 {
        room.make(run.end - run.start)?;
    }
    let marked = marked_ranges(whose).map_err(from_kernel_error)?;
    let began = Instant::now();
    let held = suspend_all(pid, &memory)?;
    let threads = held
        .iter()
        .map(|(&tid, held)| ImageThread {
            tid,
            registers: held.registers().to_vec(),
            stack: held.stack(),
        })
        .collect();
    let (all, mut runs) = plan(whose, &pages)?;
    let is_watched = |run: &Range<u64>| is_in(&marked.watched, run.start);
    let left_out = runs.iter().filter(|run| is_watched(run));
    let left_out: u64 = left_out.map(|run| run.end - run.start).sum();
    runs.retain(|run| !is_watched(run));
    let pieces = runs.iter().map(|run| {
        let piece = room.take(run.end - run.start)?;
        Ok((run.start, piece))
    });
    let mut pieces: Vec<MemoryPiece> = pieces.collect::<Result<_, HeapWalkError>>()?;
    // The copy may bring swapped pages back, so the observer comes first.
    let observed = observe();
    let is_shared = |at: u64| is_in(&marked.shared, at);
    let copied = copy(whose, &memory, &mut pieces, is_shared).map_err(from_kernel_error);
    drop(held);
    let held = began.elapsed();
    drop(room);
    let missing = copied? + left_out;
    let bytes = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let mut image = ProcessImage::new(regions(&all, &marked.own, pieces), threads, missing);
    let of_files = all
        .iter()
        .filter(|map| !map.is_writable && map.path.starts_with(b"/"));
    image.files = of_files.cloned().collect();
    image.auxiliary = std::fs::read(format!("/proc/{whose}/auxv")).unwrap_or_default();
    image.mapped = all
        .iter()
        .filter(|map| may_hold_pointers(map))
        .map(ProcessMapping::range)
        .collect();
    let captured = ImageCapture {
        image,
        suspended: held,
        copied: bytes,
        memory: LiveMemory(memory),
    };
    Ok((captured, observed))
}

/// Returns a thread through which a process's memory can be read: the first thread, or another one
/// if the first has ended.
fn living_thread(pid: u32) -> Result<u32, HeapWalkError> {
    let has_memory = |tid| std::fs::read(format!("/proc/{tid}/maps")).map(|maps| !maps.is_empty());
    // A reader without permission gets an error here, which differs from the empty list of an ended
    // thread.
    if has_memory(pid).map_err(from_kernel_error)? {
        return Ok(pid);
    }
    let found = threads(pid)?.find(|&tid| has_memory(tid).unwrap_or(false));
    found.ok_or(HeapWalkError::NoProcess)
}

/// Returns the numbers of a process's threads.
fn threads(pid: u32) -> Result<impl Iterator<Item = u32>, HeapWalkError> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.map_err(from_kernel_error)?.flatten();
    Ok(threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Translates an error of the kernel.
fn from_kernel_error(error: io::Error) -> HeapWalkError {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::NotFound, _) | (_, Some(libc::ESRCH)) => HeapWalkError::NoProcess,
        (ErrorKind::PermissionDenied, _) | (_, Some(libc::EPERM)) => HeapWalkError::NotAllowed,
        _ => HeapWalkError::Io(error),
    }
}

/// Ranges of a process's memory that need care, each list in order of its addresses.
struct MarkedRanges {
    /// heapprof's own memory in a recorded process.
    own: AddressRanges,
    /// Memory whose pages the process itself provides (userfaultfd). Reading it would wait for a
    /// suspended thread.
    watched: AddressRanges,
    /// Private memory with pages that other processes have, too, such as a parent.
    /// `process_vm_readv` pins pages, and the kernel gives a process copies of its own of such
    /// pages before they are pinned.
    shared: AddressRanges,
}

/// Finds the ranges of a process's memory that need care.
fn marked_ranges(pid: u32) -> io::Result<MarkedRanges> {
    let text = std::fs::read(format!("/proc/{pid}/smaps"))?;
    let text = String::from_utf8_lossy(&text);
    let areas = areas(&text);
    let own = regions_of(&areas).filter(|region| region.is_own);
    let own = own.map(|region| region.area.start..region.area.end);
    let range = |area: &SmapsMapping<'_>| area.start..area.end;
    let is_watched = |area: &&SmapsMapping<'_>| area.has_flag("um") || area.has_flag("uw");
    let is_shared = |area: &&SmapsMapping<'_>| {
        area.rights.ends_with('p') && area.usage.shared_clean + area.usage.shared_dirty > 0
    };
    Ok(MarkedRanges {
        own: own.collect(),
        watched: areas.iter().filter(is_watched).map(range).collect(),
        shared: areas.iter().filter(is_shared).map(range).collect(),
    })
}

/// Whether an address is in one of the ranges, which are in order of their addresses.
fn is_in(ranges: &AddressRanges, at: u64) -> bool {
    let next = ranges.partition_point(|one| one.end <= at);
    ranges.get(next).is_some_and(|one| one.contains(&at))
}

type AddressRanges = Vec<Range<u64>>;

/// A piece of memory: its address, and its bytes.
type MemoryPiece = (u64, Vec<u8>);

/// Returns all mappings of a process, and the runs of present pages in those mappings that may hold
/// pointers. Pages that were never touched are not present, and have no content.
fn plan(
    pid: u32,
    pages: &PageMap,
) -> Result<(Vec<ProcessMapping>, Vec<Range<u64>>), HeapWalkError> {
    let maps = maps::parse(&std::fs::read(format!("/proc/{pid}/maps")).map_err(from_kernel_error)?);
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut bytes = 0;
    for map in maps.iter().filter(|map| may_hold_pointers(map)) {
        let mut in_map = Vec::new();
        pages
            .each_run(map.range(), |run| push(&mut in_map, run))
            .map_err(from_kernel_error)?;
        bytes += in_map.iter().map(|run| run.end - run.start).sum::<u64>();
        if bytes > MAX_COPIED_BYTES {
            return Err(HeapWalkError::TooLarge(MAX_COPIED_BYTES));
        }
        runs.append(&mut in_map);
    }
    Ok((maps, runs))
}

fn push(runs: &mut Vec<Range<u64>>, run: Range<u64>) {
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

/// Whether pointers to the heap may lie in a mapping. The memory of devices is left out, except for
/// shared memory without a file. A private read-only mapping is included, because the program may
/// have made a part of the heap read-only.
fn may_hold_pointers(map: &ProcessMapping) -> bool {
    let is_memory = ["/dev/shm/", "/dev/zero"];
    let is_memory = is_memory
        .iter()
        .any(|path| map.path.starts_with(path.as_bytes()));
    let is_device = map.path.starts_with(b"/dev/") && !is_memory;
    let is_of_heap = map.is_private && (map.path.is_empty() || map.path == b"[heap]");
    (map.is_writable || is_of_heap) && !is_device && !map.path.starts_with(b"[vvar")
}

/// Buffers for the pieces of memory that are copied, by length. The kernel has already allocated
/// their pages.
#[derive(Default)]
struct PieceRoom(BTreeMap<u64, Vec<Vec<u8>>>);

impl PieceRoom {
    /// Allocates a buffer for a piece. The buffer of a large piece is larger, because the piece may
    /// grow before it is copied.
    fn make(&mut self, len: u64) -> Result<(), HeapWalkError> {
        let more = if len < MIN_LARGE_PIECE { 0 } else { len / 8 };
        let bytes = new(len + more)?;
        self.0.entry(len + more).or_default().push(bytes);
        Ok(())
    }

    /// Returns a buffer of `len` bytes: a prepared one that is large enough, or a new one.
    fn take(&mut self, len: u64) -> Result<Vec<u8>, HeapWalkError> {
        let found = self.0.range_mut(len..).next();
        let found = found.and_then(|(&of, all)| Some((of, all.pop()?, all.is_empty())));
        let mut bytes = match found {
            Some((of, bytes, is_last)) => {
                if is_last {
                    self.0.remove(&of);
                }
                bytes
            }
            None => new(len)?,
        };
        bytes.truncate(len as usize);
        Ok(bytes)
    }
}

/// Allocates `len` bytes, and makes the kernel provide their pages now.
fn new(len: u64) -> Result<Vec<u8>, HeapWalkError> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(len as usize)
        .map_err(|_| HeapWalkError::NoMemory(len))?;
    bytes.resize(len as usize, 0);
    // Each page is written to, so that it exists.
    bytes
        .chunks_mut(PAGE_SIZE as usize)
        .for_each(|page| page[0] = 1);
    Ok(bytes)
}

/// Suspends all threads of a process, including threads that start meanwhile.
fn suspend_all(pid: u32, memory: &File) -> Result<BTreeMap<u32, SuspendedThread>, HeapWalkError> {
    let mut held = BTreeMap::new();
    for _ in 0..MAX_STOP_ROUNDS {
        let mut is_complete = true;
        for tid in threads(pid)? {
            let has_ended = || matches!(thread_state(pid, tid), None | Some('Z' | 'X'));
            if held.contains_key(&tid) || has_ended() {
                continue;
            }
            is_complete = false;
            match SuspendedThread::new(pid, tid, memory) {
                Ok(Some(one)) => drop(held.insert(tid, one)),
                Ok(None) => return Err(HeapWalkError::Busy(tid)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                // A thread that is ending can't be suspended.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && has_ended() => {}
                Err(error) => return Err(from_kernel_error(error)),
            }
        }
        match (is_complete, held.is_empty()) {
            (true, true) => return Err(HeapWalkError::NoProcess),
            (true, false) => return Ok(held),
            (false, _) => {}
        }
    }
    // The process begins threads faster than they can be suspended.
    Err(HeapWalkError::Busy(pid))
}

/// A part of a memory piece that one call copies: its address, and a buffer for its bytes.
type PiecePart<'a> = (u64, &'a mut [u8]);

/// Fills the pieces with the memory of a process. Returns the number of bytes that could not be
/// read; they are zero. There is a copying thread for each processor, up to [`MAX_COPY_THREADS`]:
/// the suspended process does not need the processors. Pieces for whose address `is_shared` is true
/// are read through `memory`, which pins no pages.
fn copy(
    pid: u32,
    memory: &File,
    pieces: &mut [MemoryPiece],
    is_shared: impl Fn(u64) -> bool,
) -> io::Result<u64> {
    let mut calls: Vec<Vec<PiecePart<'_>>> = Vec::new();
    let mut shared: Vec<PiecePart<'_>> = Vec::new();
    let (mut call, mut bytes) = (Vec::new(), 0);
    for (start, piece) in pieces {
        if is_shared(*start) {
            shared.push((*start, piece));
            continue;
        }
        let parts = piece.chunks_mut(MAX_BYTES_PER_CALL);
        for (at, part) in (*start..).step_by(MAX_BYTES_PER_CALL).zip(parts) {
            if call.len() == MAX_PIECES_PER_CALL || bytes + part.len() > MAX_BYTES_PER_CALL {
                calls.push(std::mem::take(&mut call));
                bytes = 0;
            }
            bytes += part.len();
            call.push((at, part));
        }
    }
    calls.push(call);
    let of_shared = copy_through(memory, shared);
    let count = thread::available_parallelism().map_or(1, NonZero::get);
    let count = count.min(MAX_COPY_THREADS).min(calls.len());
    let calls = Mutex::new(calls.into_iter());
    let work = || -> io::Result<u64> {
        let mut missing = 0;
        loop {
            let next = calls.lock().ok().and_then(|mut calls| calls.next());
            let Some(mut call) = next else {
                return Ok(missing);
            };
            missing += copy_some(pid, &mut call)?;
        }
    };
    thread::scope(|scope| {
        // A thread that can't be started is no error: this one does the work, too.
        let others =
            (1..count).filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok());
        let others: Vec<_> = others.collect();
        let mut missing = of_shared + work()?;
        for other in others {
            let found = other.join();
            missing += found.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(missing)
    })
}

/// Fills some parts through a process's memory file, and returns the number of bytes that could not
/// be read.
fn copy_through(memory: &File, parts: Vec<PiecePart<'_>>) -> u64 {
    let mut missing = 0;
    for (start, bytes) in parts {
        let chunks = bytes.chunks_mut(MAX_BYTES_PER_CALL);
        for (at, chunk) in (start..).step_by(MAX_BYTES_PER_CALL).zip(chunks) {
            if memory.read_exact_at(chunk, at).is_ok() {
                continue;
            }
            let pages = chunk.chunks_mut(PAGE_SIZE as usize);
            for (at, page) in (at..).step_by(PAGE_SIZE as usize).zip(pages) {
                if memory.read_exact_at(page, at).is_err() {
                    page.fill(0);
                    missing += page.len() as u64;
                }
            }
        }
    }
    missing
}

/// Fills some parts, and returns the number of bytes that could not be read.
fn copy_some(pid: u32, parts: &mut [PiecePart<'_>]) -> io::Result<u64> {
    let wanted: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
    if read_all(pid, parts)? == wanted {
        return Ok(0);
    }
    // At least one part can't be read, so each is read on its own, page by page.
    let mut missing = 0;
    for (start, bytes) in parts {
        let pages = bytes.chunks_mut(PAGE_SIZE as usize);
        for (at, page) in (*start..).step_by(PAGE_SIZE as usize).zip(pages) {
            let len = page.len();
            if read_all(pid, &mut [(at, &mut *page)]).unwrap_or(0) != len {
                page.fill(0);
                missing += len as u64;
            }
        }
    }
    Ok(missing)
}

fn read_all(pid: u32, parts: &mut [PiecePart<'_>]) -> io::Result<usize> {
    let remote: Vec<libc::iovec> = parts
        .iter()
        .map(|(start, bytes)| libc::iovec {
            iov_base: *start as *mut libc::c_void,
            iov_len: bytes.len(),
        })
        .collect();
    let local: Vec<libc::iovec> = parts
        .iter_mut()
        .map(|(_, bytes)| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        })
        .collect();
    read(pid, &local, &remote)
}

/// Copies memory of another process, the ranges `remote`, to the ranges `local` of this process.
fn read(pid: u32, local: &[libc::iovec], remote: &[libc::iovec]) -> io::Result<usize> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| ErrorKind::NotFound)?;
    // SAFETY: callers make `local` of slices to which they have exclusive access, and that live
    // through the call. The kernel checks the addresses in the other process.
    let got = unsafe {
        libc::process_vm_readv(
            pid,
            local.as_ptr(),
            local.len() as libc::c_ulong,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    match usize::try_from(got) {
        Ok(got) => Ok(got),
        Err(_) => {
            let error = io::Error::last_os_error();
            // A piece that does not exist is no error of the whole.
            match error.raw_os_error() {
                Some(libc::EFAULT) => Ok(0),
                _ => Err(error),
            }
        }
    }
}

/// Makes the regions of an image from the pieces, with the properties of their mappings.
fn regions(
    maps: &[ProcessMapping],
    own: &[Range<u64>],
    pieces: Vec<MemoryPiece>,
) -> Vec<ImageRegion> {
    let region = |(start, bytes): MemoryPiece| {
        let next = maps.partition_point(|map| map.start <= start);
        let map = next.checked_sub(1).map(|i| &maps[i]);
        ImageRegion {
            start,
            bytes,
            name: map.map_or_else(String::new, |map| {
                String::from_utf8_lossy(&map.path).into_owned()
            }),
            is_writable: map.is_none_or(|map| map.is_writable),
            is_shared: map.is_some_and(|map| !map.is_private),
            is_own: own.iter().any(|range| range.contains(&start)),
        }
    };
    pieces.into_iter().map(region).collect()
}

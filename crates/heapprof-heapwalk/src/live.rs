//! The memory of a process that runs: all of its threads are held, what it can write to is copied,
//! and it goes on.
//!
//! Room for the copy is made before, so that only the copying itself keeps the process waiting. If
//! we die meanwhile, the kernel lets the threads go.
#![allow(unsafe_code)] // The kernel copies from one process's memory to another's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::time::{Duration, Instant};

use heapprof_attach::Held;
use heapprof_process::maps::{self, Map};
use heapprof_process::{PAGE, PageMap, areas, regions as regions_of, status};

use crate::error::Error;
use crate::image::{Image, Region, Thread};

/// More memory than this is not copied.
const MOST: u64 = 1 << 40;
/// How often the list of threads is read until all in it are held.
const ROUNDS: usize = 16;
/// How many pieces are copied by one call.
const AT_ONCE: usize = 512;

/// A copy, and what it took.
#[derive(Debug)]
pub struct Capture {
    /// The memory.
    pub image: Image,
    /// How long the process was held.
    pub held: Duration,
    /// How many bytes were copied.
    pub copied: u64,
}

/// Copies the memory of a process.
///
/// # Errors
/// The process may be gone, or not this user's. Something else may trace it.
pub fn capture(pid: u32) -> Result<Capture, Error> {
    let of_kernel = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => Error::NoProcess,
        ErrorKind::PermissionDenied => Error::NotAllowed,
        _ if error.raw_os_error() == Some(libc::ESRCH) => Error::NoProcess,
        _ if error.raw_os_error() == Some(libc::EPERM) => Error::NotAllowed,
        _ => Error::Io(error),
    };
    let [tracer] = status(pid, ["TracerPid:"]);
    if let Some(tracer) = tracer.parse().ok().filter(|tracer| *tracer != 0) {
        return Err(Error::Traced(tracer));
    }
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(of_kernel)?;
    let pages = PageMap::open(pid).map_err(of_kernel)?;
    // Room for what there is now. What comes until the process is held gets its room then.
    let mut room = Room::default();
    for run in plan(pid, &pages).map_err(of_kernel)?.1 {
        room.make(run.end - run.start);
    }
    let own = own(pid).map_err(of_kernel)?;
    let began = Instant::now();
    let held = hold_all(pid, &memory)?;
    let threads = held
        .iter()
        .map(|(&tid, held)| Thread {
            tid,
            registers: held.registers().to_vec(),
            stack: held.stack(),
        })
        .collect();
    let (all, runs) = plan(pid, &pages).map_err(of_kernel)?;
    let pieces: Vec<Piece> = runs
        .iter()
        .map(|run| (run.start, room.take(run.end - run.start)))
        .collect();
    let copied = copy(pid, pieces).map_err(of_kernel);
    drop(held);
    let held = began.elapsed();
    let (pieces, missing) = copied?;
    let bytes = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let mut image = Image::new(regions(&all, &own, pieces), threads, missing);
    let of_files = all
        .iter()
        .filter(|map| !map.is_writable && map.path.starts_with(b"/"));
    image.files = of_files.map(Map::range).collect();
    Ok(Capture {
        image,
        held,
        copied: bytes,
    })
}

/// Where heapprof's own memory is in a process that is recorded.
fn own(pid: u32) -> io::Result<Vec<Range<u64>>> {
    let text = std::fs::read(format!("/proc/{pid}/smaps"))?;
    let text = String::from_utf8_lossy(&text);
    let areas = areas(&text);
    let own = regions_of(&areas).filter(|region| region.is_own);
    Ok(own
        .map(|region| region.area.start..region.area.end)
        .collect())
}

/// A piece of memory: where it begins, and what is there.
type Piece = (u64, Vec<u8>);

/// A run of pages that are there.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
}

/// The mappings, and which pages of those that can be written are there. What was never touched has
/// no pages, and nothing in it.
fn plan(pid: u32, pages: &PageMap) -> io::Result<(Vec<Map>, Vec<Run>)> {
    let maps = maps::parse(&std::fs::read(format!("/proc/{pid}/maps"))?);
    let mut runs: Vec<Run> = Vec::new();
    for map in maps.iter().filter(|map| is_wanted(map)) {
        let mut in_map = Vec::new();
        pages.each(map.range(), |at, _| push(&mut in_map, at))?;
        runs.extend(in_map);
        let all: u64 = runs.iter().map(|run| run.end - run.start).sum();
        if all > MOST {
            return Err(io::Error::other("it has more memory than can be copied"));
        }
    }
    Ok((maps, runs))
}

fn push(runs: &mut Vec<Run>, at: u64) {
    match runs.last_mut() {
        Some(last) if last.end == at => last.end += PAGE,
        _ => runs.push(Run {
            start: at,
            end: at + PAGE,
        }),
    }
}

/// Whether pointers to the heap may lie in a mapping. A device's memory is left alone.
fn is_wanted(map: &Map) -> bool {
    let is_device = map.path.starts_with(b"/dev/") && !map.path.starts_with(b"/dev/shm/");
    map.is_writable && !is_device && !map.path.starts_with(b"[vvar")
}

/// Room for pieces, which the kernel has given already.
#[derive(Default)]
struct Room(BTreeMap<u64, Vec<Vec<u8>>>);

impl Room {
    fn make(&mut self, len: u64) {
        let mut bytes = vec![0u8; len as usize];
        // Each page is touched, so that it is there.
        bytes.iter_mut().step_by(PAGE as usize).for_each(|byte| {
            std::hint::black_box(byte);
        });
        bytes.chunks_mut(PAGE as usize).for_each(|page| page[0] = 1);
        self.0.entry(len).or_default().push(bytes);
    }

    /// Room of this length: one that is large enough, or a new one.
    fn take(&mut self, len: u64) -> Vec<u8> {
        let found = self.0.range_mut(len..).find_map(|(_, all)| all.pop());
        let mut bytes = found.unwrap_or_else(|| vec![0; len as usize]);
        bytes.truncate(len as usize);
        bytes
    }
}

/// Holds all threads, also those that others begin meanwhile.
fn hold_all(pid: u32, memory: &File) -> Result<BTreeMap<u32, Held>, Error> {
    let mut held = BTreeMap::new();
    for _ in 0..ROUNDS {
        let mut is_complete = true;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        let threads = threads.map_err(|_| Error::NoProcess)?.flatten();
        for tid in threads.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            if held.contains_key(&tid) {
                continue;
            }
            is_complete = false;
            match Held::new(tid, memory) {
                Ok(Some(one)) => drop(held.insert(tid, one)),
                Ok(None) => return Err(Error::Busy(tid)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    return Err(Error::NotAllowed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if is_complete {
            break;
        }
    }
    match held.is_empty() {
        true => Err(Error::NoProcess),
        false => Ok(held),
    }
}

/// Fills the pieces. Returns them with how many bytes could not be read; those are zero.
fn copy(pid: u32, mut pieces: Vec<Piece>) -> io::Result<(Vec<Piece>, u64)> {
    let mut missing = 0;
    for some in pieces.chunks_mut(AT_ONCE) {
        let wanted: usize = some.iter().map(|(_, bytes)| bytes.len()).sum();
        if read_all(pid, some)? == wanted {
            continue;
        }
        // One of them can't be read. Then each is read for itself, page by page.
        for (start, bytes) in some {
            for (page, at) in bytes
                .chunks_mut(PAGE as usize)
                .zip((*start..).step_by(PAGE as usize))
            {
                let len = page.len();
                if read_one(pid, at, page).unwrap_or(0) != len {
                    page.fill(0);
                    missing += len as u64;
                }
            }
        }
    }
    Ok((pieces, missing))
}

fn read_all(pid: u32, pieces: &mut [Piece]) -> io::Result<usize> {
    let remote: Vec<libc::iovec> = pieces
        .iter()
        .map(|(start, bytes)| libc::iovec {
            iov_base: *start as *mut libc::c_void,
            iov_len: bytes.len(),
        })
        .collect();
    let local: Vec<libc::iovec> = pieces
        .iter_mut()
        .map(|(_, bytes)| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        })
        .collect();
    read(pid, &local, &remote)
}

fn read_one(pid: u32, at: u64, to: &mut [u8]) -> io::Result<usize> {
    let remote = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: to.len(),
    };
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    read(pid, &[local], &[remote])
}

/// Copies from the other process what `remote` names to what `local` names.
fn read(pid: u32, local: &[libc::iovec], remote: &[libc::iovec]) -> io::Result<usize> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| ErrorKind::NotFound)?;
    // SAFETY: callers make `local` of slices that they have alone, and that live through the call.
    // The kernel checks what is in the other process.
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
            // A piece that is not there is no error of the whole.
            match error.raw_os_error() {
                Some(libc::EFAULT) => Ok(0),
                _ => Err(error),
            }
        }
    }
}

/// The pieces with what is known of the mappings that they lie in.
fn regions(maps: &[Map], own: &[Range<u64>], pieces: Vec<Piece>) -> Vec<Region> {
    let region = |(start, bytes): Piece| {
        let next = maps.partition_point(|map| map.start <= start);
        let map = next.checked_sub(1).map(|i| &maps[i]);
        Region {
            start,
            bytes,
            name: map.map_or_else(String::new, |map| {
                String::from_utf8_lossy(&map.path).into_owned()
            }),
            is_writable: true,
            is_shared: map.is_some_and(|map| !map.is_private),
            is_own: own.iter().any(|range| range.contains(&start)),
        }
    };
    pieces.into_iter().map(region).collect()
}

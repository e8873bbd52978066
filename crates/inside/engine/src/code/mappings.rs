//! The process's mapped code: files and their images, including code that was closed.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use heapprof_abi::MappingGeneration;
use heapprof_platform::lock::{ForkLock, LockedValue, rank};
use heapprof_platform::pages::PageSource;
use heapprof_platform::table_file::TableLifetime;
use heapprof_platform::weak;

use crate::code::closed_code::{ClosedCode, ClosedMapping, ClosedMappings};
use crate::code::image::MappedImage;
use crate::code::modules::LoadedModule;
use crate::process::EngineProcess;
use crate::tables::chunks::ChunkedArray;
use crate::tables::word_memory::WordMemory;
use heapprof_platform::maps;

mod first_use;

/// A current or former mapping of code.
#[derive(Clone, Debug)]
pub(crate) struct CodeMapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) offset: u64,
    pub(crate) path: Box<[u8]>,
    /// Whether the mapping's path now leads to another file, or to none.
    pub(crate) deleted: bool,
    pub(crate) image: MappedImage,
    /// Last generation of mappings in which the code was mapped.
    pub(crate) last: MappingGeneration,
    closed: bool,
    /// The value of [`KnownMappings::turn`] when the mapping was last noted as present or as gone.
    turn: u64,
    /// Address of the path that other processes read; 0 if the path is not published.
    shown_at: u64,
    /// Whether the path comes from the loader, because the kernel reported none.
    is_loaders: bool,
}

impl CodeMapping {
    fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Whether `other` is the same code at the same addresses. The kernel has reported `other`. The
    /// paths may differ if this mapping has its path from the loader, because the loader may report
    /// the path of a link.
    fn is_same(&self, other: &Self) -> bool {
        self.start == other.start
            && self.end == other.end
            && (self.path == other.path || self.is_loaders)
    }

    /// Updates this mapping with facts that were reported later.
    fn learn(&mut self, other: Self) {
        self.deleted = other.deleted;
        if self.is_loaders && !other.is_loaders {
            (self.path, self.is_loaders, self.shown_at) = (other.path, false, 0);
        }
    }
}

/// The known mappings, and memory for paths that are published.
struct KnownMappings {
    all: Vec<CodeMapping>,
    paths: WordMemory,
    /// Whether a mapping has changed since it was published.
    is_changed: bool,
    /// Buffer in which the path of a mapping is put together.
    room: first_use::PathBuffer,
    /// Number of times that mappings were noted. A thread reads this number before it reads the
    /// mapped code. So it recognizes mappings that other threads have noted meanwhile.
    turn: u64,
}

impl KnownMappings {
    /// Notes a mapping that exists. `here` holds the indexes of all known mappings that begin at
    /// the mapping's address. `turn` is the value of `self.turn` before the mapping was read.
    /// Returns the mapping's index; `None` if another thread has noted meanwhile that the mapping
    /// is gone.
    fn note(
        &mut self,
        mut mapping: CodeMapping,
        mut here: impl Iterator<Item = usize> + Clone,
        turn: u64,
        generation: MappingGeneration,
    ) -> Option<usize> {
        let is_old = |&i: &usize| !self.all[i].closed && self.all[i].is_same(&mapping);
        if let Some(i) = here.clone().find(is_old) {
            self.all[i].last = generation;
            self.all[i].learn(mapping);
            return Some(i);
        }
        let image = MappedImage::read_at(mapping.start, mapping.offset);
        // The mapping was closed, and came back before any other code came to its place.
        let is_back = |&i: &usize| {
            let m = &self.all[i];
            m.closed
                && m.last == generation
                && m.is_same(&mapping)
                && image.has_build_id()
                && m.image == image
        };
        if let Some(i) = here.clone().find(is_back) {
            (self.all[i].closed, self.all[i].turn) = (false, self.turn);
            self.all[i].learn(mapping);
            return Some(i);
        }
        // By now other code may lie there, to which this path does not belong.
        let is_gone = |i: usize| {
            let m = &self.all[i];
            m.closed && m.turn > turn && m.is_same(&mapping)
        };
        if here.any(is_gone) {
            return None;
        }
        mapping.image = image;
        mapping.last = generation;
        mapping.turn = self.turn;
        self.all.push(mapping);
        Some(self.all.len() - 1)
    }
}

/// The process's current and former mappings of code.
pub(crate) struct CodeMappings {
    generation: AtomicU32,
    known: LockedValue<{ rank::KNOWN_MAPPINGS }, KnownMappings>,
    /// Number of mappings that are published for other processes.
    pub(crate) published: AtomicU32,
    /// The published mappings, which other processes read.
    pub(crate) mapping: ChunkedArray<heapprof_abi::LedgerMapping>,
    /// Code that was unloaded, or that a thread may be unloading, until other code takes its
    /// addresses.
    closed: ClosedCode,
    /// Number of bytes of memory that the last read of the mapped code took.
    reading: AtomicUsize,
}

/// Result of a scan of the mapped code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeScanOutcome {
    All,
    /// The kernel reported nothing, perhaps because no file descriptor was free.
    Nothing,
    /// There was no memory for the scan.
    NoMemory,
}

/// Maximum number of times that a scan reads the mapped code. If the code has changed during a
/// read, it is read again.
const MAX_READ_ATTEMPTS: usize = 10;

impl CodeMappings {
    /// Makes a table without mappings.
    pub(crate) const fn new() -> Self {
        Self {
            generation: AtomicU32::new(0),
            known: LockedValue::new(KnownMappings {
                all: Vec::new(),
                paths: WordMemory::new(),
                is_changed: false,
                room: first_use::PathBuffer::new(),
                turn: 0,
            }),
            published: AtomicU32::new(0),
            mapping: ChunkedArray::new(),
            closed: ClosedCode::new(),
            reading: AtomicUsize::new(0),
        }
    }

    /// Returns the generation of mappings. It grows when other code takes the addresses of earlier
    /// code.
    #[inline]
    pub(crate) fn generation(&self) -> MappingGeneration {
        MappingGeneration::from_u32(self.generation.load(Ordering::Acquire))
    }

    /// Notes a module that a stack walk has reached, at an address whose unwind rule is not stored.
    /// Returns whether the module has replaced another module, which was unloaded, or which a
    /// thread is unloading. If so, the walked stack belongs to the next generation. `is_closing`
    /// says whether a thread closes objects.
    pub(crate) fn note_module(
        &self,
        process: &EngineProcess,
        module: &LoadedModule,
        is_closing: impl Fn() -> bool,
    ) -> bool {
        let generation = &self.generation;
        self.closed
            .note_module(process, module, generation, is_closing)
    }

    /// Notes the code that may be unmapped, before a thread closes objects. This is all code for
    /// which `stays` is false. If other code takes the addresses of such code, a walk then
    /// recognizes this at once, and not only after [`note_gone`](Self::note_gone).
    pub(crate) fn note_closing(&self, process: &EngineProcess, stays: impl Fn(usize) -> bool) {
        self.known.with(process, |known| {
            self.closed.with(process, |closed| {
                mark_replaced(known, closed);
                let may_go = |m: &&CodeMapping| !m.closed && !stays(m.start);
                let may_go = known.all.iter().filter(may_go);
                let may_go = may_go.map(|m| ClosedMapping::from_closing(m.range(), m.image));
                closed.replace_closing(may_go);
            });
        });
    }

    /// Marks mappings that no longer exist as closed. Returns their addresses. `is_last` says
    /// whether no other thread closes objects just now. `reserve` reserves the memory that this
    /// function needs.
    pub(crate) fn note_gone(
        &self,
        process: &EngineProcess,
        is_last: impl Fn() -> bool,
        reserve: impl Fn(usize) -> bool,
    ) -> Vec<Range<usize>> {
        let turn = self.known.with(process, |known| known.turn);
        let now = self.read(process, &reserve).unwrap_or_default();
        let mut gone = Vec::new();
        let is_known = !now.is_empty();
        if !is_known && !weak::has_dl_find_object() {
            return Vec::new();
        }
        // The kernel reports the mappings in order. If it reports none, perhaps because no file
        // descriptor is free (at least this code is mapped), the loader knows its objects.
        let is_there = |mapping: &CodeMapping| {
            if !is_known {
                let is_vdso = !mapping.path.starts_with(b"/");
                return is_vdso || weak::dl_find_object(mapping.start).is_some();
            }
            let found = now.binary_search_by_key(&mapping.start, |m| m.start);
            found.is_ok_and(|i| now[i].path == mapping.path || mapping.is_loaders)
        };
        self.known.with(process, |known| {
            self.closed.with(process, |closed| {
                mark_replaced(known, closed);
                let generation = self.generation();
                // A mapping that another thread has found since may be newer than this read.
                let is_open = |m: &&mut CodeMapping| !m.closed && m.turn <= turn;
                for mapping in known.all.iter_mut().filter(is_open) {
                    if is_there(mapping) {
                        continue;
                    }
                    (mapping.closed, mapping.turn) = (true, known.turn);
                    gone.push(mapping.range());
                    if closed.note_gone(mapping.range(), mapping.image) {
                        // No other code was met in its place up to now.
                        mapping.last = generation;
                    }
                }
                if is_last() {
                    closed.replace_closing(std::iter::empty());
                }
            });
            if known.is_changed || !gone.is_empty() {
                self.publish(known, &process.pages);
            }
        });
        gone
    }

    /// Whether a known mapping that still exists overlaps `range`.
    pub(crate) fn knows(&self, process: &EngineProcess, range: &Range<usize>) -> bool {
        let is_it = |m: &CodeMapping| !m.closed && m.start < range.end && range.start < m.end;
        self.known
            .with(process, |known| known.all.iter().any(is_it))
    }

    /// Notes that an object that was never scanned is gone from `range`. Stacks through its code
    /// have no names. Code that takes the addresses later counts as other code.
    pub(crate) fn note_unknown_gone(&self, process: &EngineProcess, range: Range<usize>) {
        self.known.with(process, |known| {
            // The program's own code must be the first entry.
            if !known.all.is_empty() {
                known.all.push(CodeMapping {
                    start: range.start,
                    end: range.end,
                    offset: 0,
                    path: Box::default(),
                    deleted: false,
                    image: MappedImage::UNKNOWN,
                    last: self.generation(),
                    closed: true,
                    turn: known.turn,
                    shown_at: 0,
                    is_loaders: false,
                });
                self.publish(known, &process.pages);
            }
        });
        self.closed.with(process, |closed| {
            closed.note_gone(range, MappedImage::UNKNOWN)
        });
    }

    /// Adds the mapped code to the known mappings. `reserve` reserves memory for them.
    pub(crate) fn remember(
        &self,
        process: &EngineProcess,
        reserve: impl Fn(usize) -> bool,
    ) -> CodeScanOutcome {
        let mut reported = CodeScanOutcome::Nothing;
        for _ in 0..MAX_READ_ATTEMPTS {
            let turn = self.known.with(process, |known| known.turn);
            let Some(now) = self.read(process, &reserve) else {
                return CodeScanOutcome::NoMemory;
            };
            reported = if now.is_empty() {
                CodeScanOutcome::Nothing
            } else {
                CodeScanOutcome::All
            };
            if self.add(process, now, turn) {
                break;
            }
        }
        reported
    }

    /// Adds mappings. `turn` is the value of [`KnownMappings::turn`] before they were read. Returns
    /// false if another thread has noted meanwhile that one of the mappings is gone. Code that is
    /// gone is always among the known mappings, because a thread adds code before it unloads the
    /// code.
    fn add(&self, process: &EngineProcess, now: Vec<CodeMapping>, turn: u64) -> bool {
        self.known.with(process, |known| {
            let generation = self.closed.with(process, |closed| {
                mark_replaced(known, closed);
                self.generation()
            });
            let mut is_whole = true;
            // There may be tens of thousands of mappings.
            let mut by_start: Vec<usize> = (0..known.all.len()).collect();
            by_start.sort_unstable_by_key(|&i| known.all[i].start);
            for mapping in now {
                let first = by_start.partition_point(|&i| known.all[i].start < mapping.start);
                let len =
                    by_start[first..].partition_point(|&i| known.all[i].start == mapping.start);
                let here = by_start[first..first + len].iter().copied();
                is_whole &= known.note(mapping, here, turn, generation).is_some();
            }
            self.publish(known, &process.pages);
            is_whole
        })
    }

    /// Publishes the known mappings for other processes. Mappings are never removed, and their
    /// paths stay where they are.
    fn publish(&self, known: &mut KnownMappings, pages: &PageSource) {
        known.is_changed = false;
        if (0..known.all.len()).all(|i| self.publish_one(known, i, pages)) {
            self.count_published(known.all.len(), pages);
        }
    }

    fn count_published(&self, len: usize, pages: &PageSource) {
        self.published.store(len as u32, Ordering::Release);
        pages.copy(&self.published);
    }

    /// Publishes one mapping. Returns false if there is no memory for it.
    fn publish_one(&self, known: &mut KnownMappings, i: usize, pages: &PageSource) -> bool {
        let to = self.mapping.touch(i, pages, TableLifetime::Lasting);
        if to.is_null() {
            return false;
        }
        let mapping = &mut known.all[i];
        if mapping.shown_at == 0 {
            mapping.shown_at = store_path(&mapping.path, &mut known.paths, pages);
        }
        let mut id = [0; 64];
        let build_id = mapping.image.build_id();
        id[..build_id.len()].copy_from_slice(build_id);
        // SAFETY: the entry is mapped, and only the thread that has the lock writes it. A reader
        // outside may read a half-written entry, and its documentation says so.
        unsafe {
            to.write(heapprof_abi::LedgerMapping {
                start: mapping.start as u64,
                end: mapping.end as u64,
                offset: mapping.offset,
                path: mapping.shown_at,
                path_len: match mapping.shown_at {
                    0 => 0,
                    _ => mapping.path.len() as u32,
                },
                last: mapping.last,
                is_deleted: mapping.deleted.into(),
                id_len: build_id.len() as u32,
                id,
            });
        }
        true
    }

    /// Returns all current and former mappings of code that [`remember`](Self::remember) has found.
    /// The program's own mappings come first.
    pub(crate) fn known_mappings(&self, process: &EngineProcess) -> Vec<CodeMapping> {
        self.known.with(process, |known| {
            self.closed
                .with(process, |closed| mark_replaced(known, closed));
            known.all.clone()
        })
    }

    /// Returns the addresses of each mapping that is known to exist.
    pub(crate) fn present_ranges(&self, process: &EngineProcess) -> Vec<Range<usize>> {
        self.known.with(process, |known| {
            let there = known.all.iter().filter(|m| !m.closed);
            there.map(CodeMapping::range).collect()
        })
    }

    /// Calls `is_wanted` with the start of each existing mapping, until it returns a value. Returns
    /// this value, and the path of the mapping, which is stored in `path`.
    pub(crate) fn find_first<'a, T>(
        &self,
        process: &EngineProcess,
        is_wanted: impl Fn(usize) -> Option<T>,
        path: &'a mut [u8],
    ) -> Option<(T, &'a CStr)> {
        let room = path.len();
        let found = self.known.with(process, |known| {
            let there = known.all.iter().filter(|m| !m.closed && !m.deleted);
            let mut there = there.filter(|m| m.path.starts_with(b"/") && m.path.len() < room);
            there.find_map(|mapping| {
                let wanted = is_wanted(mapping.start)?;
                path[..mapping.path.len()].copy_from_slice(&mapping.path);
                path[mapping.path.len()] = 0;
                Some(wanted)
            })
        })?;
        Some((found, CStr::from_bytes_until_nul(path).ok()?))
    }

    /// Returns the locks that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 2] {
        let Self {
            generation: _,
            known,
            published: _,
            mapping: _,
            closed,
            reading: _,
        } = self;
        [&known.lock, closed.lock()]
    }

    /// Returns the number of bytes that [`remember`](Self::remember) and
    /// [`known_mappings`](Self::known_mappings) may take.
    pub(crate) fn memory_needed(&self, process: &EngineProcess) -> usize {
        self.memory_for(process, self.room())
    }

    /// Returns the largest number of bytes that a scan can take, if a read of the mapped code takes
    /// `room` bytes: three times the size of the known mappings, plus `room`, plus a margin.
    fn memory_for(&self, process: &EngineProcess, room: usize) -> usize {
        let of_each = |m: &CodeMapping| 3 * (size_of::<CodeMapping>() + m.path.len() + 64);
        let known = self.known.with(process, |known| {
            let bytes = known.all.iter().map(of_each).sum::<usize>();
            (bytes, known.all.len())
        });
        let closed = self.closed.memory_needed(known.1);
        let known = known.0;
        known + closed + room + (64 << 10)
    }

    /// Returns the largest number of bytes that reading the mapped code may take: a quarter more
    /// than the last time, plus a margin.
    fn room(&self) -> usize {
        let last = self.reading.load(Ordering::Relaxed);
        last + last / 4 + (256 << 10)
    }

    /// Reads the executable mappings of files. The list is empty if the kernel reports no mapping.
    /// Returns `None` if `reserve` can't reserve enough memory.
    fn read(
        &self,
        process: &EngineProcess,
        reserve: &impl Fn(usize) -> bool,
    ) -> Option<Vec<CodeMapping>> {
        for _ in 0..MAX_READ_ATTEMPTS {
            let room = self.room();
            if !reserve(self.memory_for(process, room)) {
                return None;
            }
            if let all @ Some(_) = self.read_code(room) {
                return all;
            }
        }
        Some(Vec::new())
    }

    /// Reads the executable mappings of files. Returns `None` if this takes more than `room` bytes.
    fn read_code(&self, room: usize) -> Option<Vec<CodeMapping>> {
        let (mut all, mut taken) = (Vec::new(), 0);
        maps::for_each_line::<8192>(|line| {
            if line.contains(&b'x') {
                // Each line is parsed, kept and copied, in lists whose capacity doubles.
                taken += 6 * size_of::<CodeMapping>() + 3 * line.len();
                if taken <= room {
                    add_code(&mut all, line);
                }
            }
        });
        if taken != 0 {
            self.reading.store(taken, Ordering::Relaxed);
        }
        (taken <= room).then_some(all)
    }
}

/// Increments `known.turn`, and marks mappings as closed if other code has taken their addresses.
fn mark_replaced(known: &mut KnownMappings, closed: &mut ClosedMappings) {
    known.turn += 1;
    closed.take_replaced(|replaced, last| {
        let is_it = |m: &&mut CodeMapping| !m.closed && replaced.is_of(&m.range(), &m.image);
        if let Some(mapping) = known.all.iter_mut().rfind(is_it) {
            (mapping.closed, mapping.last) = (true, last);
            mapping.turn = known.turn;
            known.is_changed = true;
        }
    });
}

/// Stores a path at a fixed address. Returns the address; 0 if there is no memory.
fn store_path(path: &[u8], paths: &mut WordMemory, pages: &PageSource) -> u64 {
    let Some(at) = paths.take(path.len().div_ceil(8), pages) else {
        return 0;
    };
    // SAFETY: the memory has room for the path, and no other thread uses it.
    unsafe {
        at.cast::<u8>()
            .copy_from_nonoverlapping(path.as_ptr(), path.len())
    };
    at.expose_provenance() as u64
}

/// Adds the mapping in a line of /proc/thread-self/maps, if it is an executable mapping of a file.
fn add_code(all: &mut Vec<CodeMapping>, line: &[u8]) {
    let Some((start, end, rest)) = maps::parse_range(line) else {
        return;
    };
    // perms offset dev inode path
    let mut fields = rest.splitn(5, |&b| b == b' ').skip_while(|f| f.is_empty());
    let (Some(perms), Some(offset)) = (fields.next(), fields.next()) else {
        return;
    };
    let path = fields.nth(2).unwrap_or_default().trim_ascii();
    let path = maps::skip_number(path);
    let code = perms.get(2) == Some(&b'x');
    if !code || !(path.starts_with(b"/") || path == b"[vdso]") {
        return;
    }
    let intact = path.strip_suffix(b" (deleted)");
    let (path, deleted) = (intact.unwrap_or(path), intact.is_some());
    let path = maps::unescape_path(path);
    let (offset, _) = maps::parse_hex(offset);
    // Neighbours that continue each other in the file are one mapping.
    if let Some(last) = all.last_mut()
        && last.end == start
        && last.path == path
        && last.offset + (last.end - last.start) as u64 == offset as u64
    {
        last.end = end;
        return;
    }
    all.push(CodeMapping {
        start,
        end,
        offset: offset as u64,
        path,
        deleted,
        image: MappedImage::UNKNOWN,
        last: MappingGeneration::FIRST,
        closed: false,
        turn: 0,
        shown_at: 0,
        is_loaders: false,
    });
}

#[cfg(test)]
mod tests;

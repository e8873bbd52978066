//! What code is mapped where: the files of the process and their images, also of code that was
//! closed.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::code::image::Image;
use crate::code::maps;
use crate::code::modules::Module;
use crate::platform::kept::Lot;
use crate::platform::lock::{ForkLock, Locked, rank};
use crate::platform::pages::Pages;
use crate::platform::process::Process;
use crate::platform::sys;
use crate::platform::weak;
use crate::tables::chunks::Chunks;
use crate::tables::word_memory::WordMemory;

/// Code that is or was mapped.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) offset: u64,
    pub(crate) path: Box<[u8]>,
    /// Whether the file there is another one by now, or none.
    pub(crate) deleted: bool,
    pub(crate) image: Image,
    /// The last generation in which it was there.
    pub(crate) last: u32,
    closed: bool,
    /// Where its path is for whoever reads it from outside; 0 if it is nowhere.
    shown_at: u64,
}

/// What is known of mappings, and memory for the paths that are shown of them.
struct Known {
    all: Vec<Mapping>,
    paths: WordMemory,
}

/// The mappings of the process, now and before.
pub(crate) struct Mappings {
    generation: AtomicU32,
    /// How often code was looked for that is gone. Only whoever holds the lock counts it up.
    unloads: AtomicU32,
    known: Locked<{ rank::KNOWN }, Known>,
    /// What is known, for whoever reads it from outside: how many mappings, and what of each.
    pub(crate) published: AtomicU32,
    pub(crate) mapping: Chunks<heapprof_books::Mapping>,
    /// Code that was unloaded, while nothing else has come to its place.
    closed: Locked<{ rank::CLOSED }, Vec<Closed>>,
    /// How many bytes it took to read what is mapped when it was read last.
    reading: AtomicUsize,
}

/// What the kernel told of what is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    All,
    /// Perhaps there was no descriptor left.
    Nothing,
    /// There is no memory to read it.
    NoMemory,
}

/// So often it is read again, because it has changed meanwhile.
const TRIES: usize = 10;

/// Where such code lay, and which image it was of.
#[derive(PartialEq, Eq)]
struct Closed {
    start: usize,
    end: usize,
    image: Image,
}

impl Mappings {
    /// Nothing is known yet.
    pub(crate) const fn new() -> Self {
        Self {
            generation: AtomicU32::new(0),
            unloads: AtomicU32::new(0),
            known: Locked::new(Known {
                all: Vec::new(),
                paths: WordMemory::new(),
            }),
            published: AtomicU32::new(0),
            mapping: Chunks::new(),
            closed: Locked::new(Vec::new()),
            reading: AtomicUsize::new(0),
        }
    }

    /// The generation of mappings. It counts up when an address comes to mean something else.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Called when unwinding meets a module at an address without rules, and modules were unloaded
    /// before: it may lie where one of those lay.
    pub(crate) fn touched(&self, process: &Process, module: &Module) {
        // Signals are blocked because a handler that ends the process dumps, and that takes this
        // lock, too.
        let mask = process.block_signals();
        self.closed.with(process, |closed| {
            let here = |c: &Closed| c.end > module.start && c.start < module.end;
            if !closed.iter().any(here) {
                return;
            }
            // A plugin that comes and goes mostly comes back to its place: its stacks are the same
            // then.
            let now = Image::of(module.start, 0);
            let is_back = |c: &Closed| now.has_build_id() && c.image == now;
            let other = closed.iter().any(|c| here(c) && !is_back(c));
            closed.retain(|c| !here(c));
            if other {
                self.generation.fetch_add(1, Ordering::AcqRel);
            }
        });
        sys::restore_signals(mask);
    }

    /// Marks what is no longer mapped as closed. Returns where each such mapping lay. `reserve`
    /// sets aside the bytes that this takes.
    pub(crate) fn note_gone(
        &self,
        process: &Process,
        reserve: impl Fn(usize) -> bool,
    ) -> Vec<Range<usize>> {
        let now = self.read(process, &reserve).unwrap_or_default();
        let mut gone = Vec::new();
        let is_told = !now.is_empty();
        if !is_told && !weak::has_dl_find_object() {
            return Vec::new();
        }
        // The kernel tells them in their order. If it does not tell, perhaps for lack of a
        // descriptor (at least this code is mapped), the loader knows its objects.
        let is_there = |mapping: &Mapping| {
            if !is_told {
                let is_vdso = !mapping.path.starts_with(b"/");
                return is_vdso || weak::dl_find_object(mapping.start).is_some();
            }
            let found = now.binary_search_by_key(&mapping.start, |m| m.start);
            found.is_ok_and(|i| now[i].path == mapping.path)
        };
        self.known.with(process, |known| {
            self.unloads.fetch_add(1, Ordering::AcqRel);
            for mapping in known.all.iter_mut().filter(|m| !m.closed) {
                if !is_there(mapping) {
                    mapping.closed = true;
                    gone.push(Closed {
                        start: mapping.start,
                        end: mapping.end,
                        image: mapping.image,
                    });
                }
            }
        });
        let ranges = gone.iter().map(|c| c.start..c.end).collect();
        self.closed.with(process, |closed| {
            for one in gone {
                // It is there already if it came and went without a stack in it.
                if !closed.contains(&one) {
                    closed.push(one);
                }
            }
        });
        ranges
    }

    /// Whether a mapping is known that is there, and lies in these addresses.
    pub(crate) fn knows(&self, process: &Process, range: &Range<usize>) -> bool {
        let is_it = |m: &Mapping| !m.closed && m.start < range.end && range.start < m.end;
        self.known
            .with(process, |known| known.all.iter().any(is_it))
    }

    /// Remembers that code of an object that nobody has looked at lay there, and is gone. Stacks
    /// through it have no names, and what comes to its place is other code.
    pub(crate) fn note_unknown_gone(&self, process: &Process, range: Range<usize>) {
        self.known.with(process, |known| {
            self.unloads.fetch_add(1, Ordering::AcqRel);
            // The program's own code comes first.
            if !known.all.is_empty() {
                known.all.push(Mapping {
                    start: range.start,
                    end: range.end,
                    offset: 0,
                    path: Box::default(),
                    deleted: false,
                    image: Image::UNKNOWN,
                    last: self.generation(),
                    closed: true,
                    shown_at: 0,
                });
                self.publish(known, &process.pages);
            }
        });
        self.closed.with(process, |closed| {
            closed.push(Closed {
                start: range.start,
                end: range.end,
                image: Image::UNKNOWN,
            });
        });
    }

    /// Adds what is mapped now to what is known. `reserve` sets aside the bytes that this takes.
    pub(crate) fn remember(&self, process: &Process, reserve: impl Fn(usize) -> bool) -> Told {
        for _ in 0..TRIES {
            let unloads = self.unloads.load(Ordering::Acquire);
            let Some(now) = self.read(process, &reserve) else {
                return Told::NoMemory;
            };
            let told = if now.is_empty() {
                Told::Nothing
            } else {
                Told::All
            };
            // If another thread has unloaded something meanwhile, some of this is not there any
            // more, and something else may lie in its place.
            if self.add(process, now, unloads) {
                return told;
            }
        }
        Told::Nothing
    }

    /// Adds what was mapped when there had been so many unloads, unless there were more since.
    fn add(&self, process: &Process, now: Vec<Mapping>, unloads: u32) -> bool {
        self.known.with(process, |known| {
            if self.unloads.load(Ordering::Acquire) != unloads {
                return false;
            }
            let generation = self.generation();
            // There may be tens of thousands of them.
            let mut by_start: Vec<usize> = (0..known.all.len()).collect();
            by_start.sort_unstable_by_key(|&i| known.all[i].start);
            for mut mapping in now {
                let first = by_start.partition_point(|&i| known.all[i].start < mapping.start);
                let here = by_start[first..].iter().copied();
                let here = || {
                    here.clone()
                        .take_while(|&i| known.all[i].start == mapping.start)
                };
                let same = |m: &Mapping| {
                    m.start == mapping.start && m.end == mapping.end && m.path == mapping.path
                };
                let is_old = |&i: &usize| !known.all[i].closed && same(&known.all[i]);
                if let Some(old) = here().find(is_old) {
                    let old = &mut known.all[old];
                    old.last = generation;
                    old.deleted = mapping.deleted;
                    continue;
                }
                let image = Image::of(mapping.start, mapping.offset);
                // The mapping was closed, and is back before anything else came to its place.
                let is_back = |&i: &usize| {
                    let m = &known.all[i];
                    m.closed
                        && m.last == generation
                        && same(m)
                        && image.has_build_id()
                        && m.image == image
                };
                if let Some(old) = here().find(is_back) {
                    known.all[old].closed = false;
                    continue;
                }
                mapping.image = image;
                mapping.last = generation;
                known.all.push(mapping);
            }
            self.publish(known, &process.pages);
            true
        })
    }

    /// Shows what is known to whoever reads it from outside. Mappings are never taken out, and
    /// their paths stay where they are.
    fn publish(&self, known: &mut Known, pages: &Pages) {
        let Known { all, paths } = known;
        for (i, mapping) in all.iter_mut().enumerate() {
            let to = self.mapping.touch(i, pages, Lot::Lasting);
            if to.is_null() {
                return;
            }
            if mapping.shown_at == 0 {
                mapping.shown_at = show(&mapping.path, paths, pages);
            }
            let mut id = [0; 64];
            let build_id = mapping.image.build_id();
            id[..build_id.len()].copy_from_slice(build_id);
            // SAFETY: it is mapped, and only whoever holds the lock writes it. A reader outside may
            // see it half written, and is told so.
            unsafe {
                to.write(heapprof_books::Mapping {
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
        }
        self.published.store(all.len() as u32, Ordering::Release);
        pages.copy(&self.published);
    }

    /// All code that is or was mapped, the program's own first, as far as
    /// [`remember`](Self::remember) saw it.
    pub(crate) fn known(&self, process: &Process) -> Vec<Mapping> {
        self.known.with(process, |known| known.all.clone())
    }

    /// The first of the mappings that are there of which `is_wanted` makes something, with its path
    /// in `path`.
    pub(crate) fn first_of<'a, T>(
        &self,
        process: &Process,
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

    /// The locks that fork must hold.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 2] {
        let Self {
            generation: _,
            unloads: _,
            known,
            published: _,
            mapping: _,
            closed,
            reading: _,
        } = self;
        [&known.lock, &closed.lock]
    }

    /// Bytes that [`remember`](Self::remember) and [`known`](Self::known) may take.
    pub(crate) fn memory_needed(&self, process: &Process) -> usize {
        self.memory_for(process, self.room())
    }

    /// The same, if reading what is mapped takes at most `room` bytes: three times those of the
    /// mappings that are known, the room, and some more.
    fn memory_for(&self, process: &Process, room: usize) -> usize {
        let of_each = |m: &Mapping| 3 * (size_of::<Mapping>() + m.path.len() + 64);
        let known = self.known.with(process, |known| {
            known.all.iter().map(of_each).sum::<usize>()
        });
        let closed = self
            .closed
            .with(process, |closed| closed.len() * 3 * size_of::<Closed>());
        known + closed + room + (64 << 10)
    }

    /// Bytes that reading what is mapped may take: a quarter more than last time, and some more.
    fn room(&self) -> usize {
        let last = self.reading.load(Ordering::Relaxed);
        last + last / 4 + (256 << 10)
    }

    /// The executable mappings of files; none if the kernel does not tell. `None` if `reserve` has
    /// no memory for them.
    fn read(&self, process: &Process, reserve: &impl Fn(usize) -> bool) -> Option<Vec<Mapping>> {
        for _ in 0..TRIES {
            let room = self.room();
            if !reserve(self.memory_for(process, room)) {
                return None;
            }
            if let all @ Some(_) = self.code(room) {
                return all;
            }
        }
        Some(Vec::new())
    }

    /// The executable mappings of files. `None` if reading them takes more than `room` bytes.
    fn code(&self, room: usize) -> Option<Vec<Mapping>> {
        let (mut all, mut taken) = (Vec::new(), 0);
        maps::lines::<8192>(|line| {
            if line.contains(&b'x') {
                // Each line is parsed, kept and copied, in lists that double.
                taken += 6 * size_of::<Mapping>() + 3 * line.len();
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

/// Puts a path where it stays. Returns where that is; 0 without memory.
fn show(path: &[u8], paths: &mut WordMemory, pages: &Pages) -> u64 {
    let Some(at) = paths.take(path.len().div_ceil(8), pages) else {
        return 0;
    };
    // SAFETY: there is room for so many bytes, and nobody else has it.
    unsafe {
        at.cast::<u8>()
            .copy_from_nonoverlapping(path.as_ptr(), path.len())
    };
    at.expose_provenance() as u64
}

/// Adds the executable mapping of a file, if a line of /proc/thread-self/maps tells of one.
fn add_code(all: &mut Vec<Mapping>, line: &[u8]) {
    let Some((start, end, rest)) = maps::range(line) else {
        return;
    };
    // perms offset dev inode path
    let mut fields = rest.splitn(5, |&b| b == b' ').skip_while(|f| f.is_empty());
    let (Some(perms), Some(offset)) = (fields.next(), fields.next()) else {
        return;
    };
    let path = fields.nth(2).unwrap_or_default().trim_ascii();
    let path = behind_number(path);
    let code = perms.get(2) == Some(&b'x');
    if !code || !(path.starts_with(b"/") || path == b"[vdso]") {
        return;
    }
    let intact = path.strip_suffix(b" (deleted)");
    let (path, deleted) = (intact.unwrap_or(path), intact.is_some());
    let path = without_escapes(path);
    let (offset, _) = maps::hex(offset);
    // Neighbours that continue each other in the file are one mapping.
    if let Some(last) = all.last_mut()
        && last.end == start
        && last.path == path
        && last.offset + (last.end - last.start) as u64 == offset as u64
    {
        last.end = end;
        return;
    }
    all.push(Mapping {
        start,
        end,
        offset: offset as u64,
        path,
        deleted,
        image: Image::UNKNOWN,
        last: 0,
        closed: false,
        shown_at: 0,
    });
}

/// A path as it is: the kernel writes a newline in it as `\012`, and nothing else in this way.
fn without_escapes(path: &[u8]) -> Box<[u8]> {
    const NEWLINE: &[u8] = b"\\012";
    if !path.contains(&b'\\') {
        return path.into();
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, behind)) = rest.split_first() {
        match rest.strip_prefix(NEWLINE) {
            Some(after) => {
                bytes.push(b'\n');
                rest = after;
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes.into()
}

/// What follows a number (the inode's).
fn behind_number(text: &[u8]) -> &[u8] {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    text[digits..].trim_ascii_start()
}

/// The mapping that held `address` in `generation`: of those that ever held it, the first one that
/// was still there then. What came to its place later came in a later generation.
pub(crate) fn find(known: &[Mapping], address: usize, generation: u32) -> Option<usize> {
    let holds = |m: &Mapping| m.start <= address && address < m.end;
    let then = known.iter().position(|m| holds(m) && generation <= m.last);
    then.or_else(|| known.iter().rposition(holds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::pages::Pages;

    #[test]
    fn reads_the_kernels_text() {
        let maps = b"55d0-55e0 r--p 00000000 08:01 77    /bin/a b\n\
            55e0-55f0 r-xp 00000010 08:01 77    /bin/a b\n\
            55f0-5600 r-xp 00000020 08:01 77    /bin/a b\n\
            7f00-7f10 r-xp 00001000 08:01 78 /lib/x.so (deleted)\n\
            7f20-7f30 rw-p 00000000 00:00 0\n\
            7f40-7f50 r-xp 00001000 08:01 79 /a\\012b\\\n\
            7fff-8fff r-xp 00000000 00:00 0    [vdso]\n";
        let mut found = Vec::new();
        let lines = maps.split(|&b| b == b'\n');
        lines.for_each(|line| add_code(&mut found, line));
        let brief: Vec<_> = found
            .iter()
            .map(|m| (m.start, m.end, m.offset, &*m.path))
            .collect();
        let expected: [(usize, usize, u64, &[u8]); 4] = [
            (0x55e0, 0x5600, 0x10, b"/bin/a b"),
            (0x7f00, 0x7f10, 0x1000, b"/lib/x.so"),
            (0x7f40, 0x7f50, 0x1000, b"/a\nb\\"),
            (0x7fff, 0x8fff, 0, b"[vdso]"),
        ];
        assert_eq!(brief, expected);
    }

    #[test]
    fn finds_this_program() {
        let code = finds_this_program as fn() as usize;
        let (mappings, process) = (Mappings::new(), Process::new(Pages::of_kernel()));
        assert_eq!(mappings.remember(&process, |_| true), Told::All);
        let all = mappings.known(&process);
        let own = all
            .iter()
            .find(|m| m.start <= code && code < m.end)
            .unwrap();
        let exe = std::env::current_exe().unwrap();
        assert_eq!(&*own.path, exe.to_str().unwrap().as_bytes());
    }

    /// It is read again if more is mapped than there was room for, and nothing is read without
    /// memory.
    #[test]
    fn what_is_read_fits_what_was_set_aside() {
        let (mappings, process) = (Mappings::new(), Process::new(Pages::of_kernel()));
        assert_eq!(mappings.code(1).map(|all| all.len()), None);
        let all = mappings.code(mappings.room()).unwrap();
        assert!(!all.is_empty());
        let reserved = std::cell::RefCell::new(Vec::new());
        let reserve = |bytes| {
            reserved.borrow_mut().push(bytes);
            reserved.borrow().len() < 3
        };
        assert_eq!(mappings.remember(&process, reserve), Told::All);
        let known = mappings.known(&process).len();
        assert_eq!(known, all.len());
        assert_eq!(mappings.note_gone(&process, reserve), Vec::new());
        assert_eq!(mappings.remember(&process, reserve), Told::NoMemory);
        assert_eq!(mappings.known(&process).len(), known);
        let reserved = reserved.into_inner();
        let read = mappings.reading.load(Ordering::Relaxed);
        assert_eq!(reserved.len(), 3);
        assert!(reserved.iter().all(|&bytes| bytes > read + (256 << 10)));
    }
}

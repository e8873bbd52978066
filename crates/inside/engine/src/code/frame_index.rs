//! Indexes of the entries of an `.eh_frame`, for objects whose linker made no search table
//! (`-Wl,--no-eh-frame-hdr`, or an `.eh_frame_hdr` without its table).
//!
//! Only the section headers of the file show where such an `.eh_frame` is. The file is read when
//! code is scanned, never in an event. Because the file may have been replaced, its headers and the
//! section must equal memory, byte by byte.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use heapprof_platform::sys::{self, EngineFile, PAGE_SIZE};

/// Maximum number of objects that have an index.
const MAX_OBJECTS: usize = 64;
/// Maximum length of an `.eh_frame` that is indexed, in bytes.
const MAX_SECTION_LEN: usize = 64 << 20;
/// Maximum number of bytes of all indexes together.
const MAX_INDEX_MEMORY: usize = 16 << 20;
/// Maximum number of program headers, and of section headers, in a file that is indexed.
const MAX_HEADERS: usize = 4096;

/// An entry of an index: the offset of a function in the object, and the offset of the function's
/// entry in the `.eh_frame`.
#[derive(Clone, Copy)]
#[repr(C)]
struct FrameIndexEntry {
    function: u32,
    entry: u32,
}

/// The index of an object's `.eh_frame`. It is never freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameIndex {
    /// Address of the `.eh_frame` in memory.
    pub(crate) eh_frame: usize,
    pub(crate) end: usize,
    entries: *const FrameIndexEntry,
    len: usize,
}

/// The indexes of all objects that need an index.
pub(crate) struct FrameIndexes {
    slot: [FrameIndexSlot; MAX_OBJECTS],
    taken: AtomicUsize,
}

/// The slot of a scanned object. Only scans of code write slots, and only one scan runs at a time.
struct FrameIndexSlot {
    /// Address at which the object begins; 0 for an empty slot.
    start: AtomicUsize,
    eh_frame: AtomicUsize,
    end: AtomicUsize,
    /// The entries of the index; null if the object has no section that can be used.
    entries: AtomicPtr<FrameIndexEntry>,
    len: AtomicUsize,
    /// Number of changes that began plus number of changes that ended. So it is odd while the slot
    /// changes. A walk compares this number before and after it reads the slot, because the walk
    /// may be interrupted for so long that another object is loaded at the same address.
    changes: AtomicU32,
}

impl FrameIndex {
    /// Finds the entry of the function that contains `pc`. Returns the offset of the entry in the
    /// `.eh_frame`; `None` if there is no entry.
    pub(crate) fn find(&self, module_start: usize, pc: usize) -> Option<usize> {
        // SAFETY: the entries were written before the index was published, and stay.
        let all = unsafe { std::slice::from_raw_parts(self.entries, self.len) };
        let offset = u32::try_from(pc.checked_sub(module_start)?).ok()?;
        let behind = all.partition_point(|entry| entry.function <= offset);
        Some(all[behind.checked_sub(1)?].entry as usize)
    }
}

impl FrameIndexes {
    /// Makes a table without indexes.
    pub(crate) const fn new() -> Self {
        Self {
            slot: [const {
                FrameIndexSlot {
                    start: AtomicUsize::new(0),
                    eh_frame: AtomicUsize::new(0),
                    end: AtomicUsize::new(0),
                    entries: AtomicPtr::new(std::ptr::null_mut()),
                    len: AtomicUsize::new(0),
                    changes: AtomicU32::new(0),
                }
            }; MAX_OBJECTS],
            taken: AtomicUsize::new(0),
        }
    }

    fn slot(&self, start: usize) -> Option<&FrameIndexSlot> {
        let holds = |slot: &&FrameIndexSlot| slot.start.load(Ordering::Acquire) == start;
        self.slot.iter().find(holds)
    }

    /// Returns the index of the object that begins at `start`; `None` if the object has no index.
    pub(crate) fn find(&self, start: usize) -> Option<FrameIndex> {
        let slot = self.slot(start)?;
        let before = slot.changes.load(Ordering::Acquire);
        let found = FrameIndex {
            eh_frame: slot.eh_frame.load(Ordering::Relaxed),
            end: slot.end.load(Ordering::Relaxed),
            entries: slot.entries.load(Ordering::Relaxed),
            len: slot.len.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let is_whole = before % 2 == 0 && slot.changes.load(Ordering::Relaxed) == before;
        (is_whole && !found.entries.is_null()).then_some(found)
    }

    /// Whether the object that begins at `start` was scanned.
    pub(crate) fn is_known(&self, start: usize) -> bool {
        self.slot(start).is_some()
    }

    /// Removes the objects that begin in `range`, which was unmapped.
    pub(crate) fn forget(&self, range: &std::ops::Range<usize>) {
        for slot in &self.slot {
            if range.contains(&slot.start.load(Ordering::Relaxed)) {
                slot.start.store(0, Ordering::Release);
            }
        }
    }

    /// Makes the index of an object whose file is at `path`. Returns whether the object has an
    /// index now.
    ///
    /// Only one thread at a time may call this.
    pub(crate) fn add(&self, object: &Range<usize>, path: &CStr) -> bool {
        let Some(slot) = self.slot(0) else {
            return false;
        };
        let made = find_section(object, path).and_then(|section| {
            let index = build_index(object, &section, self.taken.load(Ordering::Relaxed));
            section.copy.release();
            index
        });
        let (entries, len) = made.map_or((std::ptr::null_mut(), 0), |made| (made.0, made.1));
        slot.changes.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        if let Some((_, _, [eh_frame, end], bytes)) = made {
            slot.eh_frame.store(eh_frame, Ordering::Relaxed);
            slot.end.store(end, Ordering::Relaxed);
            self.taken.fetch_add(bytes, Ordering::Relaxed);
        }
        slot.len.store(len, Ordering::Relaxed);
        slot.entries.store(entries, Ordering::Relaxed);
        slot.changes.fetch_add(1, Ordering::Release);
        slot.start.store(object.start, Ordering::Release);
        made.is_some()
    }
}

/// A temporary private mapping.
#[derive(Clone, Copy)]
struct MappedBuffer {
    at: *mut u8,
    len: usize,
}

impl MappedBuffer {
    fn new(len: usize) -> Option<Self> {
        let len = len.next_multiple_of(PAGE_SIZE);
        let at = sys::map(len);
        (!at.is_null()).then_some(Self { at, len })
    }

    fn release(self) {
        // SAFETY: the memory came from `map`, and nothing refers to it any more.
        unsafe { sys::unmap(self.at, self.len) };
    }
}

/// An `.eh_frame`: a copy of it, its length in bytes, and its address in memory.
struct EhFrameSection {
    copy: MappedBuffer,
    len: usize,
    at: usize,
}

/// Reads a number of `N` bytes at the offset `at` of a header.
fn parse_number<const N: usize>(header: &[u8], at: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(header.get(at..at + N)?);
    Some(u64::from_le_bytes(bytes) as usize)
}

/// Reads a header of `N` bytes from the file.
fn read_header<const N: usize>(file: &EngineFile, at: usize) -> Option<[u8; N]> {
    let mut header = [0; N];
    (file.read_at(&mut header, at as u64) == N).then_some(header)
}

/// Whether the memory at `at` equals `bytes`.
fn is_in_memory(at: usize, bytes: &[u8]) -> bool {
    let mut place = at;
    bytes.chunks(1024).all(|chunk| {
        let mut found = [0; 1024];
        let found = &mut found[..chunk.len()];
        let is_same = sys::read_memory(place, found) == chunk.len() && found == chunk;
        place += chunk.len();
        is_same
    })
}

/// Finds an object's `.eh_frame` in the file at `path`. Copies the section if it equals the section
/// in memory.
fn find_section(object: &Range<usize>, path: &CStr) -> Option<EhFrameSection> {
    const LOAD: usize = libc::PT_LOAD as usize;
    let file = EngineFile::open(path, libc::O_RDONLY | libc::O_NONBLOCK, 0).ok()?;
    let elf: [u8; 64] = read_header(&file, 0)?;
    if !elf.starts_with(b"\x7fELF\x02\x01") || !is_in_memory(object.start, &elf) {
        return None;
    }
    let (programs, programs_len) = (parse_number::<8>(&elf, 32)?, parse_number::<2>(&elf, 56)?);
    let (sections, sections_len) = (parse_number::<8>(&elf, 40)?, parse_number::<2>(&elf, 60)?);
    let sizes = (parse_number::<2>(&elf, 54)?, parse_number::<2>(&elf, 58)?);
    if sizes != (56, 64) || programs_len.max(sections_len) > MAX_HEADERS {
        return None;
    }
    // `bias` is the object's address in memory, less its address in the program headers.
    let (mut bias, mut holds) = (None, [0usize; 3]);
    let names = sections.checked_add(64 * parse_number::<2>(&elf, 62)?)?;
    let names = parse_number::<8>(&read_header::<64>(&file, names)?, 24)?;
    let mut found = None;
    for i in 0..sections_len {
        let section: [u8; 64] = read_header(&file, sections.checked_add(64 * i)?)?;
        let name = names.checked_add(parse_number::<4>(&section, 0)?)?;
        let is_loaded = parse_number::<8>(&section, 8)? & 2 != 0;
        if is_loaded && read_header::<10>(&file, name)? == *b".eh_frame\0" {
            found = Some([16, 24, 32].map(|at| parse_number::<8>(&section, at).unwrap_or(0)));
        }
    }
    let [address, offset, len] = found?;
    for i in 0..programs_len {
        let at = programs.checked_add(56 * i)?;
        let program: [u8; 56] = read_header(&file, at)?;
        if !is_in_memory(object.start.checked_add(at)?, &program) {
            return None;
        }
        if parse_number::<4>(&program, 0)? != LOAD {
            continue;
        }
        let place = [16, 8, 32].map(|at| parse_number::<8>(&program, at).unwrap_or(0));
        bias.get_or_insert(object.start.wrapping_sub(place[0] & !(PAGE_SIZE - 1)));
        if place[0] <= address && address < place[0].saturating_add(place[2]) {
            holds = place;
        }
    }
    let [piece, piece_offset, piece_len] = holds;
    let within = address.checked_sub(piece)?;
    let is_there = within.checked_add(len)? <= piece_len && piece_offset + within == offset;
    if !is_there || len == 0 || len > MAX_SECTION_LEN {
        return None;
    }
    let at = bias?.wrapping_add(address);
    let copy = MappedBuffer::new(len)?;
    // SAFETY: the copy has at least `len` bytes, and no other code knows it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(copy.at, len) };
    let mut read = 0;
    while read < len {
        match file.read_at(&mut bytes[read..], (offset + read) as u64) {
            0 => break,
            n => read += n,
        }
    }
    if read < len || !is_in_memory(at, bytes) {
        copy.release();
        return None;
    }
    Some(EhFrameSection { copy, len, at })
}

/// The index of a section: the address and the number of its entries, the section's beginning and
/// end, and the size of the entries in bytes.
type BuiltIndex = (*mut FrameIndexEntry, usize, [usize; 2], usize);

/// Makes the index of a section, unless all indexes together would exceed the memory limit. `taken`
/// is the number of bytes that other indexes take.
fn build_index(
    object: &Range<usize>,
    section: &EhFrameSection,
    taken: usize,
) -> Option<BuiltIndex> {
    // SAFETY: the copy exists until the caller releases it, and no reference to it is kept.
    let bytes = unsafe { std::slice::from_raw_parts(section.copy.at.cast_const(), section.len) };
    let mut count = 0;
    for_each_function(object, section, bytes, |_| count += 1);
    let room = count * size_of::<FrameIndexEntry>();
    if count == 0 || taken + room > MAX_INDEX_MEMORY {
        return None;
    }
    let copy = MappedBuffer::new(room)?;
    // SAFETY: there is room for `count` entries, all zero, and no other code knows it.
    let all = unsafe { std::slice::from_raw_parts_mut(copy.at.cast::<FrameIndexEntry>(), count) };
    let mut places = all.iter_mut();
    for_each_function(object, section, bytes, |entry| {
        if let Some(place) = places.next() {
            *place = entry;
        }
    });
    all.sort_unstable_by_key(|entry| (entry.function, entry.entry));
    let places = [section.at, section.at + section.len];
    Some((copy.at.cast(), count, places, copy.len))
}

/// Calls `with` for the entry of each function of an object. Stops at the section's end, or at a
/// damaged entry.
fn for_each_function(
    object: &Range<usize>,
    section: &EhFrameSection,
    bytes: &[u8],
    mut with: impl FnMut(FrameIndexEntry),
) {
    let eh_frame = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.at as u64);
    let mut entries = eh_frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let function = (fde.initial_address() as usize).checked_sub(object.start);
        let function = function.and_then(|function| u32::try_from(function).ok());
        let is_code =
            function.is_some_and(|function| (function as usize) < object.end - object.start);
        if let (Some(function), true, Ok(entry)) = (function, is_code, u32::try_from(fde.offset()))
        {
            with(FrameIndexEntry { function, entry });
        }
    }
}

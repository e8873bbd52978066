//! The ELF image of a mapping: its beginning and its build id, read without trusting that any
//! memory is mapped.

use heapprof_platform::sys::{self, PAGE_SIZE};

/// Maximum length of a build id in bytes. A longer build id is ignored.
const MAX_BUILD_ID_LEN: usize = 64;

/// The identity of an ELF image in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedImage {
    start: usize,
    bytes: [u8; MAX_BUILD_ID_LEN],
    len: usize,
    /// A checksum of the image's first page, if the image has no build id. The page contains sizes
    /// and names that differ from program to program.
    first_page: u64,
}

/// A piece of an image's code: its addresses, and its offset in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodePiece {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) offset: u64,
}

impl MappedImage {
    /// An image that could not be read at all.
    pub(crate) const UNKNOWN: Self = Self {
        start: 0,
        bytes: [0; MAX_BUILD_ID_LEN],
        len: 0,
        first_page: 0,
    };

    /// Returns the identity of the image whose file is mapped at the address `start`, from the
    /// file's `offset` on; [`UNKNOWN`](Self::UNKNOWN) if it can't be read.
    pub(crate) fn read_at(start: usize, offset: u64) -> Self {
        Self::find(start, offset).unwrap_or(Self::UNKNOWN)
    }

    /// Writes the code pieces of the image that begins at `start` into `to`. Returns the number of
    /// pieces, which may exceed the length of `to`; 0 if there is no image.
    pub(crate) fn find_code(start: usize, to: &mut [CodePiece]) -> usize {
        let Some(headers) = ImageHeaders::read_at(start) else {
            return 0;
        };
        let is_code = |piece: &ImageHeader| {
            piece.kind == libc::PT_LOAD && piece.flags & libc::PF_X != 0 && piece.len != 0
        };
        let mut count = 0;
        for piece in headers.all().filter(is_code) {
            if let Some(to) = to.get_mut(count) {
                let at = headers.bias.wrapping_add(piece.address);
                let last = at.saturating_add(piece.len - 1) | (PAGE_SIZE - 1);
                *to = CodePiece {
                    start: at & !(PAGE_SIZE - 1),
                    end: last.saturating_add(1),
                    offset: (piece.offset & !(PAGE_SIZE - 1)) as u64,
                };
            }
            count += 1;
        }
        count
    }

    /// Returns the layout of the image that begins at `start`; `None` if there is no image.
    pub(crate) fn layout(start: usize) -> Option<ImageLayout> {
        let headers = ImageHeaders::read_at(start)?;
        let mut layout = ImageLayout::EMPTY;
        for header in headers.all() {
            let at = headers.bias.wrapping_add(header.address);
            layout.add(header.kind, header.flags, at, header.memory_len);
        }
        (layout.start < layout.end).then_some(layout)
    }

    /// Returns the image's build id; empty if it has none.
    pub(crate) fn build_id(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn has_build_id(&self) -> bool {
        self.len != 0
    }

    /// Whether any part of the image could be read.
    pub(crate) fn is_known(&self) -> bool {
        self.start != 0
    }

    fn find(start: usize, offset: u64) -> Option<Self> {
        let direct = start.checked_sub(offset as usize)?;
        // If the image was mapped in one piece, its first page is as far before the code as in the
        // file. Linkers may leave gaps of pages between file and memory, so this searches a little
        // further.
        let mut starts = (0..64).filter_map(|pages| direct.checked_sub(pages * PAGE_SIZE));
        let headers = starts.find_map(|at| {
            ImageHeaders::read_at(at).filter(|headers| headers.places_offset(start, offset))
        })?;
        let mut notes = headers.all().filter(|header| header.kind == libc::PT_NOTE);
        let mut image = Self::UNKNOWN;
        image.start = headers.memory.at;
        let len = notes.find_map(|notes| {
            let notes_at = headers.bias.wrapping_add(notes.address);
            read_build_id(notes_at, notes.len, &mut image.bytes)
        });
        match len {
            Some(len) => image.len = len,
            None => image.first_page = checksum_page(image.start),
        }
        Some(image)
    }
}

/// Addresses of the parts of an image.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ImageLayout {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Address of the `.eh_frame_hdr`; 0 if there is none.
    pub(crate) eh_frame_hdr: usize,
    /// Address of the dynamic section; 0 if there is none.
    pub(crate) dynamic: usize,
    /// Whether the first piece of the image is code.
    pub(crate) begins_with_code: bool,
}

impl ImageLayout {
    /// The layout of an image none of whose parts is known yet.
    pub(crate) const EMPTY: Self = Self {
        start: usize::MAX,
        end: 0,
        eh_frame_hdr: 0,
        dynamic: 0,
        begins_with_code: false,
    };

    /// Adds the part that a program header describes. The part is at the address `at`, and has
    /// `len` bytes in memory.
    pub(crate) fn add(&mut self, kind: u32, flags: u32, at: usize, len: usize) {
        match kind {
            libc::PT_LOAD => {
                if self.end == 0 {
                    self.begins_with_code = flags & libc::PF_X != 0;
                }
                self.start = self.start.min(at);
                self.end = self.end.max(at.saturating_add(len));
            }
            libc::PT_GNU_EH_FRAME => self.eh_frame_hdr = at,
            libc::PT_DYNAMIC => self.dynamic = at,
            _ => {}
        }
    }
}

/// Returns a checksum that depends on every byte of a page.
fn checksum_page(start: usize) -> u64 {
    let (mut sum, mut bytes) = (0u64, [0; 512]);
    for at in (start..start.saturating_add(PAGE_SIZE)).step_by(bytes.len()) {
        let len = sys::read_memory(at, &mut bytes);
        for word in bytes[..len].as_chunks().0 {
            sum = (sum.rotate_left(23) ^ u64::from_le_bytes(*word))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    sum
}

/// A copy of the beginning of memory that may not be mapped. One system call reads all of it,
/// because a call costs more than the bytes that it reads. The copy mostly contains the program
/// headers of an ELF file, because they follow the file's header.
struct HeaderWindow {
    at: usize,
    len: usize,
    bytes: [u8; WINDOW_LEN],
}

/// Number of bytes of a [`HeaderWindow`]. Fourteen program headers fit in. The window is small
/// because the stack may be almost full.
const WINDOW_LEN: usize = 896;

impl HeaderWindow {
    fn read_at(at: usize) -> Self {
        let mut bytes = [0; WINDOW_LEN];
        let len = sys::read_memory(at, &mut bytes);
        Self { at, len, bytes }
    }

    /// Reads the bytes at an address. Returns false if they are not mapped.
    fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let from = at.wrapping_sub(self.at);
        let seen = &self.bytes[..self.len];
        match from
            .checked_add(to.len())
            .and_then(|end| seen.get(from..end))
        {
            Some(seen) => to.copy_from_slice(seen),
            None => return sys::read_memory(at, to) == to.len(),
        }
        true
    }

    fn word(&self, at: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

/// The program headers of an ELF file in memory.
struct ImageHeaders {
    memory: HeaderWindow,
    at: usize,
    size: usize,
    count: usize,
    /// Difference between an address in memory and the address in the file.
    bias: usize,
}

/// A program header: a piece of the file, and the piece's address in memory.
struct ImageHeader {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    len: usize,
    /// The piece's length in memory. Behind the piece of the file are zeros.
    memory_len: usize,
}

impl ImageHeaders {
    /// Reads the headers of the image that begins at `start`; `None` if there is no image.
    fn read_at(start: usize) -> Option<Self> {
        let mut magic = [0; 5];
        let memory = HeaderWindow::read_at(start);
        if !memory.read(start, &mut magic) || magic != *b"\x7fELF\x02" {
            return None;
        }
        let counts = memory.word(start.checked_add(54)?)?;
        let mut headers = Self {
            at: start.wrapping_add(memory.word(start.checked_add(32)?)? as usize),
            memory,
            size: (counts & 0xffff) as usize,
            count: (counts >> 16 & 0xffff) as usize,
            bias: start,
        };
        let first = headers.all().find(|h| h.kind == libc::PT_LOAD)?;
        headers.bias = start.wrapping_sub(first.address & !4095);
        Some(headers)
    }

    fn all(&self) -> impl Iterator<Item = ImageHeader> + '_ {
        (0..self.count).map_while(|i| {
            let mut words = [0; 48];
            let at = self.at.wrapping_add(i * self.size);
            if !self.memory.read(at, &mut words) {
                return None;
            }
            let (words, _) = words.as_chunks();
            let [kind, offset, address, _, len, memory_len] =
                std::array::from_fn(|i| u64::from_le_bytes(words[i]));
            Some(ImageHeader {
                kind: kind as u32,
                flags: (kind >> 32) as u32,
                offset: offset as usize,
                address: address as usize,
                len: len as usize,
                memory_len: memory_len as usize,
            })
        })
    }

    /// Whether a program header maps the file's `offset` to `start`. If no header does, the headers
    /// belong to another library below the mapping.
    fn places_offset(&self, start: usize, offset: u64) -> bool {
        let offset = offset as usize;
        self.all().any(|piece| {
            let place = self.bias.wrapping_add(piece.address);
            piece.kind == libc::PT_LOAD
                && place.wrapping_sub(piece.offset) == start.wrapping_sub(offset)
                && (piece.offset & !4095..piece.offset.saturating_add(piece.len)).contains(&offset)
        })
    }
}

/// Reads the build id among the notes at `at` into `id`. Returns its length.
fn read_build_id(mut at: usize, len: usize, id: &mut [u8]) -> Option<usize> {
    let end = at.checked_add(len)?;
    let memory = HeaderWindow::read_at(at);
    while at.checked_add(12)? <= end {
        let sizes = memory.word(at)?;
        let (name, desc) = (sizes as u32 as usize, (sizes >> 32) as usize);
        let kind = memory.word(at + 8)? as u32;
        let is_gnu =
            name == 4 && memory.word(at.checked_add(12)?)? as u32 == u32::from_le_bytes(*b"GNU\0");
        let desc_at = at.checked_add(12 + name.next_multiple_of(4))?;
        if kind == 3 && is_gnu && desc <= id.len() {
            return memory.read(desc_at, &mut id[..desc]).then_some(desc);
        }
        at = desc_at.checked_add(desc.next_multiple_of(4))?;
    }
    None
}

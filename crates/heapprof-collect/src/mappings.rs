//! What is mapped where: the stack around an address, the code of the process with build ids, also of what was closed.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::lock::Locked;
use crate::modules::{self, Module};
use crate::sys;

/// Code that is or was mapped.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) offset: u64,
    pub(crate) path: Box<[u8]>,
    pub(crate) build_id: BuildId,
    /// The last generation in which it was there.
    pub(crate) last: u32,
    closed: bool,
}

static GENERATION: AtomicU32 = AtomicU32::new(0);
static KNOWN: Locked<Vec<Mapping>> = Locked::new(Vec::new());
/// Code that was unloaded, where nothing came yet.
static CLOSED: Locked<Vec<Closed>> = Locked::new(Vec::new());

/// Where it lay, and what its object was: where that began, and its build id.
#[derive(PartialEq, Eq)]
struct Closed {
    start: usize,
    end: usize,
    base: usize,
    build_id: BuildId,
}

/// A build id; none is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BuildId {
    bytes: [u8; Self::LONGEST],
    len: usize,
}

impl BuildId {
    const LONGEST: usize = 64;
    const NONE: Self = Self {
        bytes: [0; Self::LONGEST],
        len: 0,
    };

    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Counts up when an address comes to mean something else.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// Called when unwinding meets a module at an address without rules: it may lie where a closed one lay.
pub(crate) fn touched(module: &Module) {
    if modules::unload_epoch() == 0 {
        return;
    }
    CLOSED.with(|closed| {
        let here = |c: &Closed| c.end > module.start && c.start < module.end;
        if !closed.iter().any(here) {
            return;
        }
        // A plugin that comes and goes mostly comes back to its place: its stacks are the same then.
        let now = build_id(module.start, 0);
        let is_back =
            |c: &Closed| c.base == module.start && now != BuildId::NONE && c.build_id == now;
        let other = closed.iter().any(|c| here(c) && !is_back(c));
        closed.retain(|c| !here(c));
        if other {
            GENERATION.fetch_add(1, Ordering::AcqRel);
        }
    });
}

/// Marks what is no longer mapped as closed; where each such mapping lay.
pub(crate) fn note_gone() -> Vec<Range<usize>> {
    let now = code();
    let mut gone = Vec::new();
    KNOWN.with(|known| {
        for mapping in known.iter_mut().filter(|m| !m.closed) {
            if !now
                .iter()
                .any(|m| m.start == mapping.start && m.path == mapping.path)
            {
                mapping.closed = true;
                gone.push(Closed {
                    start: mapping.start,
                    end: mapping.end,
                    base: mapping.start.wrapping_sub(mapping.offset as usize),
                    build_id: mapping.build_id,
                });
            }
        }
    });
    let ranges = gone.iter().map(|c| c.start..c.end).collect();
    CLOSED.with(|closed| {
        for one in gone {
            // It is there if it came and went without a stack in it.
            if !closed.contains(&one) {
                closed.push(one);
            }
        }
    });
    ranges
}

/// Adds what is mapped now to what is known.
pub(crate) fn remember() {
    let now = code();
    let generation = generation();
    KNOWN.with(|known| {
        for mut mapping in now {
            let same = |m: &Mapping| {
                m.start == mapping.start && m.end == mapping.end && m.path == mapping.path
            };
            if let Some(old) = known.iter_mut().find(|m| !m.closed && same(m)) {
                old.last = generation;
                continue;
            }
            let build_id = build_id(mapping.start, mapping.offset);
            // Closed, and back before anything else came to its place.
            let is_back = |m: &&mut Mapping| {
                m.closed
                    && m.last == generation
                    && same(m)
                    && build_id != BuildId::NONE
                    && m.build_id == build_id
            };
            if let Some(old) = known.iter_mut().find(is_back) {
                old.closed = false;
                continue;
            }
            mapping.build_id = build_id;
            mapping.last = generation;
            known.push(mapping);
        }
    });
}

/// All code that is or was mapped, the program's own first.
pub(crate) fn known() -> Vec<Mapping> {
    remember();
    KNOWN.with(|known| known.clone())
}

/// The locks that fork must hold.
pub(crate) fn locks() -> [&'static crate::lock::Lock; 2] {
    [&KNOWN.lock, &CLOSED.lock]
}

/// Bytes that [`known`] may take: of the mappings that are known, thrice, and of some that are new.
pub(crate) fn memory_needed() -> usize {
    let of_each = |m: &Mapping| 3 * (size_of::<Mapping>() + m.path.len() + 64);
    let known = KNOWN.with(|known| known.iter().map(of_each).sum::<usize>());
    let closed = CLOSED.with(|closed| closed.len() * 3 * size_of::<Closed>());
    // What is new: each line is parsed, kept and copied, in lists that double.
    let mut lines = 0;
    sys::read_lines(c"/proc/thread-self/maps", |line| {
        if line.contains(&b'x') {
            lines += 6 * size_of::<Mapping>() + 3 * line.len();
        }
    });
    known + closed + lines + (256 << 10)
}

/// The executable mappings of files.
fn code() -> Vec<Mapping> {
    let mut all = Vec::new();
    sys::read_lines(c"/proc/thread-self/maps", |line| add_code(&mut all, line));
    all
}

/// Adds the executable mapping of a file that a line of /proc/thread-self/maps tells of, if it does.
fn add_code(all: &mut Vec<Mapping>, line: &[u8]) {
    let Some((start, end, rest)) = range(line) else {
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
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let (offset, _) = hex(offset);
    // Neighbours that continue each other in the file are one mapping.
    if let Some(last) = all.last_mut()
        && last.end == start
        && *last.path == *path
        && last.offset + (last.end - last.start) as u64 == offset as u64
    {
        last.end = end;
        return;
    }
    all.push(Mapping {
        start,
        end,
        offset: offset as u64,
        path: path.into(),
        build_id: BuildId::NONE,
        last: 0,
        closed: false,
    });
}

/// What follows a number (the inode's).
fn behind_number(text: &[u8]) -> &[u8] {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    text[digits..].trim_ascii_start()
}

fn hex(text: &[u8]) -> (usize, usize) {
    let mut value = 0usize;
    for (i, byte) in text.iter().enumerate() {
        match (*byte as char).to_digit(16) {
            Some(digit) => value = value << 4 | digit as usize,
            None => return (value, i),
        }
    }
    (value, text.len())
}

/// `start-end rest`.
fn range(line: &[u8]) -> Option<(usize, usize, &[u8])> {
    let (start, n) = hex(line);
    let rest = line.get(n..)?.strip_prefix(b"-")?;
    let (end, n) = hex(rest);
    Some((start, end, rest.get(n..)?.strip_prefix(b" ")?))
}

/// The build id of the ELF image that has file offset `offset` at `start`, read without trusting that it is there.
fn build_id(start: usize, offset: u64) -> BuildId {
    find_build_id(start, offset).unwrap_or(BuildId::NONE)
}

/// A word of memory that may not be there.
fn word(at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    (sys::read_memory(at, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
}

fn find_build_id(start: usize, offset: u64) -> Option<BuildId> {
    let direct = start.checked_sub(offset as usize)?;
    // The image's first page lies as far in front as the code in the file, if it was mapped in one piece. Linkers may
    // leave gaps of pages between file and memory: look a little further.
    let mut bases = (0..64).filter_map(|pages| direct.checked_sub(pages * 4096));
    let image =
        bases.find_map(|base| Image::at(base).filter(|image| image.holds(start, offset)))?;
    let mut notes = image
        .headers()
        .filter(|header| header.kind == libc::PT_NOTE);
    notes.find_map(|notes| gnu_build_id(image.bias.wrapping_add(notes.address), notes.len))
}

/// An ELF file in memory.
struct Image {
    headers: usize,
    size: usize,
    count: usize,
    /// What is added to the file's addresses.
    bias: usize,
}

/// A program header: a piece of the file, and its place in memory.
struct Header {
    kind: u32,
    offset: usize,
    address: usize,
    len: usize,
}

impl Image {
    /// The image that begins at `base`, if one does.
    fn at(base: usize) -> Option<Self> {
        let mut magic = [0; 5];
        if sys::read_memory(base, &mut magic) != 5 || magic != *b"\x7fELF\x02" {
            return None;
        }
        let counts = word(base.checked_add(54)?)?;
        let mut image = Self {
            headers: base.wrapping_add(word(base + 32)? as usize),
            size: (counts & 0xffff) as usize,
            count: (counts >> 16 & 0xffff) as usize,
            bias: base,
        };
        let first = image.headers().find(|h| h.kind == libc::PT_LOAD)?;
        image.bias = base.wrapping_sub(first.address & !4095);
        Some(image)
    }

    fn headers(&self) -> impl Iterator<Item = Header> + '_ {
        (0..self.count).map_while(|i| {
            let mut words = [0; 40];
            let at = self.headers.wrapping_add(i * self.size);
            if sys::read_memory(at, &mut words) != words.len() {
                return None;
            }
            let (words, _) = words.as_chunks();
            let [kind, offset, address, _, len] =
                std::array::from_fn(|i| u64::from_le_bytes(words[i]));
            Some(Header {
                kind: kind as u32,
                offset: offset as usize,
                address: address as usize,
                len: len as usize,
            })
        })
    }

    /// Whether one of its pieces has the file's `offset` at `start`. Another library's header may lie below a mapping of
    /// something else.
    fn holds(&self, start: usize, offset: u64) -> bool {
        let offset = offset as usize;
        self.headers().any(|piece| {
            let place = self.bias.wrapping_add(piece.address);
            piece.kind == libc::PT_LOAD
                && place.wrapping_sub(piece.offset) == start.wrapping_sub(offset)
                && (piece.offset & !4095..piece.offset.saturating_add(piece.len)).contains(&offset)
        })
    }
}

/// The build id among the notes at `at`.
fn gnu_build_id(mut at: usize, len: usize) -> Option<BuildId> {
    let end = at.checked_add(len)?;
    while at.checked_add(12)? <= end {
        let sizes = word(at)?;
        let (name, desc) = (sizes as u32 as usize, (sizes >> 32) as usize);
        let kind = word(at + 8)? as u32;
        let is_gnu =
            name == 4 && word(at.checked_add(12)?)? as u32 == u32::from_le_bytes(*b"GNU\0");
        let desc_at = at.checked_add(12 + name.next_multiple_of(4))?;
        if kind == 3 && is_gnu && desc <= BuildId::LONGEST {
            let mut id = BuildId::NONE;
            id.len = sys::read_memory(desc_at, &mut id.bytes[..desc]);
            return (id.len == desc).then_some(id);
        }
        at = desc_at.checked_add(desc.next_multiple_of(4))?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_text() {
        let maps = b"55d0-55e0 r--p 00000000 08:01 77    /bin/a b\n\
            55e0-55f0 r-xp 00000010 08:01 77    /bin/a b\n\
            55f0-5600 r-xp 00000020 08:01 77    /bin/a b\n\
            7f00-7f10 r-xp 00001000 08:01 78 /lib/x.so (deleted)\n\
            7f20-7f30 rw-p 00000000 00:00 0\n\
            7fff-8fff r-xp 00000000 00:00 0    [vdso]\n";
        let mut found = Vec::new();
        let lines = maps.split(|&b| b == b'\n');
        lines.for_each(|line| add_code(&mut found, line));
        let brief: Vec<_> = found
            .iter()
            .map(|m| (m.start, m.end, m.offset, &*m.path))
            .collect();
        let expected: [(usize, usize, u64, &[u8]); 3] = [
            (0x55e0, 0x5600, 0x10, b"/bin/a b"),
            (0x7f00, 0x7f10, 0x1000, b"/lib/x.so"),
            (0x7fff, 0x8fff, 0, b"[vdso]"),
        ];
        assert_eq!(brief, expected);
    }

    #[test]
    fn finds_this_program() {
        let code = finds_this_program as fn() as usize;
        let all = known();
        let own = all
            .iter()
            .find(|m| m.start <= code && code < m.end)
            .unwrap();
        let exe = std::env::current_exe().unwrap();
        assert_eq!(&*own.path, exe.to_str().unwrap().as_bytes());
    }
}

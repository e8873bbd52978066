//! malloc's arenas: found by how they look, because libc may have no symbols.
//!
//! A bin of an arena is a ring of chunks. An empty one leads to itself: its two words are the
//! address of the bin less 16 (glibc's `malloc_state`, `malloc.c`). No other memory has dozens of
//! such pairs in a row. Around the bins, all versions since 2.26 have the same fields at the same
//! distances: ten lists of fast chunks and `top` before them, `next` and `system_mem` behind.

use crate::image::Image;

/// The bytes of the addresses that are reserved for a part of an arena (`HEAP_MAX_SIZE`).
pub(crate) const RESERVED: u64 = 64 << 20;
/// How many bins an arena has.
const BINS: u64 = 127;
/// So many bins of an arena are empty at the least. Programs fill few of them.
const EMPTY: usize = 40;
/// More arenas than this are a broken ring.
const MOST: usize = 1 << 16;

/// How far the first bin may be behind the arena's beginning. Since 2.27 there is a word more.
const DISTANCES: [u64; 2] = [0x70, 0x68];

// Distances from the first bin.
const FASTBINS: u64 = 0x60;
const TOP: u64 = 0x10;
const NEXT: u64 = 0x800;
const SYSTEM_MEMORY: u64 = 0x818;
/// How many bytes an arena has from its first bin on.
const REST: u64 = 0x828;
/// How many lists of fast chunks there are.
const FAST: u64 = 10;

/// An arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Where its structure begins.
    pub at: u64,
    /// Where its first bin is.
    pub(crate) bins: u64,
    /// The last chunk, from which new ones are cut.
    pub top: u64,
    /// How many bytes it has from the system, as it says itself.
    pub system_memory: u64,
    /// Whether it is the first one, whose chunks are in the program's heap (brk).
    pub is_main: bool,
}

impl Arena {
    /// The heads of its lists of fast chunks.
    pub(crate) fn fast(&self) -> impl Iterator<Item = u64> {
        let first = self.bins.wrapping_sub(FASTBINS);
        (0..FAST).map(move |i| first.wrapping_add(8 * i))
    }

    /// The addresses of its structure, which lead to chunks and are no roots.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<u64> {
        self.at..self.bins.wrapping_add(REST)
    }
}

/// The arenas of a process, the main one first. Empty if there are none.
pub(crate) fn find(image: &Image) -> Vec<Arena> {
    let candidates = image
        .regions()
        .iter()
        .filter(|region| region.is_writable && !region.is_shared);
    for region in candidates {
        let mut at = region.start.next_multiple_of(8);
        let end = region.range().end;
        while at + REST <= end {
            // The last bins are the ones that are empty most often.
            if is_empty(image, at, BINS - 1) || is_empty(image, at, BINS - 2) {
                let empty = (0..BINS).filter(|&bin| is_empty(image, at, bin)).count();
                if empty >= EMPTY
                    && !is_in_part(image, at)
                    && let Some(main) = read(image, at)
                {
                    return ring(image, main);
                }
            }
            at += 8;
        }
    }
    Vec::new()
}

/// Whether the arena with these bins is in a part of its own, as all but the main one are.
fn is_in_part(image: &Image, bins: u64) -> bool {
    let may_begin = DISTANCES.map(|distance| bins - distance);
    may_begin
        .iter()
        .any(|&at| image.word(at & !(RESERVED - 1)) == Some(at))
}

/// Whether the bin of this number is empty, if the first one is at `bins`.
fn is_empty(image: &Image, bins: u64, bin: u64) -> bool {
    let at = bins + 16 * bin;
    let own = at - 16;
    image.word(at) == Some(own) && image.word(at + 8) == Some(own)
}

/// The arena whose first bin is at `bins`. Which one it is in the ring is not known yet.
fn read(image: &Image, bins: u64) -> Option<Arena> {
    let top = image.word(bins.checked_sub(TOP)?)?;
    let system_memory = image.word(bins + SYSTEM_MEMORY)?;
    let next = image.word(bins + NEXT)?;
    let is_sane = system_memory > 0
        && system_memory < 1 << 46
        && system_memory.is_multiple_of(4096)
        && image.word(next).is_some();
    // An arena that nobody has used yet has its own bin as its top.
    let has_top = image
        .word(top.checked_add(8)?)
        .is_some_and(|size| size & !7 <= system_memory);
    (is_sane && has_top).then_some(Arena {
        at: 0,
        bins,
        top,
        system_memory,
        is_main: true,
    })
}

/// All arenas of the ring that this one is in.
fn ring(image: &Image, mut main: Arena) -> Vec<Arena> {
    let mut all = Vec::new();
    let mut next = image.word(main.bins + NEXT).unwrap_or(0);
    let may_begin = DISTANCES.map(|distance| main.bins - distance);
    main.at = may_begin[0];
    let shift = may_begin.iter().position(|&at| at == next);
    let mut shift = shift.map(|i| main.bins - may_begin[i]);
    while !may_begin.contains(&next) && all.len() < MOST {
        // The parts of the others are aligned, and the first one has the arena in its beginning.
        let heap = next & !(RESERVED - 1);
        if image.word(heap) != Some(next) {
            break;
        }
        let distance = shift.or_else(|| distance(image, next));
        let Some(found) = distance.and_then(|distance| {
            shift = Some(distance);
            read(image, next + distance)
        }) else {
            break;
        };
        if all.iter().any(|one: &Arena| one.at == next) {
            break;
        }
        let following = image.word(found.bins + NEXT).unwrap_or(0);
        all.push(Arena {
            at: next,
            is_main: false,
            ..found
        });
        next = following;
    }
    main.at = main.bins - shift.unwrap_or(0x70);
    all.insert(0, main);
    all
}

/// How far the first bin of an arena is behind its beginning.
fn distance(image: &Image, arena: u64) -> Option<u64> {
    let looks_right = |&distance: &u64| {
        let bins = arena + distance;
        (0..BINS).filter(|&bin| is_empty(image, bins, bin)).count() >= EMPTY
    };
    DISTANCES.into_iter().find(looks_right)
}

//! malloc's arenas: found by how they look, because libc may have no symbols.
//!
//! A bin of an arena is a ring of chunks. An empty one leads to itself: its two words are the
//! address of the bin less 16 (glibc's `malloc_state`, `malloc.c`). No other memory has dozens of
//! such pairs in a row. Around the bins, all versions since 2.26 have the same fields at the same
//! distances: `top` before them, `next` and `system_mem` behind. Until 2.42 ten lists of fast
//! chunks come before `top`.

use std::collections::HashSet;

use crate::image::{ImageRegion, ProcessImage};

/// The bytes of the addresses that are reserved for a part of an arena (`HEAP_MAX_SIZE`).
pub(crate) const ARENA_PART_SIZE: u64 = 64 << 20;
/// So many bins of an arena are rings at the least. More of them are damaged in no arena that can
/// be walked.
const MIN_RINGS: usize = 64;
/// More arenas than this are a broken ring. (Their numbers have 16 bits, and the last two mean
/// something else.)
const MAX_ARENAS: usize = (1 << 16) - 2;

/// How far the first bin may be behind the arena's beginning. Since 2.27 there is a word more, and
/// since 2.43 there are no lists of fast chunks.
const BIN_DISTANCES: [u64; 3] = [0x70, 0x68, BIN_DISTANCE_WITHOUT_FAST];
const BIN_DISTANCE_WITHOUT_FAST: u64 = 0x18;

// Distances from the first bin.
const FASTBINS_DISTANCE: u64 = 0x60;
const TOP_DISTANCE: u64 = 0x10;
const NEXT_ARENA_DISTANCE: u64 = 0x800;
const SYSTEM_MEMORY_DISTANCE: u64 = 0x818;
/// How many bytes an arena has from its first bin on.
const ARENA_SIZE_FROM_BINS: u64 = 0x828;
/// How many lists of fast chunks there are.
const FAST_LIST_COUNT: u64 = 10;

/// An arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MallocArena {
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

impl MallocArena {
    /// How many bins an arena has.
    pub(crate) const BIN_COUNT: u64 = 127;

    /// The heads of its lists of fast chunks.
    pub(crate) fn fast(&self) -> impl Iterator<Item = u64> {
        let first = self.bins.wrapping_sub(FASTBINS_DISTANCE);
        let count = match self.bins.wrapping_sub(self.at) {
            BIN_DISTANCE_WITHOUT_FAST => 0,
            _ => FAST_LIST_COUNT,
        };
        (0..count).map(move |i| first.wrapping_add(8 * i))
    }

    /// The addresses of its structure, which lead to chunks and are no roots.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<u64> {
        self.at..self.bins.wrapping_add(ARENA_SIZE_FROM_BINS)
    }
}

/// The arenas of a process, the main one first, and whether they are all. Empty if there are none.
///
/// What looks like bins also does so some bins further: then the ring of arenas does not lead back.
/// If no ring does, it is damaged or cut off, and what has most bins that are rings is taken.
pub(crate) fn find(image: &ProcessImage) -> (Vec<MallocArena>, bool) {
    let mut best: Option<(usize, MallocArena)> = None;
    // What looks like a main arena is tried until so many arenas were followed.
    let mut left = 4 * MAX_ARENAS;
    let mut others = Vec::new();
    // libc's variables are in a file's mapping, which is a small part of the memory. They are
    // elsewhere if it is not known what was mapped.
    let candidates = || {
        image
            .regions()
            .iter()
            .filter(|region| region.is_root() && !region.is_shared)
    };
    let is_file = |region: &&ImageRegion| region.name.starts_with('/');
    for region in candidates()
        .filter(is_file)
        .chain(candidates().filter(|one| !is_file(one)))
    {
        let mut at = region.start.next_multiple_of(8);
        let end = region.range().end;
        while at + ARENA_SIZE_FROM_BINS <= end {
            // Few programs have chunks in the last bins.
            let looks_so = is_ring(image, at, MallocArena::BIN_COUNT - 1)
                && is_ring(image, at, MallocArena::BIN_COUNT - 2);
            if looks_so && let Some((rings, arena)) = candidate(image, at) {
                if let Some(begin) = in_part(image, at) {
                    others.push(MallocArena {
                        at: begin,
                        is_main: false,
                        ..arena
                    });
                } else if let (all, true) = follow(image, arena.clone(), &mut left) {
                    return (all, true);
                } else if best.as_ref().is_none_or(|(most, _)| rings > *most) {
                    best = Some((rings, arena));
                }
            }
            at += 8;
        }
    }
    match best {
        Some((_, main)) => follow(image, main, &mut { MAX_ARENAS }),
        // A core file that was cut has these, because they lie before the main one.
        None => {
            others.truncate(MAX_ARENAS);
            (others, false)
        }
    }
}

/// The arena whose first bin may be at `at`, and how many of its bins are rings.
fn candidate(image: &ProcessImage, at: u64) -> Option<(usize, MallocArena)> {
    let rings = rings(image, at);
    let arena = (rings >= MIN_RINGS).then(|| read(image, at))??;
    Some((rings, arena))
}

/// Where the arena with these bins begins, if it is in a part of its own, as all but the main one
/// are.
fn in_part(image: &ProcessImage, bins: u64) -> Option<u64> {
    let mut may_begin = BIN_DISTANCES.iter().map(|distance| bins - distance);
    may_begin.find(|&at| image.word(at & !(ARENA_PART_SIZE - 1)) == Some(at))
}

/// How many bins are rings, if the first one is at `bins`.
fn rings(image: &ProcessImage, bins: u64) -> usize {
    let all = 0..MallocArena::BIN_COUNT;
    all.filter(|&bin| is_ring(image, bins, bin)).count()
}

/// Whether the bin of this number is a ring, if the first one is at `bins`: an empty one, or one
/// whose first and last chunk lead back to it.
fn is_ring(image: &ProcessImage, bins: u64, bin: u64) -> bool {
    let at = bins + 16 * bin;
    let own = at - 16;
    let [Some(first), Some(last)] = [image.word(at), image.word(at + 8)] else {
        return false;
    };
    let leads_back = |chunk: u64, distance: u64| {
        chunk == own || image.word(chunk.wrapping_add(distance)) == Some(own)
    };
    leads_back(first, 24) && leads_back(last, 16)
}

/// The arena whose first bin is at `bins`. Which one it is in the ring is not known yet.
fn read(image: &ProcessImage, bins: u64) -> Option<MallocArena> {
    let top = image.word(bins.checked_sub(TOP_DISTANCE)?)?;
    let system_memory = image.word(bins + SYSTEM_MEMORY_DISTANCE)?;
    let next = image.word(bins + NEXT_ARENA_DISTANCE)?;
    let is_sane = system_memory > 0 && system_memory < 1 << 46 && image.word(next).is_some();
    // An arena that nobody has used yet has its own bin as its top.
    let has_top = image
        .word(top.checked_add(8)?)
        .is_some_and(|size| size & !7 <= system_memory);
    (is_sane && has_top).then_some(MallocArena {
        at: 0,
        bins,
        top,
        system_memory,
        is_main: true,
    })
}

/// The arenas of the ring that this one is in, as far as it leads and as `left` of them, and
/// whether the ring leads back.
fn follow(
    image: &ProcessImage,
    mut main: MallocArena,
    left: &mut usize,
) -> (Vec<MallocArena>, bool) {
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    let mut next = image.word(main.bins + NEXT_ARENA_DISTANCE).unwrap_or(0);
    let may_begin = BIN_DISTANCES.map(|distance| main.bins - distance);
    main.at = may_begin[0];
    let shift = may_begin.iter().position(|&at| at == next);
    let mut shift = shift.map(|i| main.bins - may_begin[i]);
    let mut is_whole = true;
    while !may_begin.contains(&next) {
        // The parts of the others are aligned, and the first one has the arena in its beginning.
        let is_right = image.word(next & !(ARENA_PART_SIZE - 1)) == Some(next) && *left > 0;
        *left = left.saturating_sub(1);
        let distance = shift.or_else(|| distance(image, next));
        let found = distance.and_then(|distance| {
            shift = Some(distance);
            read(image, next.checked_add(distance)?)
        });
        let Some(found) = found.filter(|_| is_right && known.insert(next)) else {
            is_whole = false;
            break;
        };
        all.push(MallocArena {
            at: next,
            is_main: false,
            ..found
        });
        next = image.word(found.bins + NEXT_ARENA_DISTANCE).unwrap_or(0);
    }
    main.at = main.bins - shift.unwrap_or(BIN_DISTANCES[0]);
    // All have their bins at the same distance.
    is_whole &= main.at == next;
    all.insert(0, main);
    (all, is_whole)
}

/// How far the first bin of an arena is behind its beginning: at the distance at which most bins
/// are rings, because those next to it have other fields for some bins.
fn distance(image: &ProcessImage, arena: u64) -> Option<u64> {
    let count = |distance: u64| {
        let bins = arena.checked_add(distance).filter(|&bins| bins < 1 << 62)?;
        Some((rings(image, bins), distance))
    };
    let best = BIN_DISTANCES.into_iter().filter_map(count).max();
    best.filter(|(rings, _)| *rings >= MIN_RINGS)
        .map(|(_, distance)| distance)
}

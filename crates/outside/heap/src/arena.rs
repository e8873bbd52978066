//! Finds malloc's arenas by their contents, because libc may have no symbols.
//!
//! A bin of an arena is a ring of chunks. An empty bin leads to itself: both of its words hold the
//! bin's own address minus 16 (glibc's `malloc_state`, `malloc.c`). No other memory has dozens of
//! such pairs in a row. All versions since 2.26 have the same fields at the same distances from the
//! bins: `top` before them, `next` and `system_mem` after them. Until 2.42 ten lists of fast
//! chunks come before `top`.

use std::collections::HashSet;

use crate::image::{ImageRegion, ProcessImage};

/// Bytes of address space that malloc reserves for each part of an arena (`HEAP_MAX_SIZE`).
pub(crate) const ARENA_PART_SIZE: u64 = 64 << 20;
/// Minimum number of bins that must be rings for memory to count as an arena. An arena with more
/// damaged bins can't be walked anyway.
const MIN_RINGS: usize = 64;
/// Maximum number of arenas. A longer ring of arenas counts as broken. (An arena's number has 16
/// bits, and the last two values have other meanings.)
const MAX_ARENAS: usize = (1 << 16) - 2;

/// Possible distances from an arena's beginning to its first bin. glibc 2.27 added a word, and 2.43
/// dropped the lists of fast chunks.
const BIN_DISTANCES: [u64; 3] = [0x70, 0x68, BIN_DISTANCE_WITHOUT_FAST];
const BIN_DISTANCE_WITHOUT_FAST: u64 = 0x18;

// Distances from the first bin.
const FASTBINS_DISTANCE: u64 = 0x60;
const TOP_DISTANCE: u64 = 0x10;
const NEXT_ARENA_DISTANCE: u64 = 0x800;
const SYSTEM_MEMORY_DISTANCE: u64 = 0x818;
/// Bytes from an arena's first bin to the arena's end.
const ARENA_SIZE_FROM_BINS: u64 = 0x828;
/// Number of lists of fast chunks in an arena.
const FAST_LIST_COUNT: u64 = 10;

/// An arena of malloc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MallocArena {
    /// Address of the arena's structure.
    pub at: u64,
    /// Address of the arena's first bin.
    pub(crate) bins: u64,
    /// Address of the last chunk, from which new chunks are cut.
    pub top: u64,
    /// Bytes that the arena has from the system, by its own count.
    pub system_memory: u64,
    /// Whether this is the main arena, whose chunks are in the program's heap (brk).
    pub is_main: bool,
}

impl MallocArena {
    /// Number of bins of an arena.
    pub(crate) const BIN_COUNT: u64 = 127;

    /// Iterates over the addresses of the words that point to the arena's lists of fast chunks.
    pub(crate) fn fast(&self) -> impl Iterator<Item = u64> {
        let first = self.bins.wrapping_sub(FASTBINS_DISTANCE);
        let count = match self.bins.wrapping_sub(self.at) {
            BIN_DISTANCE_WITHOUT_FAST => 0,
            _ => FAST_LIST_COUNT,
        };
        (0..count).map(move |i| first.wrapping_add(8 * i))
    }

    /// Returns the address range of the arena's structure. The pointers in the structure lead to
    /// chunks, but are not roots.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<u64> {
        self.at..self.bins.wrapping_add(ARENA_SIZE_FROM_BINS)
    }
}

/// Finds the arenas of a process, the main one first, and returns whether the list is complete. The
/// list is empty if there are no arenas.
///
/// The main arena's bins may seem to begin at several addresses, a few bins apart. At the right
/// address, the ring of arenas leads back to the main arena. If it does so for no address, the ring
/// is damaged or cut off. Then the address with the most intact bins is chosen.
pub(crate) fn find(image: &ProcessImage) -> (Vec<MallocArena>, bool) {
    let mut best: Option<(usize, MallocArena)> = None;
    // How many more arenas are followed while candidates for the main arena are tried.
    let mut left = 4 * MAX_ARENAS;
    let mut others = Vec::new();
    // libc's variables are in a file's mapping, which is a small part of the memory. If the
    // mappings are not known, they may be in any region.
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
        // A core file that was cut off may have only the other arenas, because they lie before the
        // main one.
        None => {
            others.truncate(MAX_ARENAS);
            (others, false)
        }
    }
}

/// Reads the arena whose first bin may be at `at`, and counts its bins that are rings.
fn candidate(image: &ProcessImage, at: u64) -> Option<(usize, MallocArena)> {
    let rings = rings(image, at);
    let arena = (rings >= MIN_RINGS).then(|| read(image, at))??;
    Some((rings, arena))
}

/// Returns the address of the arena whose first bin is at `bins`, if the arena lies in an arena
/// part. All arenas but the main one do.
fn in_part(image: &ProcessImage, bins: u64) -> Option<u64> {
    let mut may_begin = BIN_DISTANCES.iter().map(|distance| bins - distance);
    may_begin.find(|&at| image.word(at & !(ARENA_PART_SIZE - 1)) == Some(at))
}

/// Counts the bins that are rings, if the first bin is at `bins`.
fn rings(image: &ProcessImage, bins: u64) -> usize {
    let all = 0..MallocArena::BIN_COUNT;
    all.filter(|&bin| is_ring(image, bins, bin)).count()
}

/// Whether bin number `bin` is a ring, if the first bin is at `bins`: an empty bin, or one whose
/// first and last chunk lead back to it.
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

/// Reads the arena whose first bin is at `bins`, without following the ring of arenas.
fn read(image: &ProcessImage, bins: u64) -> Option<MallocArena> {
    let top = image.word(bins.checked_sub(TOP_DISTANCE)?)?;
    let system_memory = image.word(bins + SYSTEM_MEMORY_DISTANCE)?;
    let next = image.word(bins + NEXT_ARENA_DISTANCE)?;
    let is_sane = system_memory > 0 && system_memory < 1 << 46 && image.word(next).is_some();
    // An arena that was not used yet has its own bin as its top.
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

/// Follows the ring of arenas, from `main` on, until the ring ends or `left` arenas were read.
/// Returns these arenas, and whether the ring leads back to `main`.
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
        // The parts of other arenas are aligned, and the first part begins with the arena's
        // address.
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
    // All arenas have their bins at the same distance.
    is_whole &= main.at == next;
    all.insert(0, main);
    (all, is_whole)
}

/// Returns the distance from an arena's beginning to its first bin: of all possible distances, the
/// one at which most bins are rings. At a wrong distance, some bins overlap other fields.
fn distance(image: &ProcessImage, arena: u64) -> Option<u64> {
    let count = |distance: u64| {
        let bins = arena.checked_add(distance).filter(|&bins| bins < 1 << 62)?;
        Some((rings(image, bins), distance))
    };
    let best = BIN_DISTANCES.into_iter().filter_map(count).max();
    best.filter(|(rings, _)| *rings >= MIN_RINGS)
        .map(|(_, distance)| distance)
}

//! Walks the chunks of each arena in order, and finds the chunks that have a mapping of their own.

use std::collections::HashSet;
use std::ops::Range;

use heapprof_process::PAGE_SIZE;

use crate::arena::{self, ARENA_PART_SIZE, MallocArena};
use crate::error::HeapWalkError;
use crate::heap::{ChunkUse, HeapChunk, MallocHeap};
use crate::image::ProcessImage;
use crate::lists;
use crate::mapped_chunks;

/// Size of the smallest chunk, in bytes.
const MIN_CHUNK_SIZE: u64 = 32;
/// Size in bytes of the smallest separator chunk, which keeps its neighbours from being joined.
const FENCE_SIZE: u64 = 16;
/// Flag bit in a chunk's size: the previous chunk is in use.
const PREVIOUS_IN_USE_FLAG: u64 = 1;
/// Bits of a chunk's size that are flags.
const SIZE_FLAGS_MASK: u64 = 7;

impl MallocHeap {
    /// Walks the heap in an image.
    ///
    /// # Errors
    /// The process may have no heap of glibc's.
    pub fn walk(image: &ProcessImage) -> Result<Self, HeapWalkError> {
        let (arenas, has_all_arenas) = arena::find(image);
        if arenas.is_empty() {
            return Err(HeapWalkError::NoHeap {
                other: other_allocator(image),
                missing: image.missing,
            });
        }
        let mut chunks = Vec::new();
        let mut unwalked = Vec::new();
        let mut ranges = Vec::new();
        let mut main_start = None;
        for (number, arena) in arenas.iter().enumerate() {
            let number = number as u16;
            for part in parts(image, arena) {
                if arena.is_main {
                    main_start = Some(part.start);
                }
                ranges.push(part.clone());
                let end = walk(image, part.clone(), arena, number, &mut chunks);
                if end < part.end {
                    unwalked.push(end..part.end);
                }
            }
        }
        let mut walked = ranges.clone();
        walked.sort_unstable_by_key(|range| range.start);
        let is_walked = |at: u64| {
            let next = walked.partition_point(|range| range.end <= at);
            walked.get(next).is_some_and(|range| range.contains(&at))
        };
        for (chunk, whole) in mapped_chunks::find(image, is_walked) {
            chunks.push(chunk);
            ranges.push(whole);
        }
        let mut heap = Self::new(arenas, chunks, unwalked, ranges);
        heap.main_start = main_start;
        // If the main arena could not have all of its memory in the heap (brk), the rest is
        // elsewhere.
        let main = heap.arenas.first().filter(|arena| arena.is_main);
        if let (Some(main), Some(start)) = (main, main_start) {
            let top = image.word(main.top.wrapping_add(8)).unwrap_or(0) & !SIZE_FLAGS_MASK;
            let here = main.top.saturating_add(top).saturating_sub(start);
            // The heap may not begin at the beginning of a page.
            let here = here.saturating_add(PAGE_SIZE);
            heap.missing_main_bytes = main.system_memory.saturating_sub(here);
        }
        heap.has_all_arenas = has_all_arenas;
        lists::mark_free(image, &mut heap);
        Ok(heap)
    }
}

/// Names the allocator that the process uses instead of glibc's, in words; empty if it is not
/// known.
fn other_allocator(image: &ProcessImage) -> &'static str {
    const MUSL: &str = ": it uses musl, whose heap heapprof can't read";
    const KNOWN_ALLOCATORS: [(&str, &str); 6] = [
        (
            "jemalloc",
            ": it uses jemalloc, whose heap heapprof can't read",
        ),
        (
            "tcmalloc",
            ": it uses tcmalloc, whose heap heapprof can't read",
        ),
        (
            "mimalloc",
            ": it uses mimalloc, whose heap heapprof can't read",
        ),
        ("ld-musl", MUSL),
        // Debian's musl, whose loader is a link.
        ("linux-musl", MUSL),
        ("libc.so", ": its heap has not been used yet, or is damaged"),
    ];
    let has = |name: &str| {
        let in_path = |path: &[u8]| path.windows(name.len()).any(|part| part == name.as_bytes());
        let mut regions = image.regions().iter();
        regions.any(|region| region.name.contains(name))
            || image.files.iter().any(|file| in_path(&file.path))
    };
    let found = KNOWN_ALLOCATORS.iter().find(|(name, _)| has(name));
    found.map_or("", |(_, words)| words)
}

/// Returns the ranges in which an arena's chunks are. The main arena has the heap up to its top,
/// and the other arenas have reserved parts.
fn parts(image: &ProcessImage, arena: &MallocArena) -> Vec<Range<u64>> {
    if arena.is_main {
        return main_part(image, arena).into_iter().collect();
    }
    let mut parts = Vec::new();
    let mut heap = arena.top & !(ARENA_PART_SIZE - 1);
    let header = arena.at & (ARENA_PART_SIZE - 1);
    let mut known = HashSet::new();
    while heap.is_multiple_of(ARENA_PART_SIZE) && known.insert(heap) {
        let fields = [0, 8, 16].map(|distance| image.word(heap + distance));
        let [Some(owner), Some(before), Some(size)] = fields else {
            break;
        };
        if owner != arena.at || size > ARENA_PART_SIZE {
            break;
        }
        let begin = match arena.at & !(ARENA_PART_SIZE - 1) == heap {
            true => arena.range().end,
            false => heap + header,
        };
        let end = match arena.top & !(ARENA_PART_SIZE - 1) == heap {
            true => arena.top,
            // Two small chunks at the end keep neighbours apart.
            false => (heap + size).saturating_sub(MIN_CHUNK_SIZE),
        };
        let begin = begin.next_multiple_of(16);
        if begin < end {
            parts.push(begin..end);
        }
        if before == 0 {
            break;
        }
        heap = before;
    }
    parts
}

/// Returns the range of the heap (brk) in which chunks are. It begins at an address that libc has
/// stored, because the program may have taken the beginning of the heap for itself.
fn main_part(image: &ProcessImage, arena: &MallocArena) -> Option<Range<u64>> {
    // The heap may have pages that were never touched, so its pieces are joined.
    let regions = image.regions();
    let mut at = regions
        .partition_point(|region| region.start <= arena.top)
        .checked_sub(1)?;
    let reaches = |at: usize| regions[at].name == "[heap]" || regions[at].name.is_empty();
    while at > 0
        && reaches(at - 1)
        && regions[at - 1].name == regions[at].name
        && regions[at].start - regions[at - 1].range().end < 1 << 34
    {
        at -= 1;
    }
    let low = regions[at].start;
    let is_right = |start: u64| is_chain(image, start, arena.top);
    let noted = regions
        .iter()
        .filter(|region| region.range().contains(&arena.bins))
        .flat_map(|region| crate::image::words(&region.bytes))
        .filter(|word| (low..arena.top).contains(word))
        .map(|word| word.next_multiple_of(16));
    let joined = regions[at..]
        .iter()
        .map(|region| region.start.next_multiple_of(16));
    let joined = joined.take_while(|&start| start < arena.top);
    let mut starts: Vec<u64> = noted.chain(joined).collect();
    starts.sort_unstable();
    starts.dedup();
    let start = starts.iter().copied().find(|&start| is_right(start));
    start
        .or_else(|| starts.first().copied())
        .map(|start| start..arena.top)
}

/// Finds the address at which chunks continue after heap memory that the program took itself (by
/// `sbrk`).
fn resumption(image: &ProcessImage, from: u64, end: u64) -> Option<u64> {
    let mut places = (from.next_multiple_of(16)..end).step_by(16);
    places.find(|&start| is_chain(image, start, end))
}

/// Whether a row of chunks begins at `start` and reaches `end`, two separator chunks, or a length
/// that can't be chance.
fn is_chain(image: &ProcessImage, start: u64, end: u64) -> bool {
    let mut next = start;
    for _ in 0..1000 {
        if next >= end {
            return next == end && start < end;
        }
        let size = image
            .word(next + 8)
            .map_or(0, |size| size & !SIZE_FLAGS_MASK);
        if size == FENCE_SIZE {
            return next > start;
        }
        if size < MIN_CHUNK_SIZE || !size.is_multiple_of(16) {
            return false;
        }
        next = next.saturating_add(size);
    }
    true
}

/// Walks the chunks of a part. Returns the address where the walk ended: the part's end, if nothing
/// is wrong.
fn walk(
    image: &ProcessImage,
    part: Range<u64>,
    arena: &MallocArena,
    number: u16,
    chunks: &mut Vec<HeapChunk>,
) -> u64 {
    let mut next = part.start;
    // All headers in a region are read without searching for the region again.
    let mut region: Option<&crate::image::ImageRegion> = None;
    let mut word = |at: u64| {
        if !region.is_some_and(|region| region.range().contains(&at)) {
            region = image.region(at);
        }
        region?.word(at)
    };
    while next < part.end {
        let Some(header) = word(next + 8) else {
            return next;
        };
        let size = header & !SIZE_FLAGS_MASK;
        let end = next.saturating_add(size);
        if size < MIN_CHUNK_SIZE || !size.is_multiple_of(16) || end > part.end {
            // Two small chunks end a part, or lie before memory that the program took itself.
            let is_fence = size == FENCE_SIZE
                && word(next + FENCE_SIZE + 8)
                    .is_none_or(|after| after & !SIZE_FLAGS_MASK <= FENCE_SIZE);
            if is_fence && part.end - next <= 2 * MIN_CHUNK_SIZE {
                return part.end;
            }
            match is_fence
                .then(|| resumption(image, next + 2 * FENCE_SIZE, part.end))
                .flatten()
            {
                Some(start) => {
                    next = start;
                    continue;
                }
                None => return next,
            }
        }
        let Some(following) = word(end + 8) else {
            return next;
        };
        let kind = match following & PREVIOUS_IN_USE_FLAG {
            0 => ChunkUse::Free,
            _ => ChunkUse::InUse,
        };
        chunks.push(HeapChunk {
            at: next + 16,
            size: size - 8,
            arena: number,
            kind,
        });
        next = end;
    }
    if part.end == arena.top
        && let Some(header) = word(arena.top + 8)
    {
        chunks.push(HeapChunk {
            at: arena.top + 16,
            size: (header & !SIZE_FLAGS_MASK).saturating_sub(16),
            arena: number,
            kind: ChunkUse::Top,
        });
    }
    part.end
}

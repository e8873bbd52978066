//! Reads malloc's lists of free chunks, and computes the bytes that malloc can give back to the
//! kernel.
//!
//! A bin is a ring through the chunks in it (glibc's `malloc.c`). The first bin has chunks that
//! were not sorted by size yet, 62 bins have chunks of one size each, and 63 have chunks of larger
//! sizes.

use std::ops::Range;

use heapprof_process::PAGE_SIZE;

use crate::arena::MallocArena;
use crate::heap::{ChunkUse, HeapChunk, MallocHeap};
use crate::image::ProcessImage;
use crate::sum::BlockSum;

/// Size of the head of a free chunk (`struct malloc_chunk`), in bytes.
const FREE_HEAD_SIZE: u64 = 48;
/// Minimum number of bytes that malloc keeps in an arena's top.
const MIN_TOP_SIZE: u64 = 32;

/// The kind of a list of free chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FreeListKind {
    /// Lists in threads' caches.
    Cached,
    /// Lists of fast chunks.
    Fast,
    /// The bin of chunks that were not sorted by size yet.
    Unsorted,
    /// Bins whose chunks are of one size each.
    Small,
    /// Bins whose chunks are of several sizes.
    Large,
}

impl FreeListKind {
    /// Returns the kind's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cached => "caches",
            Self::Fast => "fast",
            Self::Unsorted => "unsorted",
            Self::Small => "small bins",
            Self::Large => "large bins",
        }
    }
}

/// A list of free chunks of an arena: one bin, or all chunks of one size in caches or in fast
/// lists. Sizes include the heads of the chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeList {
    /// The kind of list.
    pub kind: FreeListKind,
    /// Size of the smallest chunk in the list.
    pub from: u64,
    /// Size of the largest chunk in the list.
    pub to: u64,
    /// Number and bytes of all chunks in the list.
    pub sum: BlockSum,
}

impl FreeList {
    fn new(kind: FreeListKind) -> Self {
        Self {
            kind,
            from: u64::MAX,
            to: 0,
            sum: BlockSum::default(),
        }
    }

    fn add(&mut self, size: u64) {
        self.from = self.from.min(size);
        self.to = self.to.max(size);
        self.sum.add(size);
    }
}

/// Reads an arena's bins that are not empty, and counts the damaged bins. A bin is damaged if it
/// leads to a chunk that is already in another list (`is_listed`).
pub(crate) fn bins(
    image: &ProcessImage,
    heap: &MallocHeap,
    number: u16,
    arena: &MallocArena,
    is_listed: &mut [bool],
) -> (Vec<FreeList>, u64) {
    let (mut lists, mut broken) = (Vec::new(), 0);
    for bin in 0..MallocArena::BIN_COUNT {
        let head = arena.bins + 16 * bin;
        let own = head - 16;
        let mut list = FreeList::new(match bin {
            0 => FreeListKind::Unsorted,
            1..63 => FreeListKind::Small,
            _ => FreeListKind::Large,
        });
        let mut next = image.word(head).unwrap_or(0);
        while next != own && next != 0 {
            let at = next.wrapping_add(16);
            let found = heap.find(at).filter(|&found| {
                let chunk = &heap.chunks[found];
                let is_free = chunk.kind == ChunkUse::Free && chunk.arena == number;
                is_free && chunk.at == at && !std::mem::replace(&mut is_listed[found], true)
            });
            let Some(found) = found else {
                broken += 1;
                break;
            };
            list.add(heap.chunks[found].size + 8);
            next = image.word(at).unwrap_or(0);
        }
        if list.sum.blocks > 0 {
            lists.push(list);
        }
    }
    (lists, broken)
}

/// Adds a chunk of a cache or a fast list to the list of its kind and size. `lists` must be sorted
/// by kind and size.
pub(crate) fn add(lists: &mut Vec<FreeList>, kind: FreeListKind, size: u64) {
    let at = lists.binary_search_by_key(&(kind, size), |list| (list.kind, list.from));
    let at = at.unwrap_or_else(|at| {
        lists.insert(at, FreeList::new(kind));
        at
    });
    lists[at].add(size);
}

/// Whether free memory is fragmented: whether malloc could give back less than half of the `kept`
/// bytes that it keeps.
#[must_use]
pub fn is_fragmented(kept: u64, trimmable: u64) -> bool {
    trimmable.saturating_mul(2) < kept
}

/// Returns the number of bytes that `malloc_trim(0)` would give back. These are the whole pages
/// inside free chunks, after fast chunks were joined with free neighbours, and most of the main
/// arena's top. Only present pages count.
#[must_use]
pub fn trimmable_bytes(image: &ProcessImage, heap: &MallocHeap) -> u64 {
    let mut bytes = 0;
    let mut chunks = heap.chunks.iter().peekable();
    while let Some(first) = chunks.next() {
        let is_free = |chunk: &HeapChunk| matches!(chunk.kind, ChunkUse::Free | ChunkUse::Fast);
        let start = first.at - 16;
        let mut last = first;
        let mut all = is_free(first);
        let is_top = |chunk: &HeapChunk| chunk.kind == ChunkUse::Top;
        if !all && !is_top(first) {
            continue;
        }
        while all
            && let Some(next) = chunks.next_if(|next| {
                (is_free(next) || is_top(next))
                    && next.arena == first.arena
                    && next.at == last.at + last.size + 8
            })
        {
            last = next;
            all = is_free(next);
        }
        let is_main = heap
            .arenas
            .get(usize::from(first.arena))
            .is_some_and(|arena| arena.is_main);
        let range = match (is_top(last), is_main) {
            (false, _) => inner_pages(start, last.at + last.size - 8),
            (true, true) => top_pages(start, last.at + last.size),
            (true, false) => continue,
        };
        bytes += image.present(range);
    }
    bytes
}

/// Returns the pages that a free chunk fills completely. A trim gives these back.
fn inner_pages(start: u64, end: u64) -> Range<u64> {
    let first = (start + FREE_HEAD_SIZE).next_multiple_of(PAGE_SIZE);
    let size = end.saturating_sub(first);
    first..first + size / PAGE_SIZE * PAGE_SIZE
}

/// Returns the pages that a trim gives back from the end of the top.
fn top_pages(start: u64, end: u64) -> Range<u64> {
    let extra = (end - start).saturating_sub(MIN_TOP_SIZE + 1) / PAGE_SIZE * PAGE_SIZE;
    end - extra..end
}

//! Finds the free chunks that look as if they were in use: the chunks in threads' caches (tcache)
//! and in lists of fast chunks.
//!
//! A cache is a chunk of its own. Until 2.29 it has 64 counts of one byte and 64 lists. From 2.30
//! to 2.41 each count has two bytes. Since 2.42 there are 76 counts and 76 lists, and a count says
//! how many more chunks its list may take. Since 2.32 the link in a free chunk is hidden: it is
//! xored with its own address, shifted by 12 bits.

use crate::heap::{ChunkUse, HeapChunk, MallocHeap, MallocVersion};
use crate::image::ProcessImage;

/// Longest list that is followed: a longer one is a ring. (Lists of fast chunks have no limit.)
const MAX_LIST_LENGTH: usize = 1 << 24;

/// Layout of a thread's cache.
struct CacheLayout {
    /// Size of the cache in bytes.
    size: u64,
    /// Number of lists.
    lists: u64,
    /// Offset of the first list.
    first: u64,
    /// Bytes of one count.
    count: u64,
    /// Whether a count is the number of chunks in the list. Otherwise, a count is the number of
    /// chunks that the list may still take.
    counts: bool,
}

const CACHE_LAYOUTS: [CacheLayout; 3] = [
    CacheLayout {
        size: 0x240,
        lists: 64,
        first: 64,
        count: 1,
        counts: true,
    },
    CacheLayout {
        size: 0x280,
        lists: 64,
        first: 128,
        count: 2,
        counts: true,
    },
    CacheLayout {
        size: 0x2f8,
        lists: 76,
        first: 152,
        count: 2,
        counts: false,
    },
];

/// Number of lists whose chunks are all of one size: 24, 40, 56 … bytes.
const ONE_SIZE_LISTS: u64 = 64;

/// Marks the free chunks of caches and fast lists, and the caches themselves.
pub(crate) fn mark_free(image: &ProcessImage, heap: &mut MallocHeap) {
    let (layout, caches) = CACHE_LAYOUTS
        .iter()
        .map(|layout| (layout, caches(image, heap, layout)))
        .max_by_key(|(_, caches)| caches.len())
        .unwrap_or((&CACHE_LAYOUTS[1], Vec::new()));
    let mut heads: Vec<(u64, ChunkUse)> = Vec::new();
    for &cache in &caches {
        let at = heap.chunks[cache].at;
        let lists = (0..layout.lists).map(|i| at + layout.first + 8 * i);
        heads.extend(lists.map(|head| (head, ChunkUse::Cached)));
    }
    for arena in &heap.arenas {
        heads.extend(arena.fast().map(|head| (head, ChunkUse::Fast)));
    }
    let hides_links = hides_links(image, heap, &heads);
    heap.version = MallocVersion {
        hides_links,
        cache: if caches.is_empty() { 0 } else { layout.size },
    };
    for cache in caches {
        heap.chunks[cache].kind = ChunkUse::Cache;
    }
    for (head, kind) in heads {
        let first = image.word(head).unwrap_or(0);
        // Links of fast chunks lead to the head of a chunk, those of caches to its bytes.
        let shift = if kind == ChunkUse::Fast { 16 } else { 0 };
        let mut next = first;
        for _ in 0..MAX_LIST_LENGTH {
            if next == 0 {
                break;
            }
            let at = next.wrapping_add(shift);
            let Some(found) = chunk_at(heap, at) else {
                heap.broken_links += 1;
                break;
            };
            if heap.chunks[found].kind != ChunkUse::InUse {
                // The chunk is in another list or free already, so this list leads back or astray.
                heap.broken_links += 1;
                break;
            }
            heap.chunks[found].kind = kind;
            let link = image.word(at).unwrap_or(0);
            next = reveal_link(link, at, hides_links);
        }
    }
}

/// Returns the plain value of a link that is stored at an address.
fn reveal_link(link: u64, at: u64, is_hidden: bool) -> u64 {
    match is_hidden {
        true => link ^ (at >> 12),
        false => link,
    }
}

/// Returns the number of the chunk that begins at an address.
fn chunk_at(heap: &MallocHeap, at: u64) -> Option<usize> {
    heap.find(at).filter(|&found| heap.chunks[found].at == at)
}

/// Returns the numbers of the chunks that look like caches of a layout.
fn caches(image: &ProcessImage, heap: &MallocHeap, layout: &CacheLayout) -> Vec<usize> {
    let is_cache = |chunk: &HeapChunk| {
        // The size of the block that malloc returns for a request of `layout.size` bytes.
        let size = (layout.size + 8).next_multiple_of(16) - 8;
        if chunk.size != size || chunk.kind != ChunkUse::InUse {
            return false;
        }
        let mut used = 0;
        for list in 0..layout.lists {
            let bytes =
                image.bytes(chunk.at + list * layout.count..chunk.at + (list + 1) * layout.count);
            let count = bytes
                .iter()
                .rev()
                .fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
            let Some(head) = image.word(chunk.at + layout.first + 8 * list) else {
                return false;
            };
            if layout.counts && (count == 0) != (head == 0) {
                return false;
            }
            if head == 0 {
                continue;
            }
            let Some(found) = chunk_at(heap, head) else {
                return false;
            };
            let size = heap.chunks[found].size;
            if list < ONE_SIZE_LISTS && size != 24 + 16 * list {
                return false;
            }
            used += 1;
        }
        used > 0
    };
    let all = heap.chunks.iter().enumerate();
    all.filter(|(_, chunk)| is_cache(chunk))
        .map(|(number, _)| number)
        .collect()
}

/// Whether links in lists of free chunks are hidden. The links are read in both forms, and the form
/// in which more links lead to chunks is right.
fn hides_links(image: &ProcessImage, heap: &MallocHeap, heads: &[(u64, ChunkUse)]) -> bool {
    let leads = |is_hidden: bool| {
        let is_right = |&&(head, kind): &&(u64, ChunkUse)| {
            let first = image.word(head).unwrap_or(0);
            if first == 0 {
                return false;
            }
            let shift = if kind == ChunkUse::Fast { 16 } else { 0 };
            let at = first.wrapping_add(shift);
            let Some(link) = image.word(at) else {
                return false;
            };
            let next = reveal_link(link, at, is_hidden);
            next == 0 || chunk_at(heap, next.wrapping_add(shift)).is_some()
        };
        heads.iter().filter(is_right).count()
    };
    leads(true) >= leads(false)
}

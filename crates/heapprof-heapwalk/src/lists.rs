//! Free chunks that look as if they were in use: those in threads' caches (tcache) and in lists of
//! fast chunks.
//!
//! A cache is a chunk of its own. Until 2.29 it has 64 counts of a byte and 64 lists, until 2.41
//! counts of two bytes, and since 2.42 76 of each, where a count says what is left. Since 2.32 the
//! link in a free chunk is hidden: it is xored with its own address, shifted by 12 bits.

use crate::heap::{Chunk, Heap, Use, Version};
use crate::image::Image;

/// A list that is longer than this is a ring. (Fast chunks have no limit.)
const LONGEST: usize = 1 << 24;

/// How a cache is laid out.
struct Layout {
    /// Bytes of the cache.
    size: u64,
    /// How many lists it has, and where the first one is.
    lists: u64,
    first: u64,
    /// How many bytes a count has, and whether it says how many there are.
    count: u64,
    counts: bool,
}

const LAYOUTS: [Layout; 3] = [
    Layout {
        size: 0x240,
        lists: 64,
        first: 64,
        count: 1,
        counts: true,
    },
    Layout {
        size: 0x280,
        lists: 64,
        first: 128,
        count: 2,
        counts: true,
    },
    Layout {
        size: 0x2f8,
        lists: 76,
        first: 152,
        count: 2,
        counts: false,
    },
];

/// Lists of one size have chunks of 24, 40, 56 … bytes.
const OF_ONE_SIZE: u64 = 64;

/// Marks the chunks that are free, and the caches.
pub(crate) fn mark_free(image: &Image, heap: &mut Heap) {
    let (layout, caches) = LAYOUTS
        .iter()
        .map(|layout| (layout, caches(image, heap, layout)))
        .max_by_key(|(_, caches)| caches.len())
        .unwrap_or((&LAYOUTS[1], Vec::new()));
    let mut heads: Vec<(u64, Use)> = Vec::new();
    for &cache in &caches {
        let at = heap.chunks[cache].at;
        let lists = (0..layout.lists).map(|i| at + layout.first + 8 * i);
        heads.extend(lists.map(|head| (head, Use::Cached)));
    }
    for arena in &heap.arenas {
        heads.extend(arena.fast().map(|head| (head, Use::Fast)));
    }
    let hides_links = hides_links(image, heap, &heads);
    heap.version = Version {
        hides_links,
        cache: if caches.is_empty() { 0 } else { layout.size },
    };
    for cache in caches {
        heap.chunks[cache].kind = Use::Cache;
    }
    for (head, kind) in heads {
        let first = image.word(head).unwrap_or(0);
        // Links of fast chunks lead to the head of a chunk, those of caches to its bytes.
        let shift = if kind == Use::Fast { 16 } else { 0 };
        let mut next = first;
        for _ in 0..LONGEST {
            if next == 0 {
                break;
            }
            let at = next.wrapping_add(shift);
            let Some(found) = exact(heap, at) else {
                heap.broken_links += 1;
                break;
            };
            if heap.chunks[found].kind != Use::InUse {
                // It is in a list already, or free otherwise, so this one leads back or astray.
                heap.broken_links += 1;
                break;
            }
            heap.chunks[found].kind = kind;
            let link = image.word(at).unwrap_or(0);
            next = shown(link, at, hides_links);
        }
    }
}

/// The link that stands at an address.
fn shown(link: u64, at: u64, is_hidden: bool) -> u64 {
    match is_hidden {
        true => link ^ (at >> 12),
        false => link,
    }
}

/// The chunk that begins at an address.
fn exact(heap: &Heap, at: u64) -> Option<usize> {
    heap.find(at).filter(|&found| heap.chunks[found].at == at)
}

/// The chunks that look like caches of this layout.
fn caches(image: &Image, heap: &Heap, layout: &Layout) -> Vec<usize> {
    let is_cache = |chunk: &Chunk| {
        // What malloc gives to whoever asks for so many bytes.
        let size = (layout.size + 8).next_multiple_of(16) - 8;
        if chunk.size != size || chunk.kind != Use::InUse {
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
            let Some(found) = exact(heap, head) else {
                return false;
            };
            let size = heap.chunks[found].size;
            if list < OF_ONE_SIZE && size != 24 + 16 * list {
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

/// Whether links are hidden: whichever way of reading leads to more chunks.
fn hides_links(image: &Image, heap: &Heap, heads: &[(u64, Use)]) -> bool {
    let leads = |is_hidden: bool| {
        let is_right = |&&(head, kind): &&(u64, Use)| {
            let first = image.word(head).unwrap_or(0);
            if first == 0 {
                return false;
            }
            let shift = if kind == Use::Fast { 16 } else { 0 };
            let at = first.wrapping_add(shift);
            let Some(link) = image.word(at) else {
                return false;
            };
            let next = shown(link, at, is_hidden);
            next == 0 || exact(heap, next.wrapping_add(shift)).is_some()
        };
        heads.iter().filter(is_right).count()
    };
    leads(true) >= leads(false)
}

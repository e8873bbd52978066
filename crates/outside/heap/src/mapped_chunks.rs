//! Finds large chunks, which have a mapping of their own.
//!
//! Such a mapping begins with a head: the number of unused bytes before the head (for alignment),
//! and a size with the flag for "mapped" (glibc's `sysmalloc_mmap`). Until 2.42 the size is all
//! bytes from the head to the mapping's end; in 2.43 it is less by the size of a head. The kernel
//! joins adjacent mappings into one.

use std::ops::Range;

use heapprof_process::PAGE_SIZE;

use crate::heap::{ChunkUse, HeapChunk};
use crate::image::ProcessImage;

/// Flag bit in a chunk's size: the chunk has a mapping of its own.
const MAPPED_FLAG: u64 = 2;
/// Size of a head in bytes.
const HEAD_SIZE: u64 = 16;
/// Exponents of the powers of two that are tried as a block's alignment.
const ALIGNMENT_POWERS: std::ops::RangeInclusive<u32> = 5..=26;

/// Finds the chunks that have a mapping of their own, each with the range of its mapping. Addresses
/// for which `is_walked` returns true are left out.
pub(crate) fn find(
    image: &ProcessImage,
    is_walked: impl Fn(u64) -> bool,
) -> Vec<(HeapChunk, Range<u64>)> {
    let mut found: Vec<(HeapChunk, Range<u64>)> = Vec::new();
    for region in image.regions() {
        if !region.name.is_empty() || region.is_shared || !region.is_root() {
            continue;
        }
        let mut at = region.start.next_multiple_of(PAGE_SIZE);
        let end = region.range().end;
        while at < end {
            let is_known =
                is_walked(at) || found.last().is_some_and(|(_, last)| last.contains(&at));
            if !is_known && let Some(one) = head(image, at) {
                let next = one.1.end;
                found.push(one);
                at = next.max(at + PAGE_SIZE);
                continue;
            }
            at += PAGE_SIZE;
        }
    }
    found
}

/// Returns the chunk whose mapping begins at `at`, with the range of the mapping.
fn head(image: &ProcessImage, at: u64) -> Option<(HeapChunk, Range<u64>)> {
    // The gap before an aligned block is at least as large as a head, or there is none.
    let aligned = ALIGNMENT_POWERS.flat_map(|power| {
        let first = (at + HEAD_SIZE + 1).next_multiple_of(1 << power) - HEAD_SIZE;
        [first, first + (1 << power)]
    });
    // Before an aligned block, the head that it would have had without alignment is still there, so
    // aligned heads are tried first.
    aligned.chain(std::iter::once(at)).find_map(|head| {
        let before = image.word(head)?;
        let size = image.word(head + 8)?;
        let bytes = size & !7;
        if before != head - at
            || size & 7 != MAPPED_FLAG
            || !(PAGE_SIZE / 2..1 << 46).contains(&bytes)
        {
            return None;
        }
        // How many bytes of the size are malloc's, and how many bytes of the mapping are not in the
        // size.
        let (own, more) = match (before + bytes) % PAGE_SIZE {
            0 => (HEAD_SIZE, 0),
            rest if rest == PAGE_SIZE - HEAD_SIZE => (HEAD_SIZE / 2, HEAD_SIZE),
            _ => return None,
        };
        if !image.is_mapped(&(at..head + bytes + more)) {
            return None;
        }
        let chunk = HeapChunk {
            at: head + HEAD_SIZE,
            size: bytes - own,
            arena: HeapChunk::MAPPED_ARENA,
            kind: ChunkUse::InUse,
        };
        Some((chunk, at..head + bytes + more))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageRegion;

    const START: u64 = 0x7f00_0000_0000;

    /// Finds the chunks in a mapping of 16 pages. `heads` are the heads in it, with their distances
    /// from the mapping's beginning. Returns each chunk's address and size, and the range of its
    /// mapping.
    fn chunks(heads: &[(u64, [u64; 2])]) -> Vec<(u64, u64, Range<u64>)> {
        let mut bytes = vec![0; 16 * PAGE_SIZE as usize];
        for (at, words) in heads {
            for (at, word) in (*at as usize..).step_by(8).zip(words) {
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        let region = ImageRegion {
            start: START,
            bytes,
            is_writable: true,
            ..ImageRegion::default()
        };
        let image = ProcessImage::new(vec![region], Vec::new(), 0);
        let found = find(&image, |at| at == START + 15 * PAGE_SIZE);
        let place = |(chunk, range): (HeapChunk, Range<u64>)| {
            assert_eq!(chunk.arena, HeapChunk::MAPPED_ARENA);
            let range = range.start - START..range.end - START;
            (chunk.at - START, chunk.size, range)
        };
        found.into_iter().map(place).collect()
    }

    #[test]
    fn a_head_at_a_page_has_whole_pages() {
        let pages = |count: u64| count * PAGE_SIZE;
        // The kernel joins two mappings, and something else lies behind them.
        let found = chunks(&[(0, [0, pages(3) | 2]), (pages(3), [0, pages(2) | 2])]);
        assert_eq!(
            found,
            [
                (16, pages(3) - 16, 0..pages(3)),
                (pages(3) + 16, pages(2) - 16, pages(3)..pages(5))
            ]
        );
        // Since 2.43 the size does not count a head.
        let found = chunks(&[(0, [0, (pages(3) - 16) | 2])]);
        assert_eq!(found, [(16, pages(3) - 24, 0..pages(3))]);
    }

    #[test]
    fn a_head_may_stand_before_an_aligned_block() {
        let before = 256 - 16;
        let size = 3 * PAGE_SIZE - before;
        // The head that the block would have without alignment is there, too.
        let found = chunks(&[(0, [0, (3 * PAGE_SIZE) | 2]), (before, [before, size | 2])]);
        assert_eq!(found, [(256, size - 16, 0..3 * PAGE_SIZE)]);
    }

    #[test]
    fn what_only_resembles_a_head_is_none() {
        for head in [
            [0, 3 * PAGE_SIZE],
            [0, (3 * PAGE_SIZE) | 1],
            [0, (3 * PAGE_SIZE) | 3],
            [8, (3 * PAGE_SIZE) | 2],
            [0, (3 * PAGE_SIZE + 32) | 2],
            [0, 2],
            [0, 1 << 50 | 2],
        ] {
            assert_eq!(chunks(&[(0, head)]), [], "{head:x?}");
        }
        // What was walked is no mapping of a chunk.
        assert_eq!(chunks(&[(15 * PAGE_SIZE, [0, PAGE_SIZE | 2])]), []);
    }
}

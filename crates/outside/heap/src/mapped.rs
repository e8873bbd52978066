//! Finds chunks that have a mapping of their own, because they are large.
//!
//! Such a mapping begins with a head: the number of unused bytes before the head (for alignment),
//! and a size with the flag for "mapped" (glibc's `sysmalloc_mmap`). Until 2.42 the size is that of
//! the whole rest; in 2.43 it does not count the bytes of a head. The kernel joins adjacent
//! mappings into one.

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

/// Finds the chunks, each with the range of its mapping. Addresses for which `is_walked` returns
/// true are left out.
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

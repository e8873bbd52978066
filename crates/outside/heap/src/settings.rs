//! Finds malloc's settings and counts, such as the minimum size of blocks with a mapping of their
//! own.
//!
//! All of them are in one structure (`malloc_par`) beside the main arena. The structure is found by
//! a word in it, the address at which the heap begins. Since 2.35 it has three more fields, and
//! since 2.43 a fourth one.

use crate::heap::MallocHeap;
use crate::image::{ImageRegion, ProcessImage};

/// malloc's settings and counts that a report shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MallocSettings {
    /// Minimum size in bytes of blocks that get a mapping of their own.
    pub mmap_threshold: u64,
    /// Minimum size in bytes of a top that `free` gives back to the kernel.
    pub trim_threshold: u64,
    /// Whether malloc raises the thresholds when a block with a mapping of its own is freed.
    pub is_dynamic: bool,
    /// Number of blocks that have a mapping of their own now.
    pub mapped_blocks: u64,
    /// Bytes of the blocks that have a mapping of their own now.
    pub mapped_bytes: u64,
    /// Largest number of bytes that blocks with a mapping of their own had at one time.
    pub max_mapped_bytes: u64,
}

/// Layout of the structure `malloc_par`: the offsets of the counts (four of 4 bytes), of the bytes
/// of mapped blocks, and of the heap's address.
struct SettingsLayout {
    counts: u64,
    bytes: u64,
    heap: u64,
}

const SETTINGS_LAYOUTS: [SettingsLayout; 3] = [
    SettingsLayout {
        counts: 68,
        bytes: 88,
        heap: 104,
    },
    SettingsLayout {
        counts: 60,
        bytes: 80,
        heap: 96,
    },
    SettingsLayout {
        counts: 40,
        bytes: 56,
        heap: 72,
    },
];
/// Limit for plausible values of malloc's setting `arena_test`: the number of arenas that malloc
/// makes before it reads the number of processors.
const MAX_ARENA_TEST: u64 = 1 << 16;

/// Finds the settings. Returns `None` if there are none beside the main arena, or if the heap is
/// not where `brk` puts it.
pub(crate) fn find(image: &ProcessImage, heap: &MallocHeap) -> Option<MallocSettings> {
    let main = heap.arenas.first().filter(|arena| arena.is_main)?;
    let start = heap.main_start?;
    let region = image.region(main.bins)?;
    let begins = |at: &u64| {
        let word = region.word(*at);
        word.is_some_and(|word| word.checked_next_multiple_of(16) == Some(start))
    };
    let places = (region.start..region.range().end).step_by(8).filter(begins);
    let mut found = places.flat_map(|at| {
        let layouts = SETTINGS_LAYOUTS.iter();
        layouts.filter_map(move |layout| read(region, at.checked_sub(layout.heap)?, layout))
    });
    found.next()
}

/// Reads the settings at an address, if they make sense.
fn read(region: &ImageRegion, at: u64, layout: &SettingsLayout) -> Option<MallocSettings> {
    let word = |distance: u64| region.word(at + distance);
    let count = |i: u64| {
        let from = layout.counts + 4 * i;
        let word = word(from & !7)?;
        Some(word >> (8 * (from & 7)) & 0xffff_ffff)
    };
    let [mapped, limit, most, fixed] = [count(0)?, count(1)?, count(2)?, count(3)?];
    let (bytes, most_bytes) = (word(layout.bytes)?, word(layout.bytes + 8)?);
    let threshold = word(16)?;
    let is_sane = mapped <= most
        && limit < 1 << 31
        && (mapped == 0) == (bytes == 0)
        && bytes <= most_bytes
        && bytes.is_multiple_of(4096)
        && most_bytes.is_multiple_of(4096)
        && fixed <= 1
        && (1..MAX_ARENA_TEST).contains(&word(24)?)
        && threshold < 1 << 46;
    is_sane.then_some(MallocSettings {
        mmap_threshold: threshold,
        trim_threshold: word(0)?,
        is_dynamic: fixed == 0,
        mapped_blocks: mapped,
        mapped_bytes: bytes,
        max_mapped_bytes: most_bytes,
    })
}

//! Divides the memory of a program by purpose: each byte of each mapping is in one part.
//!
//! The kernel counts the resident memory of a mapping. Within the mappings of malloc and of other
//! allocators, the copy of the memory says which pages were touched, and so how much of a free
//! block is resident.

use std::collections::BTreeMap;
use std::ops::Range;

use heapprof_heap::{ChunkUse, MallocHeap, ProcessImage};
use heapprof_process::{MappingKind, MeasuredMapping};
use heapprof_report::PartKind;

use crate::python_pools::PythonPools;

/// A program's memory, divided by purpose.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDivision {
    /// The bytes of each part.
    pub(crate) parts: BTreeMap<PartKind, u64>,
    /// The bytes of each named mapping, by part and name, with the number of mappings.
    pub(crate) named: BTreeMap<(PartKind, String), (u64, u64)>,
    /// Free bytes of malloc that are resident, by the number of the arena and by where malloc has
    /// them.
    pub(crate) free: BTreeMap<(u16, FreePlace), u64>,
    /// The anonymous mappings that are not malloc's, or the parts of such mappings, with their
    /// resident bytes.
    pub(crate) anonymous: Vec<AnonymousMemory>,
}

/// A private mapping of no file, or the part of it that no known allocator has.
#[derive(Clone, Debug)]
pub(crate) struct AnonymousMemory {
    /// The addresses of the mapping.
    pub(crate) range: Range<u64>,
    /// The name of the mapping, if the program gave it one.
    pub(crate) name: String,
    /// The resident bytes.
    pub(crate) bytes: u64,
}

/// Where malloc keeps free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FreePlace {
    /// In bins: holes between blocks in use.
    Bins,
    /// In lists of small blocks: the caches of threads, and fast bins.
    Caches,
    /// At the end of an arena.
    Top,
}

/// The copy of a program's memory, with the allocators that were recognized in it.
pub(crate) struct AllocatorView<'a> {
    /// The copy of the memory.
    pub(crate) image: &'a ProcessImage,
    /// malloc's heap, if it could be walked.
    pub(crate) heap: Option<&'a MallocHeap>,
    /// Python's pools of small objects.
    pub(crate) pools: &'a PythonPools,
}

impl MemoryDivision {
    /// Divides the memory of mappings, which are in order of their addresses. Without a view, all
    /// memory of malloc is in one part.
    pub(crate) fn new(mappings: &[MeasuredMapping], view: Option<&AllocatorView<'_>>) -> Self {
        let heap = view.and_then(|view| view.heap);
        let count = |ranges: &mut dyn Iterator<Item = Range<u64>>| match view {
            Some(view) => present_by_mapping(view.image, mappings, ranges),
            None => vec![0; mappings.len()],
        };
        let malloc = match heap {
            Some(heap) => count(&mut heap.ranges()),
            None => vec![0; mappings.len()],
        };
        let python = match view {
            Some(view) => count(&mut view.pools.ranges()),
            None => vec![0; mappings.len()],
        };
        let free = match (view, heap) {
            (Some(view), Some(heap)) => free_by_mapping(view.image, heap, mappings),
            _ => BTreeMap::new(),
        };
        let mut division = Self::default();
        for (at, mapping) in mappings.iter().enumerate() {
            let rss = mapping.usage.rss;
            let (part, has_blocks) = part_of(mapping);
            if !has_blocks {
                division.add_mapping(part, mapping, rss);
                continue;
            }
            let touched = resident(mapping, malloc[at]);
            let is_malloc_only = matches!(mapping.kind, MappingKind::Heap | MappingKind::Arena);
            let of_malloc = match (is_malloc_only, heap) {
                (true, Some(_)) if malloc[at] > 0 => rss,
                // Without a walk, malloc's own mappings are one part.
                (true, None) => {
                    division.add(PartKind::Malloc, rss);
                    continue;
                }
                _ => touched,
            };
            let kept = division.add_free(mapping, of_malloc, free.get(&at));
            division.add(PartKind::MallocInUse, of_malloc - kept);
            let objects = resident(mapping, python[at]).min(rss - of_malloc);
            division.add(PartKind::PythonObjects, objects);
            let rest = rss - of_malloc - objects;
            match part {
                PartKind::Code | PartKind::V8Heap => division.add_mapping(part, mapping, rest),
                PartKind::Stacks if of_malloc + objects == 0 => {
                    division.add_mapping(PartKind::Stacks, mapping, rest);
                }
                _ if rest > 0 => {
                    division.add(PartKind::Anonymous, rest);
                    division.anonymous.push(AnonymousMemory {
                        range: mapping.range.clone(),
                        name: mapping.name.clone(),
                        bytes: rest,
                    });
                }
                _ => {}
            }
        }
        division
    }

    /// Adds malloc's free memory in a mapping, of which malloc has `of_malloc` bytes. Returns the
    /// bytes that are free.
    fn add_free(
        &mut self,
        mapping: &MeasuredMapping,
        of_malloc: u64,
        free: Option<&BTreeMap<(u16, FreePlace), u64>>,
    ) -> u64 {
        let mut left = of_malloc;
        for (key, bytes) in free.into_iter().flatten() {
            let bytes = resident(mapping, *bytes).min(left);
            left -= bytes;
            *self.free.entry(*key).or_default() += bytes;
            self.add(PartKind::MallocFree, bytes);
        }
        of_malloc - left
    }

    /// Adds bytes of a mapping to a part, and to the name of the mapping.
    fn add_mapping(&mut self, part: PartKind, mapping: &MeasuredMapping, bytes: u64) {
        self.add(part, bytes);
        let name = match mapping.kind {
            MappingKind::Stack => "first thread",
            MappingKind::ThreadStack => "threads",
            _ => &mapping.name,
        };
        if bytes > 0 && !name.is_empty() {
            let (sum, count) = self.named.entry((part, name.to_string())).or_default();
            *sum = sum.saturating_add(bytes);
            *count = count.saturating_add(mapping.mappings);
        }
    }

    /// Adds bytes to a part.
    fn add(&mut self, part: PartKind, bytes: u64) {
        if bytes > 0 {
            let sum = self.parts.entry(part).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
}

/// Returns the part to which a mapping belongs, and whether allocators may have blocks in it.
fn part_of(mapping: &MeasuredMapping) -> (PartKind, bool) {
    match mapping.kind {
        MappingKind::Heap | MappingKind::Arena => (PartKind::Malloc, true),
        MappingKind::Anonymous => (PartKind::Anonymous, true),
        MappingKind::V8Heap => (PartKind::V8Heap, true),
        // The guard before a stack may also be the one before another allocator's memory.
        MappingKind::ThreadStack => (PartKind::Stacks, true),
        MappingKind::Stack => (PartKind::Stacks, false),
        // The kernel joins the variables at the end of a file with an allocator's memory behind.
        MappingKind::Program | MappingKind::Library => (PartKind::Code, mapping.is_anonymous),
        MappingKind::File => (PartKind::Files, false),
        MappingKind::Shared | MappingKind::Huge => (PartKind::Shared, false),
        MappingKind::Kernel => (PartKind::Kernel, false),
        MappingKind::Own => (PartKind::Own, false),
    }
}

/// Returns the resident part of `present` bytes of a mapping. The copy also has pages that were
/// swapped out; the kernel does not say which, so they are taken in proportion.
fn resident(mapping: &MeasuredMapping, present: u64) -> u64 {
    let (rss, swap) = (mapping.usage.rss, mapping.usage.swap);
    let bytes = match swap {
        0 => present,
        swap => (u128::from(present) * u128::from(rss) / u128::from(rss + swap)) as u64,
    };
    bytes.min(rss)
}

/// Bytes in each mapping, in the order of the mappings.
type BytesByMapping = Vec<u64>;

/// Returns the bytes of free chunks that the image has, by the index of the mapping, and then by
/// arena and place.
fn free_by_mapping(
    image: &ProcessImage,
    heap: &MallocHeap,
    mappings: &[MeasuredMapping],
) -> BTreeMap<usize, BTreeMap<(u16, FreePlace), u64>> {
    let mut free: BTreeMap<usize, BTreeMap<(u16, FreePlace), u64>> = BTreeMap::new();
    let mut first = 0;
    for chunk in &heap.chunks {
        let place = match chunk.kind {
            ChunkUse::InUse | ChunkUse::Cache => continue,
            ChunkUse::Free => FreePlace::Bins,
            ChunkUse::Fast | ChunkUse::Cached => FreePlace::Caches,
            ChunkUse::Top => FreePlace::Top,
        };
        each_piece(mappings, chunk.bytes(), &mut first, |at, piece| {
            let sums = free.entry(at).or_default();
            *sums.entry((chunk.arena, place)).or_default() += image.present(piece);
        });
    }
    free
}

/// Calls `each` with the index of each mapping that a range touches, and the part of the range in
/// it. `first` is the first mapping that may be touched. Ranges are passed in order of their
/// addresses.
fn each_piece(
    mappings: &[MeasuredMapping],
    range: Range<u64>,
    first: &mut usize,
    mut each: impl FnMut(usize, Range<u64>),
) {
    while mappings
        .get(*first)
        .is_some_and(|mapping| mapping.range.end <= range.start)
    {
        *first += 1;
    }
    let inside = mappings.iter().enumerate().skip(*first);
    for (at, mapping) in inside.take_while(|(_, mapping)| mapping.range.start < range.end) {
        let start = range.start.max(mapping.range.start);
        each(at, start..range.end.min(mapping.range.end));
    }
}

/// Returns the bytes of `ranges` that the image has, by mapping. Mappings and ranges are in order
/// of their addresses.
fn present_by_mapping(
    image: &ProcessImage,
    mappings: &[MeasuredMapping],
    ranges: &mut dyn Iterator<Item = Range<u64>>,
) -> BytesByMapping {
    let mut bytes = vec![0; mappings.len()];
    let mut first = 0;
    for range in ranges {
        each_piece(mappings, range, &mut first, |at, piece| {
            bytes[at] += image.present(piece);
        });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use heapprof_heap::ImageRegion;
    use heapprof_process::MemoryUsage;

    use super::*;

    fn mapping(kind: MappingKind, range: Range<u64>, rss: u64, swap: u64) -> MeasuredMapping {
        MeasuredMapping {
            range,
            kind,
            name: String::new(),
            is_anonymous: true,
            mappings: 1,
            usage: MemoryUsage {
                rss,
                swap,
                ..MemoryUsage::default()
            },
        }
    }

    fn image(pieces: &[Range<u64>]) -> ProcessImage {
        let region = |range: &Range<u64>| ImageRegion {
            start: range.start,
            bytes: vec![0; (range.end - range.start) as usize],
            is_writable: true,
            ..ImageRegion::default()
        };
        ProcessImage::new(pieces.iter().map(region).collect(), Vec::new(), 0)
    }

    #[test]
    fn ranges_are_counted_where_they_are_present() {
        let mappings = [
            mapping(MappingKind::Anonymous, 0x10000..0x20000, 0x4000, 0),
            mapping(MappingKind::Anonymous, 0x20000..0x30000, 0x2000, 0),
            mapping(MappingKind::Anonymous, 0x40000..0x50000, 0, 0),
        ];
        let image = image(&[0x10000..0x14000, 0x20000..0x22000]);
        let ranges = [0x13000..0x21000, 0x21800..0x21900, 0x40000..0x41000];
        let bytes = present_by_mapping(&image, &mappings, &mut ranges.into_iter());
        assert_eq!(bytes, [0x1000, 0x1100, 0]);
    }

    #[test]
    fn swapped_pages_are_taken_in_proportion() {
        let half = mapping(MappingKind::Heap, 0..0x10000, 0x2000, 0x2000);
        assert_eq!(resident(&half, 0x1000), 0x800);
        let whole = mapping(MappingKind::Heap, 0..0x10000, 0x2000, 0);
        // A page of zeros is present, and the kernel does not count it.
        assert_eq!(resident(&whole, 0x3000), 0x2000);
    }

    #[test]
    fn parts_add_up_without_a_copy() {
        let mappings = [
            mapping(MappingKind::Program, 0x1000..0x2000, 0x1000, 0),
            mapping(MappingKind::Heap, 0x10000..0x20000, 0x4000, 0),
            mapping(MappingKind::Anonymous, 0x20000..0x30000, 0x2000, 0),
            mapping(MappingKind::ThreadStack, 0x40000..0x50000, 0x3000, 0),
        ];
        let division = MemoryDivision::new(&mappings, None);
        let expected = [
            (PartKind::Malloc, 0x4000),
            (PartKind::Anonymous, 0x2000),
            (PartKind::Stacks, 0x3000),
            (PartKind::Code, 0x1000),
        ];
        assert_eq!(division.parts.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(division.anonymous.len(), 1);
    }
}

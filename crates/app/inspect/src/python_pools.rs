//! Finds the pools of CPython's allocator for small objects in a copy of a program's memory.
//!
//! Objects of up to 512 bytes lie in pools of one size, which CPython cuts from arenas that it maps
//! itself. A pool begins with a head that names its size and says how many objects it has
//! (`Include/internal/pycore_obmalloc.h`). Pools have 16 KiB since 3.10, and 4 KiB before.

use std::ops::Range;

use heapprof_heap::ProcessImage;

/// The sizes of pools in bytes, the present one first.
const POOL_SIZES: [u64; 2] = [16 << 10, 4 << 10];
/// Size of a pool's head in bytes.
const HEAD_SIZE: u64 = 48;
/// The sizes of objects are multiples of this number of bytes: of 16 since 3.8, of 8 before.
const ALIGNMENTS: [u64; 2] = [16, 8];
/// Largest size of an object in a pool.
const MAX_OBJECT_SIZE: u64 = 512;
/// Minimum number of pools. Fewer may be other memory that resembles them.
const MIN_POOLS: usize = 8;

/// A pool of objects of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PythonPool {
    start: u64,
    object_size: u64,
    objects: u64,
}

/// The pools of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct PythonPools {
    pools: Vec<PythonPool>,
    pool_size: u64,
}

impl PythonPools {
    /// Finds the pools in a copy of memory.
    pub(crate) fn find(image: &ProcessImage) -> Self {
        let found = POOL_SIZES.iter().flat_map(|&pool_size| {
            ALIGNMENTS.map(|alignment| Self {
                pools: pools(image, pool_size, alignment),
                pool_size,
            })
        });
        let most = found.max_by_key(|found| found.pools.len());
        most.filter(|found| found.pools.len() >= MIN_POOLS)
            .unwrap_or_default()
    }

    /// Returns the addresses of the pools, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let range = |pool: &PythonPool| pool.start..pool.start + self.pool_size;
        self.pools.iter().map(range)
    }

    /// Whether a range of memory has pools.
    pub(crate) fn are_in(&self, range: &Range<u64>) -> bool {
        let next = self.pools.partition_point(|pool| pool.start < range.start);
        let first = self.pools.get(next);
        first.is_some_and(|pool| range.contains(&pool.start))
    }

    /// Returns the bytes of all objects.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        let bytes = self
            .pools
            .iter()
            .map(|pool| pool.objects * pool.object_size);
        bytes.sum()
    }

    /// Returns the number and the bytes of the objects of each size.
    pub(crate) fn by_size(&self) -> Vec<(u64, u64)> {
        let mut sums: Vec<(u64, u64)> = Vec::new();
        for pool in &self.pools {
            match sums.iter_mut().find(|(size, _)| *size == pool.object_size) {
                Some((_, objects)) => *objects += pool.objects,
                None => sums.push((pool.object_size, pool.objects)),
            }
        }
        sums
    }
}

fn pools(image: &ProcessImage, pool_size: u64, alignment: u64) -> Vec<PythonPool> {
    let regions = image.regions().iter();
    let of_no_file =
        regions.filter(|region| region.name.is_empty() && region.is_root() && !region.is_shared);
    let starts = of_no_file.flat_map(|region| {
        let first = region.start.next_multiple_of(pool_size);
        (first..region.range().end).step_by(pool_size as usize)
    });
    starts
        .filter_map(|at| pool(image, at, pool_size, alignment))
        .collect()
}

/// Returns the pool at an address, if there is one.
fn pool(image: &ProcessImage, at: u64, pool_size: u64, alignment: u64) -> Option<PythonPool> {
    let word = |number: u64| image.word(at + 8 * number);
    let halves = |word: u64| (word & 0xffff_ffff, word >> 32);
    let (_, size_index) = halves(word(4)?);
    let (next_offset, last_offset) = halves(word(5)?);
    let object_size = (size_index + 1) * alignment;
    if object_size > MAX_OBJECT_SIZE || last_offset != pool_size - object_size {
        return None;
    }
    // The number of objects is half a word, and the other half is padding.
    let (objects, free, next, previous) = (word(0)? & 0xffff_ffff, word(1)?, word(2)?, word(3)?);
    let is_inside = |block: u64| block == 0 || (at + HEAD_SIZE..at + pool_size).contains(&block);
    let is_pool = objects <= (pool_size - HEAD_SIZE) / object_size
        && is_inside(free)
        && next != 0
        && previous != 0
        && (HEAD_SIZE..=pool_size).contains(&next_offset);
    is_pool.then_some(PythonPool {
        start: at,
        object_size,
        objects,
    })
}

#[cfg(test)]
mod tests {
    use heapprof_heap::ImageRegion;

    use super::*;

    const START: u64 = 0x7f00_0000_0000;

    /// Makes an image with `count` pools of 16 KiB, each with `objects` objects of 64 bytes.
    fn image(count: u64, objects: u64, last_offset: u64) -> ProcessImage {
        let pool_size = POOL_SIZES[0];
        let mut bytes = vec![0; (count * pool_size) as usize];
        for number in 0..count {
            let at = START + number * pool_size;
            let head = [objects, at + 112, at, at, 3 << 32, last_offset << 32 | 176];
            for (word, to) in head
                .iter()
                .zip(bytes[(at - START) as usize..].chunks_mut(8))
            {
                to.copy_from_slice(&word.to_le_bytes());
            }
        }
        let region = ImageRegion {
            start: START,
            bytes,
            is_writable: true,
            ..ImageRegion::default()
        };
        ProcessImage::new(vec![region], Vec::new(), 0)
    }

    #[test]
    fn pools_are_known_by_their_heads() {
        let last = POOL_SIZES[0] - 64;
        let found = PythonPools::find(&image(10, 2, last));
        assert_eq!(found.ranges().count(), 10);
        assert_eq!(found.bytes_in_use(), 10 * 2 * 64);
        assert_eq!(found.by_size(), [(64, 20)]);
    }

    #[test]
    fn what_only_resembles_pools_is_none() {
        let last = POOL_SIZES[0] - 64;
        // Few pools, more objects than there is room, and an offset of another size.
        for image in [
            image(3, 2, last),
            image(10, 256, last),
            image(10, 2, last - 16),
        ] {
            assert_eq!(PythonPools::find(&image).ranges().count(), 0);
        }
    }
}

//! Sums of each stack: its allocations, its memory in use, and its memory in use when the heap was
//! largest.
//!
//! If the heap is largest at several moments, memray takes the last of them as the peak. So the
//! peak includes blocks of 0 bytes that are allocated while the heap has this size.

use foldhash::HashMap;

use super::ranges::MemrayMappings;
use super::record::{MMAP, MUNMAP, MemrayAllocator, MemrayStackSum};
use crate::error::FormatError;
use crate::tally::overflow;

/// The sample types of a list of allocations. A file with sums has only the last four.
pub(super) const SAMPLE_TYPES: [(&str, &str); 6] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// Origin of an allocation: its thread, its stack, and the function that allocated the memory.
pub(super) type MemraySiteKey = (u32, u32, MemrayAllocator);

/// The sums of one thread, stack and allocating function, in blocks and bytes.
struct MemraySite {
    key: MemraySiteKey,
    allocated: [i64; 2],
    in_use: [i64; 2],
    /// Memory that was in use when the heap was largest. If the heap was largest at or after the
    /// event `changed`, this memory is `in_use` instead.
    in_use_at_peak: [i64; 2],
    /// Number of the event that changed `in_use` last.
    changed: u64,
}

/// The sums of all sites that allocate, and the tables to find the sums for an event.
#[derive(Default)]
pub(super) struct MemraySites {
    site: Vec<MemraySite>,
    number: HashMap<MemraySiteKey, u32>,
    /// Size and site of each live block, by its address.
    block: HashMap<u64, (i64, u32)>,
    mapped: MemrayMappings,
    /// Number of events so far. The next field is the event at which the heap was largest.
    event: u64,
    peak_event: u64,
    total: i64,
    peak: i64,
}

impl MemraySites {
    /// Estimates how many bytes of memory the sites take.
    pub(super) fn memory(&self) -> u64 {
        let tables = size_of_val(&self.site[..])
            + self.number.capacity() * 2 * size_of::<(MemraySiteKey, u32)>()
            + self.block.capacity() * 2 * size_of::<(u64, (i64, u32))>();
        tables as u64 + self.mapped.memory()
    }

    fn site(&mut self, key: MemraySiteKey) -> Result<u32, FormatError> {
        if let Some(&number) = self.number.get(&key) {
            return Ok(number);
        }
        let number =
            u32::try_from(self.site.len()).map_err(|_| overflow("the number of stacks"))?;
        self.number.insert(key, number);
        self.site.push(MemraySite {
            key,
            allocated: [0; 2],
            in_use: [0; 2],
            in_use_at_peak: [0; 2],
            changed: 0,
        });
        Ok(number)
    }

    /// Counts an allocation or a free. `read` is the number of bytes of the file that were read.
    pub(super) fn event(
        &mut self,
        key: MemraySiteKey,
        address: u64,
        size: u64,
        read: u64,
    ) -> Result<(), FormatError> {
        self.event += 1;
        let (_, _, allocator) = key;
        match allocator {
            MUNMAP => {
                let end = address.saturating_add(size);
                if address < end {
                    for part in self.mapped.remove(address, end, read)? {
                        let bytes = number(part.bytes)?;
                        self.change(part.site, part.count, -bytes)?;
                        self.grow(-bytes)?;
                    }
                }
            }
            _ if !allocator.has_size() => {
                if let Some((size, site)) = self.block.remove(&address) {
                    self.change(site, -1, -size)?;
                    self.grow(-size)?;
                }
            }
            _ => self.count_allocation(key, address, number(size)?)?,
        }
        if self.total >= self.peak {
            self.peak = self.total;
            self.peak_event = self.event;
        }
        Ok(())
    }

    fn count_allocation(
        &mut self,
        key: MemraySiteKey,
        address: u64,
        size: i64,
    ) -> Result<(), FormatError> {
        let site = self.site(key)?;
        let allocated = &mut self.site[site as usize].allocated;
        add(allocated, [1, size], "what a stack allocated")?;
        self.grow(size)?;
        if key.2 == MMAP {
            if size == 0 {
                return Ok(());
            }
            let end = address.saturating_add(size.unsigned_abs());
            if address < end {
                self.mapped.add(address, end, site);
            }
        } else if let Some((before, site)) = self.block.insert(address, (size, site)) {
            // The free of the earlier block at this address was not recorded. As in memray, its
            // stack loses the block, but the heap does not get smaller.
            self.change(site, -1, -before)?;
        }
        self.change(site, 1, size)
    }

    /// Changes a site's memory in use. First stores the old amounts if they were in use when the
    /// heap was largest.
    fn change(&mut self, site: u32, blocks: i64, bytes: i64) -> Result<(), FormatError> {
        let site = &mut self.site[site as usize];
        if site.changed <= self.peak_event {
            site.in_use_at_peak = site.in_use;
        }
        site.changed = self.event;
        add(&mut site.in_use, [blocks, bytes], "what a stack holds")
    }

    fn grow(&mut self, bytes: i64) -> Result<(), FormatError> {
        let total = self.total.checked_add(bytes);
        self.total = total.ok_or_else(|| overflow("the size of the heap"))?;
        Ok(())
    }

    /// Adds a sum of a file that has sums instead of events.
    pub(super) fn sum(
        &mut self,
        key: MemraySiteKey,
        sum: &MemrayStackSum,
    ) -> Result<(), FormatError> {
        let site = self.site(key)?;
        let site = &mut self.site[site as usize];
        // These sites do not change after the peak.
        site.changed = u64::MAX;
        for (sums, values) in [
            (&mut site.in_use_at_peak, sum.peak),
            (&mut site.in_use, sum.in_use),
        ] {
            let [blocks, bytes] = values;
            add(
                sums,
                [number(blocks)?, number(bytes)?],
                "what a stack holds",
            )?;
        }
        Ok(())
    }

    /// Returns each site with its values, in the order of [`SAMPLE_TYPES`].
    pub(super) fn values(&self) -> impl Iterator<Item = (MemraySiteKey, [i64; 6])> {
        self.site.iter().map(|site| {
            let [blocks, bytes] = match site.changed <= self.peak_event {
                true => site.in_use,
                false => site.in_use_at_peak,
            };
            let [allocated, allocated_bytes] = site.allocated;
            let [held, held_bytes] = site.in_use;
            let values = [allocated, allocated_bytes, blocks, bytes, held, held_bytes];
            (site.key, values)
        })
    }
}

fn number(number: u64) -> Result<i64, FormatError> {
    i64::try_from(number).map_err(|_| overflow("the size of a block"))
}

fn add(sums: &mut [i64; 2], values: [i64; 2], what: &str) -> Result<(), FormatError> {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.checked_add(value).ok_or_else(|| overflow(what))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MALLOC: MemrayAllocator = MemrayAllocator::with_number(6);
    const FREE: MemrayAllocator = MemrayAllocator::with_number(5);

    /// Returns the values after events. Each event is a stack, an allocator, an address and a size.
    fn values(events: &[(u32, MemrayAllocator, u64, u64)]) -> Vec<[i64; 6]> {
        let mut sites = MemraySites::default();
        for &(stack, allocator, address, size) in events {
            sites
                .event((0, stack, allocator), address, size, 0)
                .unwrap();
        }
        sites.values().map(|(_, values)| values).collect()
    }

    #[test]
    fn sums_at_the_end_and_at_the_largest_moment() {
        // The last of two equal maxima is the peak, and it includes a block of no bytes.
        let equal = [
            (1, MALLOC, 16, 10),
            (0, FREE, 16, 0),
            (2, MALLOC, 16, 10),
            (3, MALLOC, 32, 0),
            (0, FREE, 16, 0),
        ];
        let expected = [
            [1, 10, 0, 0, 0, 0],
            [1, 10, 1, 10, 0, 0],
            [1, 0, 1, 0, 1, 0],
        ];
        assert_eq!(values(&equal), expected);
        // A block at an address where another block is in use.
        let again = [(1, MALLOC, 16, 10), (2, MALLOC, 16, 4), (0, FREE, 16, 0)];
        assert_eq!(values(&again), [[1, 10, 0, 0, 0, 0], [1, 4, 1, 4, 0, 0]]);
        // Frees of unknown blocks.
        assert_eq!(values(&[(0, FREE, 16, 0), (0, MUNMAP, 0, 99)]), [[0; 6]; 0]);
    }

    #[test]
    fn mappings_are_unmapped_in_parts() {
        let events = [
            (1, MMAP, 4096, 3 * 4096),
            (2, MMAP, 1 << 20, 0),
            (0, MUNMAP, 8192, 4096),
            (0, MUNMAP, 0, 8192),
        ];
        // A mapping of no bytes is ignored.
        let expected = [[1, 12_288, 1, 12_288, 1, 4096], [1, 0, 0, 0, 0, 0]];
        assert_eq!(values(&events), expected);
    }
}

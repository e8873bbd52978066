//! Sums of each trace: its allocations, its memory in use, and its memory in use when the heap was
//! largest.

use foldhash::HashMap;

use crate::error::FormatError;
use crate::tally::overflow;

/// The sample types: names and units of the values that [`HeaptrackSites::values`] returns.
pub(super) const SAMPLE_TYPES: [(&str, &str); 7] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("temporary_objects", "count"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// An allocation: a size and the trace that allocates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct HeaptrackAllocation {
    pub(super) size: i64,
    pub(super) trace: u32,
}

/// The sums of all traces that allocate, and the tables to find the sums for an event.
#[derive(Default)]
pub(super) struct HeaptrackSites {
    /// The size and site of each allocation that the file defines.
    definition: Vec<(i64, u32)>,
    site: Vec<HeaptrackSite>,
    /// Index in `site` of each trace, by trace number from 0; `NO_SITE` if the trace does not
    /// allocate.
    of_trace: Vec<u32>,
    /// Size and site of each live block by its address, in files of version 0.
    pointer: HashMap<u64, (i64, u32)>,
    /// Number of events so far. The next field is the event at which the heap was largest.
    event: u64,
    peak_event: u64,
    total: i64,
    peak: i64,
    /// The last allocation, or `Freed` if a block was freed after it.
    last: LastAllocation,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LastAllocation {
    #[default]
    Freed,
    Definition(usize),
    Pointer(u64),
}

const NO_SITE: u32 = u32::MAX;

/// The sums of a trace, in blocks and bytes.
#[derive(Default)]
struct HeaptrackSite {
    trace: u32,
    allocated: [i64; 2],
    temporary: i64,
    in_use: [i64; 2],
    /// Memory that was in use when the heap was largest. If the heap was largest at or after the
    /// event `changed`, this memory is `in_use` instead.
    in_use_at_peak: [i64; 2],
    /// Number of the event that changed `in_use` last.
    changed: u64,
}

impl HeaptrackSite {
    /// Changes the memory in use. First stores the old amounts if they were in use when the heap
    /// was largest.
    fn change(&mut self, event: u64, peak_event: u64, sign: i64, size: i64) -> Option<()> {
        if self.changed <= peak_event {
            self.in_use_at_peak = self.in_use;
        }
        self.changed = event;
        self.in_use[0] = self.in_use[0].checked_add(sign)?;
        self.in_use[1] = self.in_use[1].checked_add(sign.checked_mul(size)?)?;
        Some(())
    }
}

impl HeaptrackSites {
    /// Estimates how many bytes of memory the sites take.
    pub(super) fn memory(&self) -> u64 {
        let sites = size_of_val(&self.definition[..])
            + size_of_val(&self.site[..])
            + size_of_val(&self.of_trace[..])
            + self.pointer.capacity() * 2 * size_of::<(u64, (i64, u32))>();
        sites as u64
    }

    /// Returns the number of allocations that the file has defined.
    pub(super) fn definitions(&self) -> usize {
        self.definition.len()
    }

    /// Defines the next allocation.
    pub(super) fn define(&mut self, allocation: HeaptrackAllocation) -> Result<(), FormatError> {
        let site = self.site_of(allocation.trace)?;
        self.definition.push((allocation.size, site));
        Ok(())
    }

    fn site_of(&mut self, trace: u32) -> Result<u32, FormatError> {
        let at = trace as usize;
        if self.of_trace.len() <= at {
            self.of_trace.resize(at + 1, NO_SITE);
        }
        if self.of_trace[at] == NO_SITE {
            let number =
                u32::try_from(self.site.len()).map_err(|_| overflow("the number of traces"))?;
            self.of_trace[at] = number;
            self.site.push(HeaptrackSite {
                trace,
                ..HeaptrackSite::default()
            });
        }
        Ok(self.of_trace[at])
    }

    /// Counts a new block of a defined allocation.
    pub(super) fn count_allocation(&mut self, number: usize) -> Result<(), FormatError> {
        let (size, site) = self.definition[number];
        self.last = LastAllocation::Definition(number);
        self.add(size, site)
    }

    /// Counts a freed block of a defined allocation.
    pub(super) fn count_free(&mut self, number: usize) -> Result<(), FormatError> {
        let (size, site) = self.definition[number];
        let temporary = self.last == LastAllocation::Definition(number);
        self.remove(size, site, temporary)
    }

    /// Counts a new block at an address.
    pub(super) fn count_allocation_at(
        &mut self,
        pointer: u64,
        allocation: HeaptrackAllocation,
    ) -> Result<(), FormatError> {
        let site = self.site_of(allocation.trace)?;
        self.pointer.insert(pointer, (allocation.size, site));
        self.last = LastAllocation::Pointer(pointer);
        self.add(allocation.size, site)
    }

    /// Counts the block at an address as freed. A block from before heaptrack was attached is
    /// unknown and is ignored.
    pub(super) fn count_free_at(&mut self, pointer: u64) -> Result<(), FormatError> {
        match self.pointer.remove(&pointer) {
            Some((size, site)) => {
                let temporary = self.last == LastAllocation::Pointer(pointer);
                self.remove(size, site, temporary)
            }
            None => Ok(()),
        }
    }

    fn add(&mut self, size: i64, site: u32) -> Result<(), FormatError> {
        self.event += 1;
        let site = &mut self.site[site as usize];
        let added = site
            .change(self.event, self.peak_event, 1, size)
            .and_then(|()| {
                site.allocated[0] = site.allocated[0].checked_add(1)?;
                site.allocated[1] = site.allocated[1].checked_add(size)?;
                self.total = self.total.checked_add(size)?;
                Some(())
            });
        added.ok_or_else(|| overflow("what a trace allocated"))?;
        if self.total > self.peak {
            self.peak = self.total;
            self.peak_event = self.event;
        }
        Ok(())
    }

    fn remove(&mut self, size: i64, site: u32, temporary: bool) -> Result<(), FormatError> {
        self.event += 1;
        self.last = LastAllocation::Freed;
        let site = &mut self.site[site as usize];
        site.temporary += i64::from(temporary);
        let removed = site
            .change(self.event, self.peak_event, -1, size)
            .and_then(|()| {
                self.total = self.total.checked_sub(size)?;
                Some(())
            });
        removed.ok_or_else(|| overflow("what a trace freed"))
    }

    /// Returns each trace with its values, in the order of [`SAMPLE_TYPES`].
    pub(super) fn values(&self) -> impl Iterator<Item = (u32, [i64; 7])> {
        self.site.iter().map(|site| {
            let at_peak = match site.changed <= self.peak_event {
                true => site.in_use,
                false => site.in_use_at_peak,
            };
            let [allocated, allocated_bytes] = site.allocated;
            let [held, held_bytes] = site.in_use;
            let values = [
                allocated,
                allocated_bytes,
                site.temporary,
                at_peak[0],
                at_peak[1],
                held,
                held_bytes,
            ];
            (site.trace, values)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the values after events. Each character is an event: a lower-case letter allocates a
    /// block, and the same letter in upper case frees it. The size is 10 for a, 20 for b and so on.
    fn values(events: &str) -> Vec<[i64; 7]> {
        let mut sites = HeaptrackSites::default();
        for (trace, size) in [(1, 10), (2, 20), (1, 30)] {
            sites.define(HeaptrackAllocation { size, trace }).unwrap();
        }
        for event in events.bytes() {
            match event {
                b'a'..=b'z' => sites.count_allocation(usize::from(event - b'a')).unwrap(),
                _ => sites.count_free(usize::from(event - b'A')).unwrap(),
            }
        }
        sites.values().map(|(_, values)| values).collect()
    }

    #[test]
    fn sums_at_the_end_and_at_the_largest_moment() {
        // The values are allocated, temporary, peak, in use. Allocations a and c have the same
        // trace.
        let table: [(&str, [i64; 7], [i64; 7]); 5] = [
            ("ab", [1, 10, 0, 1, 10, 1, 10], [1, 20, 0, 1, 20, 1, 20]),
            ("aA", [1, 10, 1, 1, 10, 0, 0], [0; 7]),
            // The first of two equal maxima is the peak.
            ("abBb", [1, 10, 0, 1, 10, 1, 10], [2, 40, 1, 1, 20, 1, 20]),
            ("cbCaa", [3, 50, 0, 1, 30, 2, 20], [1, 20, 0, 1, 20, 1, 20]),
            // a is freed before the larger maximum.
            ("aAbb", [1, 10, 1, 0, 0, 0, 0], [2, 40, 0, 2, 40, 2, 40]),
        ];
        for (events, first, second) in table {
            assert_eq!(values(events), [first, second], "{events}");
        }
    }

    #[test]
    fn blocks_are_known_by_address_in_old_files() {
        let mut sites = HeaptrackSites::default();
        let allocation = HeaptrackAllocation { size: 8, trace: 0 };
        sites.count_allocation_at(0x10, allocation).unwrap();
        sites.count_allocation_at(0x20, allocation).unwrap();
        sites.count_free_at(0x99).unwrap();
        sites.count_free_at(0x20).unwrap();
        sites.count_free_at(0x20).unwrap();
        let values: Vec<_> = sites.values().collect();
        assert_eq!(values, [(0, [2, 16, 1, 2, 16, 1, 8])]);
    }
}

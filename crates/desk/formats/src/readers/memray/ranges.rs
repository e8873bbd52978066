//! Keeps track of mapped memory: the parts of each mapping that are left after parts of it are
//! unmapped.
//!
//! A program may unmap the middle of a mapping, or several mappings at once. The file does not show
//! which mappings were replaced by others, so mappings may overlap, and then memray unmaps all of
//! them. The mappings are divided into classes by the power of two of their length. So the search
//! for the mappings at an address does not visit other mappings.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::FormatError;

/// Maximum number of pieces of mappings for each byte of the file, in addition to
/// `MIN_PIECE_LIMIT`. When one unmapping leaves parts of several mappings, each mapping after the
/// first one adds a piece. In real files, mappings that overlap are few. An artificial file can cut
/// thousands of mappings at once.
const MAX_PIECES_PER_BYTE: u64 = 1;
const MIN_PIECE_LIMIT: u64 = 1 << 16;

/// The mapped memory: all mappings and parts of mappings that were not unmapped.
#[derive(Default)]
pub(super) struct MemrayMappings {
    /// End and site of each mapping, by class, first address and number.
    from: BTreeMap<(u32, u64, u64), (u64, u32)>,
    /// The mappings, sorted by class, cell of the first address, end, number, and first address. A
    /// cell is as long as the shortest mapping of its class.
    to: BTreeSet<(u32, u64, u64, u64, u64)>,
    /// Number of mappings in each class.
    count: BTreeMap<u32, usize>,
    number: u64,
    /// Number of pieces, which `MAX_PIECES_PER_BYTE` limits.
    pieces: u64,
}

/// A part of a mapping that was unmapped.
pub(super) struct UnmappedPart {
    pub(super) site: u32,
    pub(super) bytes: u64,
    /// Change of the number of mappings: -1 if nothing is left of the mapping, 1 if two parts are
    /// left.
    pub(super) count: i64,
}

impl MemrayMappings {
    /// Estimates how many bytes of memory the mappings take.
    pub(super) fn memory(&self) -> u64 {
        self.from.len() as u64 * 160
    }

    /// Adds a mapping, which must not be empty.
    pub(super) fn add(&mut self, start: u64, end: u64, site: u32) {
        let class = class(start, end);
        self.number += 1;
        self.from.insert((class, start, self.number), (end, site));
        self.to
            .insert((class, start >> class, end, self.number, start));
        *self.count.entry(class).or_default() += 1;
    }

    /// Unmaps the memory between two addresses, and returns the unmapped part of each mapping.
    /// `read` is the number of bytes of the file that were read.
    pub(super) fn remove(
        &mut self,
        start: u64,
        end: u64,
        read: u64,
    ) -> Result<Vec<UnmappedPart>, FormatError> {
        let mut found: Vec<(u32, u64, u64)> = Vec::new();
        for &class in self.count.keys() {
            let cell = start >> class;
            let inside = (class, cell << class, 0)..(class, end, 0);
            // All of these mappings are at least as long as a cell, so mappings that begin in this
            // cell or later reach the first address.
            found.extend(self.from.range(inside).map(|(&key, _)| key));
            // No mapping is longer than two cells.
            for before in [1, 2].into_iter().filter_map(|n| cell.checked_sub(n)) {
                let reaching = (class, before, start, u64::MAX, u64::MAX)
                    ..(class, before, u64::MAX, u64::MAX, u64::MAX);
                let reaching = self.to.range(reaching);
                found.extend(reaching.map(|&(class, _, _, number, first)| (class, first, number)));
            }
        }
        let allowed = MIN_PIECE_LIMIT.saturating_add(read.saturating_mul(MAX_PIECES_PER_BYTE));
        let mut left = 0;
        let mut unmapped = Vec::with_capacity(found.len());
        for key in found {
            let Some((last, site)) = self.from.remove(&key) else {
                continue;
            };
            let (class, first, number) = key;
            self.to
                .remove(&(class, first >> class, last, number, first));
            if let Some(count) = self.count.get_mut(&class) {
                *count -= 1;
                if *count == 0 {
                    self.count.remove(&class);
                }
            }
            let mut count = -1;
            for (first, last) in [(first, last.min(start)), (first.max(end), last)] {
                if first < last {
                    count += 1;
                    self.add(first, last, site);
                }
            }
            left += u64::from(count >= 0);
            self.pieces += u64::from(count >= 0 && left > 1);
            if self.pieces > allowed {
                let what = format!("{allowed} pieces of overlapping mappings in {read} bytes");
                return Err(FormatError::TooMuch(what));
            }
            unmapped.push(UnmappedPart {
                site,
                bytes: last.min(end) - first.max(start),
                count,
            });
        }
        Ok(unmapped)
    }
}

/// Returns the exponent of the largest power of two that is not greater than the mapping's length.
fn class(start: u64, end: u64) -> u32 {
    (end - start).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the result is the same as with a list in which every mapping is compared.
    #[test]
    fn as_if_all_were_compared() {
        let mut seed = 7u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut ranges = MemrayMappings::default();
        let mut list: Vec<(u64, u64, u32)> = Vec::new();
        for round in 0..4000 {
            let start = random(500);
            let power = random(9);
            let end = start + 1 + random(1 << power);
            if random(3) > 0 {
                ranges.add(start, end, round);
                list.push((start, end, round));
                continue;
            }
            let mut expected = Vec::new();
            let mut rest = Vec::new();
            for (first, last, site) in list.drain(..) {
                if last <= start || first >= end {
                    rest.push((first, last, site));
                    continue;
                }
                let parts = [(first, start.min(last)), (end.max(first), last)];
                let parts: Vec<_> = parts.into_iter().filter(|(a, b)| a < b).collect();
                let bytes = last.min(end) - first.max(start);
                expected.push((site, bytes, parts.len() as i64 - 1));
                rest.extend(parts.into_iter().map(|(a, b)| (a, b, site)));
            }
            list = rest;
            let found = ranges.remove(start, end, 0).unwrap();
            let mut found: Vec<_> = found.iter().map(|u| (u.site, u.bytes, u.count)).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "round {round}");
        }
        assert!(
            list.len() > 20 && ranges.from.len() == list.len() && ranges.to.len() == list.len()
        );
    }

    #[test]
    fn the_last_addresses_are_no_exception() {
        let mut ranges = MemrayMappings::default();
        ranges.add(0, u64::MAX, 1);
        ranges.add(u64::MAX - 1, u64::MAX, 2);
        let found = ranges.remove(u64::MAX - 1, u64::MAX, 0).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(ranges.remove(0, 1, 0).unwrap().len(), 1);
    }

    #[test]
    fn work_is_bounded() {
        let mut ranges = MemrayMappings::default();
        for site in 0..3 {
            ranges.add(0, 1 << 40, site);
        }
        ranges.pieces = MIN_PIECE_LIMIT;
        let error = (0..9).find_map(|i| ranges.remove(i, i + 1, 1).err());
        assert_eq!(
            error.unwrap().to_string(),
            "has more than 65537 pieces of overlapping mappings in 1 bytes, which is more than \
             heapprof keeps in memory"
        );
    }
}

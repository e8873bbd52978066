//! Chooses a distinct address for each location, for a format in which frames are only addresses.

use foldhash::{HashSet, HashSetExt};
use heapprof_profile::{Mapping, Profile};

/// First address for locations without a usable address. It is above the addresses of programs and
/// below the kernel.
const FIRST_MADE_ADDRESS: u64 = 0x7000_0000_0000_0000;

/// Addresses of all locations, and the mappings that hold them.
pub(super) struct LocationAddresses {
    /// The address of each location.
    pub(super) location: Vec<u64>,
    /// The mappings in the order of the profile, except that mappings without a file are last,
    /// because readers take the first mapping that holds an address.
    pub(super) mapping: Vec<Mapping>,
}

impl LocationAddresses {
    /// Chooses the addresses. Addresses stay unchanged, except where mappings overlap, where two
    /// locations have the same address, or where an address outside all mappings would seem to be
    /// in one. With names, the address after a chosen address must be free, too.
    pub(super) fn new(profile: &Profile, with_names: bool) -> Self {
        let mut next = FIRST_MADE_ADDRESS;
        let mut mapping = tightened(profile);
        let mut shift = vec![0u64; mapping.len()];
        // A mapping without a file says nothing about its addresses. Readers use such a mapping for
        // all addresses that are in no known mapping.
        let of_files = (0..mapping.len()).filter(|&i| is_of_file(&mapping[i]));
        let mut order: Vec<usize> = of_files.collect();
        order.sort_by_key(|&i| mapping[i].memory_start);
        let mut end = 0;
        for i in order {
            let Mapping {
                memory_start: start,
                memory_limit: limit,
                ..
            } = mapping[i];
            if limit <= start {
                continue;
            }
            if start < end {
                let size = limit - start;
                shift[i] = next.wrapping_sub(start);
                (mapping[i].memory_start, mapping[i].memory_limit) =
                    (next, next.saturating_add(size));
                next = next.saturating_add(size);
            } else {
                end = limit;
            }
        }
        let mut kept: Vec<(u64, u64)> = Vec::new();
        for (mapping, _) in mapping.iter().zip(&shift).filter(|(_, shift)| **shift == 0) {
            if is_of_file(mapping) {
                kept.push((mapping.memory_start, mapping.memory_limit));
            }
        }
        kept.sort_unstable();
        let in_a_mapping = |address: u64| {
            let after = kept.partition_point(|&(start, _)| start <= address);
            after.checked_sub(1).is_some_and(|i| address < kept[i].1)
        };
        let mut used: HashSet<u64> = HashSet::new();
        // Addresses are written as return addresses, which are greater by one. With names, both
        // addresses must be free.
        let mut free = |address: u64| {
            let after = address.checked_add(1)?;
            let places = [address, if with_names { after } else { address }];
            let is_free = address != 0 && !places.iter().any(|place| used.contains(place));
            is_free.then(|| used.extend(places))
        };
        let location = profile.location.iter().map(|location| {
            let shift = location.mapping.map_or(0, |m| shift[m.index()]);
            let address = location.address.wrapping_add(shift);
            // A location without a file must not seem to be in one.
            let of_file = location.mapping.map(|m| is_of_file(&mapping[m.index()]));
            let astray = of_file != Some(true) && in_a_mapping(address);
            if location.address != 0 && !astray && free(address).is_some() {
                return address;
            }
            loop {
                next = next.saturating_add(16);
                if free(next).is_some() || next == u64::MAX {
                    return next;
                }
            }
        });
        let location = location.collect();
        mapping.retain(|mapping| is_of_file(mapping) || !is_everything(mapping));
        mapping.sort_by_key(|mapping| !is_of_file(mapping));
        Self { location, mapping }
    }
}

fn is_of_file(mapping: &Mapping) -> bool {
    !mapping.filename.is_empty() || !mapping.build_id.is_empty()
}

/// Whether a mapping was added by a reader of text, for addresses that are in no mapping.
fn is_everything(mapping: &Mapping) -> bool {
    mapping.memory_start == 0 && mapping.memory_limit == u64::MAX
}

/// Returns the mappings. A mapping that begins at 0 because only its end is known begins at the
/// page of its first known address instead.
fn tightened(profile: &Profile) -> Vec<Mapping> {
    const PAGE_SIZE: u64 = 4096;
    let mut first = vec![u64::MAX; profile.mapping.len()];
    for location in &profile.location {
        if let Some(mapping) = location.mapping {
            let first = &mut first[mapping.index()];
            *first = location.address.min(*first);
        }
    }
    let mappings = profile.mapping.iter().zip(first).map(|(mapping, first)| {
        let start = first - first % PAGE_SIZE;
        let is_open = mapping.memory_start == 0 && first < mapping.memory_limit;
        match is_open && is_of_file(mapping) {
            true => Mapping {
                memory_start: start,
                file_offset: mapping.file_offset.saturating_add(start),
                ..*mapping
            },
            false => *mapping,
        }
    });
    mappings.collect()
}

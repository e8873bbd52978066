//! Makes stacks of addresses. Each address is one location. Mappings are added after all addresses
//! are known.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Line, Location, LocationIndex, Mapping, MappingIndex, Profile};

use crate::address_map::AddressMap;
use crate::error::FormatError;
use crate::mapped_files::MappedFile;
use crate::memory_budget::MemoryBudget;
use crate::reading::FormatReadOptions;

/// Locations by address, numbered in the order of their first occurrence.
pub(crate) struct AddressLocations {
    locations: HashMap<u64, LocationIndex>,
    budget: MemoryBudget,
}

impl AddressLocations {
    /// Makes an empty table for a profile that may take the memory that the options allow.
    pub(crate) fn new(options: &FormatReadOptions) -> Self {
        Self {
            locations: HashMap::new(),
            budget: MemoryBudget::new(options),
        }
    }

    /// Returns the location of an address. A new location is added to the profile. Too much memory
    /// is an error.
    pub(crate) fn get(
        &mut self,
        profile: &mut Profile,
        address: u64,
    ) -> Result<LocationIndex, FormatError> {
        if let Some(&known) = self.locations.get(&address) {
            return Ok(known);
        }
        let location = push_location(profile, address);
        self.locations.insert(address, location);
        self.count_growth(size_of::<Location>() + ENTRY_BYTES, || profile.memory())?;
        Ok(location)
    }

    /// Returns the location of an address, if it has one.
    pub(crate) fn find(&self, address: u64) -> Option<LocationIndex> {
        self.locations.get(&address).copied()
    }

    /// Counts a new sample with `frames` frames. `used` computes the memory of the profile in
    /// bytes. Too much memory is an error.
    pub(crate) fn count_sample(
        &mut self,
        frames: usize,
        used: impl FnOnce() -> u64,
    ) -> Result<(), FormatError> {
        self.count_growth(frames * size_of::<LocationIndex>() + ENTRY_BYTES, used)
    }

    /// Counts bytes that were added to the profile or to a table beside it. `used` computes the
    /// memory of both in bytes. Too much memory is an error.
    pub(crate) fn count_growth(
        &mut self,
        bytes: usize,
        used: impl FnOnce() -> u64,
    ) -> Result<(), FormatError> {
        let table = (self.locations.capacity() * ENTRY_BYTES) as u64;
        self.budget.grow(bytes, || used().saturating_add(table))
    }
}

/// Number of bytes of an entry in a hash table of locations, with its share of free entries.
const ENTRY_BYTES: usize = 2 * size_of::<(u64, LocationIndex)>();

/// Adds a location without lines.
pub(crate) fn push_location(profile: &mut Profile, address: u64) -> LocationIndex {
    let place = profile.location.len();
    let end = profile.line.len() as u32;
    profile.location.push(Location {
        id: place as u64 + 1,
        mapping: None,
        address,
        line: end..end,
        is_folded: false,
    });
    // An address takes four bytes of text, so 2^32 addresses exceed any limit of a file's size.
    LocationIndex(place as u32)
}

/// Whether the leaf of a stack is there twice: as the processor's own address, and as a return
/// address that unwinding found and that was moved back to its call. pprof removes the second one.
pub(crate) fn has_leaf_twice(addresses: &[u64]) -> bool {
    matches!(addresses, [leaf, call, ..] if call.wrapping_add(1) == *leaf)
}

/// Sets the lines of all locations. `lines` has the lines of each location, innermost first.
pub(crate) fn set_lines(profile: &mut Profile, lines: Vec<Vec<Line>>) {
    profile.line.clear();
    for (location, lines) in profile.location.iter_mut().zip(lines) {
        let start = profile.line.len() as u32;
        profile.line.extend(lines);
        location.line = start..profile.line.len() as u32;
    }
}

/// Gives each location its mapping, and adds the mappings to the profile.
pub(crate) fn assign_mappings(profile: &mut Profile, files: Vec<MappedFile>) {
    let mut map = AddressMap::new(files);
    for location in &mut profile.location {
        location.mapping = map.find(location.address).map(|i| MappingIndex(i as u32));
    }
    for (file, id) in map.into_files().into_iter().zip(1..) {
        let mapping = Mapping {
            id,
            memory_start: file.start,
            memory_limit: file.limit,
            file_offset: file.offset,
            filename: profile.strings.intern(&String::from_utf8_lossy(&file.file)),
            build_id: profile
                .strings
                .intern(&String::from_utf8_lossy(&file.build_id)),
            ..Mapping::default()
        };
        profile.mapping.push(mapping);
    }
}

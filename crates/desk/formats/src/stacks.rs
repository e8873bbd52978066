//! Makes stacks of addresses. Each address is one location. Mappings are added after all addresses
//! are known.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Line, Location, LocationIndex, Mapping, MappingIndex, Profile};

use crate::address_map::AddressMap;
use crate::mapped_files::MappedFile;

/// Locations by address, numbered in the order of their first occurrence.
#[derive(Default)]
pub(crate) struct AddressLocations(HashMap<u64, LocationIndex>);

impl AddressLocations {
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Returns the location of an address. A new location is added to the profile.
    pub(crate) fn get(&mut self, profile: &mut Profile, address: u64) -> LocationIndex {
        *self
            .0
            .entry(address)
            .or_insert_with(|| push_location(profile, address))
    }

    /// Returns the location of an address, if it has one.
    pub(crate) fn find(&self, address: u64) -> Option<LocationIndex> {
        self.0.get(&address).copied()
    }
}

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

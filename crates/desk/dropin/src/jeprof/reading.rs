//! How jeprof reads a file, if heapprof's readers read it differently.
//!
//! jeprof leaves the innermost address of a stack where the call returns to, and looks it up there.
//! An address that no symbol of its file holds is called by its number, and so is one that a
//! symbolized profile does not name.

use std::collections::HashMap;

use crate::reshape;
use heapprof_formats::{ProfileFormat, ProfileReading};
use heapprof_profile::{Function, FunctionIndex, Line, Location, LocationIndex, Profile};

/// The file of a function that has a name in a symbolized profile, because such a profile names no
/// files.
pub(super) const NO_FILE: &str = "?";

/// The file of an address that is in no symbol, as addr2line writes it.
pub(super) const UNKNOWN_FILE: &str = "??";

/// The profile of a file as jeprof reads it.
pub(super) fn read_as_jeprof(reading: ProfileReading) -> Profile {
    let mut profile = reading.profile;
    match reading.format {
        ProfileFormat::Pprof => reshape::drop_empty_labels(&mut profile),
        ProfileFormat::Gperftools | ProfileFormat::Jemalloc => move_leaves_past_calls(&mut profile),
        ProfileFormat::Symbolized => {
            // In the words of a CPU profile, which has one value for each sample, all addresses are
            // calls.
            if profile.sample_type.len() > 1 {
                move_leaves_past_calls(&mut profile);
            }
            let no_file = profile.strings.intern(NO_FILE);
            for function in &mut profile.function {
                function.filename = no_file;
            }
            name_by_number(&mut profile, NO_FILE, |_| true);
        }
        _ => {}
    }
    profile
}

/// Moves the innermost address of each stack to after its call.
fn move_leaves_past_calls(profile: &mut Profile) {
    let known = profile.location.iter().zip(0..);
    let mut at: HashMap<u64, LocationIndex> = known
        .map(|(location, i)| (location.address, LocationIndex(i)))
        .collect();
    let locations = &mut profile.location;
    profile.samples.rewrite(|stack, _, _, kept| {
        let begin = kept.len();
        kept.extend_from_slice(stack);
        if let Some(leaf) = kept.get_mut(begin) {
            let call = locations[leaf.index()].clone();
            let address = call.address.wrapping_add(1);
            *leaf = *at.entry(address).or_insert_with(|| {
                let place = locations.len();
                locations.push(Location {
                    id: place as u64 + 1,
                    address,
                    ..call
                });
                LocationIndex(place as u32)
            });
        }
        true
    });
}

/// Gives locations without a name their number as the name, if `wanted` says so.
fn name_by_number(profile: &mut Profile, file: &str, wanted: impl Fn(&Location) -> bool) {
    let filename = profile.strings.intern(file);
    for location in &mut profile.location {
        if !location.line.is_empty() || !wanted(location) {
            continue;
        }
        let number = format!("0x{:016x}", location.address);
        let name = profile.strings.intern(&number);
        let function = FunctionIndex(profile.function.len() as u32);
        profile.function.push(Function {
            id: profile.function.len() as u64 + 1,
            name,
            system_name: name,
            filename,
            start_line: 0,
        });
        let start = profile.line.len() as u32;
        profile.line.push(Line {
            function,
            line: 0,
            column: 0,
        });
        location.line = start..start + 1;
    }
}

/// Names addresses by their number if the files that are here have no symbol for them. An address
/// in no file is taken for one of the program, which is the first mapping.
pub(super) fn name_unnamed_by_number(profile: &mut Profile, is_here: &[bool]) {
    name_by_number(profile, UNKNOWN_FILE, |location| {
        let mapping = location.mapping.map_or(0, |m| m.index());
        is_here.get(mapping).is_some_and(|&is_here| is_here)
    });
}

//! Changes a profile from heapprof's readers, so that it equals the profile that jeprof would read.
//!
//! The innermost address of a stack is a return address. jeprof looks up this address without
//! moving it back to the call. An address that has no symbol in its file, or no name in a
//! symbolized profile, is named by its number.

use std::collections::HashMap;

use crate::reshape;
use heapprof_formats::{ProfileFormat, ProfileReading};
use heapprof_profile::{Function, FunctionIndex, Line, Location, LocationIndex, Profile};

/// File name that jeprof gives a named function of a symbolized profile, because such a profile has
/// no file names.
pub(super) const NO_FILE: &str = "?";

/// File name of an address without a symbol, as addr2line writes it.
pub(super) const UNKNOWN_FILE: &str = "??";

/// Converts the result of reading a file to the profile that jeprof would read.
pub(super) fn read_as_jeprof(reading: ProfileReading) -> Profile {
    let mut profile = reading.profile;
    match reading.format {
        ProfileFormat::Pprof => reshape::drop_empty_labels(&mut profile),
        ProfileFormat::Gperftools | ProfileFormat::Jemalloc | ProfileFormat::Contention => {
            move_leaves_past_calls(&mut profile);
        }
        // jeprof reads how often a stack was sampled, and not the time.
        ProfileFormat::GperftoolsCpu => {
            profile.default_sample_type = profile.strings.intern("samples");
        }
        ProfileFormat::Symbolized => {
            // In a CPU profile, which has one value for each sample, all addresses are calls.
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

/// Moves the innermost address of each stack from the call to the return address.
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

/// Names those unnamed locations that `wanted` accepts, by their address.
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

/// Names addresses by their number if their file is on this machine but has no symbol for them. An
/// address without a mapping counts as part of the program, which is the first mapping.
pub(super) fn name_unnamed_by_number(profile: &mut Profile, is_here: &[bool]) {
    name_by_number(profile, UNKNOWN_FILE, |location| {
        let mapping = location.mapping.map_or(0, |m| m.index());
        is_here.get(mapping).is_some_and(|&is_here| is_here)
    });
}

#[cfg(test)]
mod tests {
    use heapprof_formats::{FormatReadOptions, read};

    use super::*;

    fn profile(file: &[u8]) -> Profile {
        read_as_jeprof(read(file, &FormatReadOptions::default().as_pprof(true)).unwrap())
    }

    #[test]
    fn leaves_of_contention_are_return_addresses() {
        let profile = profile(b"--- contentionz 1 ---\n96 2 @ 0x11 0x21\n");
        let stack = profile.samples.stack(0).iter();
        let addresses: Vec<u64> = stack.map(|l| profile.location[l.index()].address).collect();
        assert_eq!(addresses, [0x11, 0x20]);
    }

    #[test]
    fn cpu_profiles_count_samples() {
        let words: Vec<u8> = [0u64, 3, 0, 10_000, 0, 7, 1, 0x11, 0, 1, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let profile = profile(&words);
        assert_eq!(profile.text(profile.default_sample_type), "samples");
    }
}

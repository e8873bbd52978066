//! Splits a profile by threads.
//!
//! Each part holds only the samples of one thread, and is dropped before the next part is made. So
//! memory and time do not grow with the number of threads times the size of the profile.

use std::borrow::Cow;
use std::collections::HashMap;

use heapprof_profile::{
    Function, LabelSetIndex, Line, LocationIndex, Profile, ProfileBuilder, StringId,
};

use super::stacks::thread_place;

/// The samples of each thread, in the order that [`threads`](super::stacks::JeprofStacks::threads)
/// returns.
pub(super) struct ThreadProfiles<'a> {
    profile: &'a Profile,
    /// Indices of each thread's samples. With a single thread the list stays empty, because the
    /// whole profile is used.
    samples: Vec<Vec<usize>>,
}

impl<'a> ThreadProfiles<'a> {
    pub(super) fn new(profile: &'a Profile, threads: usize) -> Self {
        let mut samples = vec![Vec::new(); threads];
        if threads > 1 {
            for i in 0..profile.samples.len() {
                samples[thread_place(profile.samples.label_set(i))].push(i);
            }
        }
        Self { profile, samples }
    }

    /// Returns a profile for each thread. The iterator makes each profile when it is requested.
    pub(super) fn iter(&self) -> impl Iterator<Item = Cow<'a, Profile>> {
        self.samples.iter().map(|samples| match self.samples.len() {
            1 => Cow::Borrowed(self.profile),
            _ => Cow::Owned(thread_profile(self.profile, samples)),
        })
    }
}

/// Copies the samples with these indices to a new profile, with their locations and functions.
fn thread_profile(profile: &Profile, samples: &[usize]) -> Profile {
    let types = profile.sample_type.iter();
    let types: Vec<(&str, &str)> = types
        .map(|t| (profile.text(t.r#type), profile.text(t.unit)))
        .collect();
    let mut builder = ProfileBuilder::new(&types);
    let mut copies: HashMap<LocationIndex, LocationIndex> = HashMap::new();
    for &i in samples {
        let stack = profile.samples.stack(i).iter();
        let stack: Vec<LocationIndex> = stack
            .map(|&l| {
                *copies
                    .entry(l)
                    .or_insert_with(|| copy_location(profile, l, &mut builder))
            })
            .collect();
        let values = profile.samples.values(i);
        builder
            .profile
            .samples
            .push(stack, values, LabelSetIndex(0));
    }
    builder.finish()
}

fn copy_location(profile: &Profile, of: LocationIndex, into: &mut ProfileBuilder) -> LocationIndex {
    let location = &profile.location[of.index()];
    let lines = profile.lines(location).iter().map(|line| {
        let function = &profile.function[line.function.index()];
        let function = Function {
            id: 0,
            name: into.text(profile.text(function.name)),
            system_name: into.text(profile.text(function.system_name)),
            filename: StringId::EMPTY,
            start_line: 0,
        };
        Line {
            function: into.function(function),
            line: 0,
            column: 0,
        }
    });
    let lines: Vec<Line> = lines.collect();
    into.location(None, location.address, false, &lines)
}

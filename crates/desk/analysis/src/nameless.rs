//! The share of memory that belongs to code without names, and the file with most of that code.

use std::collections::HashMap;

use heapprof_profile::{Function, MappingIndex, Profile};

use crate::error::AnalysisError;
use heapprof_totals::query::Query;
use heapprof_totals::view::ProfileView;

/// The part of a sample type's values that belongs to code without names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamelessShare {
    /// The sum of the values without a name, regardless of sign.
    pub value: i128,
    /// The sum of all values, regardless of sign.
    pub total: i128,
    /// The mapped file with most of the code without names; `None` if that code is in no file.
    pub file: Option<MappingIndex>,
}

/// Adds up the values of sample type `column` in stacks that end in code without a name. Frames
/// that match `drop_frames` are cut first.
///
/// # Errors
/// The errors are the same as for any question about the profile.
pub fn nameless_share(profile: &Profile, column: usize) -> Result<NamelessShare, AnalysisError> {
    // A view compiles the expressions of the profile, which takes most of a short recording's time.
    let samples = &profile.samples;
    if (0..samples.len()).all(|i| samples.values(i)[column] == 0) {
        return Ok(NamelessShare::default());
    }
    let view = ProfileView::new(profile, &Query::default())?;
    let mut found = NamelessShare::default();
    let mut files: HashMap<Option<MappingIndex>, i128> = HashMap::new();
    let mut stack = Vec::new();
    for i in 0..profile.samples.len() {
        let value = i128::from(profile.samples.values(i)[column].unsigned_abs());
        found.total += value;
        if value == 0 || !view.stack(&profile.samples, i, &mut stack) {
            continue;
        }
        let Some(&leaf) = stack.first() else {
            continue;
        };
        let frame = view.frames.get(leaf);
        let function = frame
            .function(profile)
            .map(|f| &profile.function[f.index()]);
        let is_named = |f: &Function| !f.name.is_empty() && !profile.is_nameless(f);
        let Some(location) = frame.location().filter(|_| !function.is_some_and(is_named)) else {
            continue;
        };
        found.value += value;
        *files
            .entry(profile.location[location.index()].mapping)
            .or_default() += value;
    }
    // If several files have the largest value, the first one is taken.
    let most = files
        .into_iter()
        .max_by_key(|&(file, value)| (value, std::cmp::Reverse(file)));
    found.file = most.and_then(|(file, _)| file);
    Ok(found)
}

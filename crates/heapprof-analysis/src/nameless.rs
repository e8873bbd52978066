//! How much memory is held by code that nothing names, and where most of that code is.

use std::collections::HashMap;

use heapprof_profile::{MappingIndex, Profile};

use crate::error::Error;
use crate::frames::Frame;
use crate::query::Query;
use crate::view::View;

/// What of a sample type's values has no function's name for its row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nameless {
    /// The sum of these values, regardless of sign.
    pub value: i128,
    /// The sum of all values.
    pub total: i128,
    /// The mapped file that most of it is in; none where that code is in no file.
    pub file: Option<MappingIndex>,
    /// What of it is there.
    pub in_file: i128,
}

/// Adds up the values of sample type `column` whose stacks end in code without a name, once what `drop_frames` names is cut.
///
/// # Errors
/// As for any question about the profile.
pub fn nameless(profile: &Profile, column: usize) -> Result<Nameless, Error> {
    let view = View::new(profile, &Query::default())?;
    let mut found = Nameless::default();
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
        let location = match view.frames.get(leaf) {
            Frame::Address { location } => location,
            Frame::Line { location, line } => {
                let function = profile.line[*line as usize].function;
                let function = &profile.function[function.index()];
                if !function.name.is_empty() && !profile.is_nameless(function) {
                    continue;
                }
                location
            }
            Frame::Label { .. } => continue,
        };
        found.value += value;
        *files
            .entry(profile.location[location.index()].mapping)
            .or_default() += value;
    }
    // Of files that have as much the first one.
    let most = files
        .into_iter()
        .max_by_key(|&(file, value)| (value, std::cmp::Reverse(file)));
    if let Some((file, value)) = most {
        (found.file, found.in_file) = (file, value);
    }
    Ok(found)
}

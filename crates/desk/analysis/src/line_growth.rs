//! The growth of source lines, for users who follow a program while it runs. A sample belongs to
//! the line in which its stack ends.

use std::collections::HashMap;

use heapprof_profile::Profile;

use crate::error::AnalysisError;
use crate::place::CodePlace;
use heapprof_totals::query::Query;
use heapprof_totals::view::ProfileView;

/// Largest number of bytes of a line's function or file.
const MAX_TEXT_BYTES: usize = 4096;
/// Largest number of bytes of the texts of all lines.
const MAX_TOTAL_TEXT_BYTES: usize = 16 << 20;

/// Adds up the first value of each sample by the line in which the sample's stack ends. Also
/// returns whether the list has all lines. Frames that match `drop_frames` are cut first. Code
/// without a function's name has its address as its name. The lines come in the order of their
/// places.
///
/// Each line has texts of its own, so texts are cut at 4 KiB. Lines are left out if all texts
/// together would be longer than 16 MiB.
///
/// # Errors
/// The errors are the same as for any question about the profile.
pub fn line_growth(profile: &Profile) -> Result<(Vec<(CodePlace, i64)>, bool), AnalysisError> {
    let view = ProfileView::new(profile, &Query::default())?;
    let mut sums: HashMap<u32, i64> = HashMap::new();
    let mut stack = Vec::new();
    for i in 0..profile.samples.len() {
        let value = profile.samples.values(i).first().copied();
        if !view.stack(&profile.samples, i, &mut stack) {
            continue;
        }
        if let (Some(&leaf), Some(value)) = (stack.first(), value) {
            let sum = sums.entry(leaf).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    let mut lines: HashMap<CodePlace, i64> = HashMap::new();
    let (mut texts, mut is_whole) = (0, true);
    for (leaf, value) in sums {
        let place = place(profile, &view, leaf);
        let long = place.function.len() + place.file.as_ref().map_or(0, String::len);
        if !lines.contains_key(&place) {
            if texts + long > MAX_TOTAL_TEXT_BYTES {
                is_whole = false;
                continue;
            }
            texts += long;
        }
        let sum = lines.entry(place).or_default();
        *sum = sum.saturating_add(value);
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort();
    Ok((lines, is_whole))
}

/// Cuts the name of a function or file to at most [`MAX_TEXT_BYTES`].
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_string()
}

fn place(profile: &Profile, view: &ProfileView, frame: u32) -> CodePlace {
    let frame = view.frames.get(frame);
    let location = frame
        .location()
        .map(|location| &profile.location[location.index()]);
    let function = frame.function(profile);
    let function = function.map(|function| &profile.function[function.index()]);
    let (Some(function), heapprof_totals::frames::ProfileFrame::Line { line, .. }) =
        (function, frame)
    else {
        let address = location.map_or(0, |location| location.address);
        return CodePlace {
            function: format!("{address:#018x}"),
            file: Some(String::new()),
            line: Some(0),
            ..CodePlace::default()
        };
    };
    CodePlace {
        function: cut(profile.text(function.name)),
        file: Some(cut(profile.text(function.filename))),
        line: Some(profile.line[*line as usize].line),
        ..CodePlace::default()
    }
}

#[cfg(test)]
mod tests {
    use heapprof_profile::{FrameText, LabelSetIndex, ProfileBuilder};

    use super::*;

    #[test]
    fn samples_count_for_the_line_that_called_the_allocator() {
        let mut builder = ProfileBuilder::new(&[("growth", "bytes")]);
        let mut frame = |name, line| {
            builder.frame(&[FrameText {
                name,
                filename: "a.c",
                line,
                start_line: 1,
            }])
        };
        let (wrapper, work, main) = (frame("wrapped", 1), frame("work", 7), frame("main", 9));
        for (stack, value) in [
            (&[wrapper, work, main][..], 10),
            (&[work, main], 5),
            (&[wrapper, main], -3),
        ] {
            let stack = stack.iter().copied();
            let samples = &mut builder.profile.samples;
            samples.push(stack, &[value], LabelSetIndex::default());
        }
        builder.profile.drop_frames = builder.text("wrapped");
        let (lines, is_whole) = line_growth(&builder.finish()).unwrap();
        assert!(is_whole);
        let found: Vec<_> = lines
            .iter()
            .map(|(place, bytes)| (place.label(), *bytes))
            .collect();
        let wanted = [("main a.c:9", -3), ("work a.c:7", 15)];
        assert_eq!(found, wanted.map(|(name, bytes)| (name.to_string(), bytes)));
    }
}

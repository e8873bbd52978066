//! Reads the samples of a profile of Google's Java agent, and the lines at its end, which name the
//! frames.
//!
//! The samples have numbers instead of addresses, which are left out of the profile. Frames with
//! the same name are one function, even if their files differ.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{LabelSetIndex, Line, Profile, ProfileBuilder, StringId};

use crate::counted_stack::CountedStack;
use crate::error::{FormatError, shortened};
use crate::lines::LineReader;
use crate::reading::FormatReadOptions;
use crate::stacks::{self, AddressLocations};

/// Reads all samples, and then the names of their frames. `values` returns the values and the
/// labels of a sample.
pub(crate) fn read(
    lines: &mut LineReader<'_>,
    builder: &mut ProfileBuilder,
    options: &FormatReadOptions,
    mut values: impl FnMut(
        &CountedStack<'_>,
        &LineReader<'_>,
        &mut Profile,
    ) -> Result<([i64; 2], LabelSetIndex), FormatError>,
) -> Result<(), FormatError> {
    let mut locations = AddressLocations::new(options);
    let mut stack = Vec::new();
    while lines.advance()? {
        if lines.trimmed().is_empty() {
            continue;
        }
        let Some(sample) = CountedStack::read(lines)? else {
            lines.stay();
            break;
        };
        let profile = &mut builder.profile;
        let (values, labels) = values(&sample, lines, profile)?;
        stack.clear();
        for id in sample.stack {
            let id = id.map_err(|text| lines.wrong_part("an id of 64 bits", shortened(text)))?;
            stack.push(locations.get(profile, id)?);
        }
        locations.count_sample(stack.len(), || profile.memory())?;
        profile.samples.push(stack.iter().copied(), &values, labels);
    }
    names(lines, builder, &mut locations)
}

/// Reads the names of the frames, and sets the functions of the locations.
pub(crate) fn names(
    lines: &mut LineReader<'_>,
    builder: &mut ProfileBuilder,
    locations: &mut AddressLocations,
) -> Result<(), FormatError> {
    // The first file that each name comes with.
    let mut files: HashMap<StringId, StringId> = HashMap::new();
    let mut named: Vec<Option<(StringId, i64)>> = vec![None; builder.profile.location.len()];
    while lines.advance()? {
        let text = lines.text();
        let Some((id, frame)) = text
            .trim()
            .strip_prefix("0x")
            .and_then(|rest| rest.split_once(char::is_whitespace))
        else {
            continue;
        };
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            continue;
        }
        let id = u64::from_str_radix(id, 16)
            .map_err(|_| lines.wrong_part("an id of 64 bits", shortened(id.as_bytes())))?;
        // Frames that are in no sample are skipped.
        let Some(location) = locations.find(id) else {
            continue;
        };
        let (name, file, line) = frame_parts(frame.trim());
        let (name, file) = (builder.text(name), builder.text(file));
        files.entry(name).or_insert(file);
        named[location.index()] = Some((name, line));
        locations.count_growth(2 * frame.len() + 200, || builder.profile.memory())?;
    }
    let mut lines: Vec<Vec<Line>> = Vec::with_capacity(named.len());
    for (i, named) in named.into_iter().enumerate() {
        let line = named.map(|(name, line)| Line {
            function: builder.named_function(name, files.get(&name).copied().unwrap_or_default()),
            line,
            column: 0,
        });
        if line.is_some() {
            builder.profile.location[i].address = 0;
        }
        lines.push(line.into_iter().collect());
    }

    stacks::set_lines(&mut builder.profile, lines);
    // A location without a name gets pprof's mapping of all addresses. The number of such a
    // location is not an address either.
    stacks::assign_mappings(&mut builder.profile, Vec::new());
    for location in &mut builder.profile.location {
        location.address = 0;
    }
    Ok(())
}

/// Returns the function, file and line of a frame. A frame has the form `java.lang.Thread.run
/// (Thread.java:744)`, `name (/path/lib.so)`, a stub, or only a name.
fn frame_parts(frame: &str) -> (&str, &str, i64) {
    if let Some((function, place)) = frame.strip_suffix(')').and_then(in_parentheses) {
        if let Some((file, line)) = place.rsplit_once(':')
            && !file.is_empty()
            && let digits = line.strip_prefix('-').unwrap_or(line)
            && !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
        {
            return (function, file, line.parse().unwrap_or(0).max(0));
        }
        return (function, base(place), 0);
    }
    match frame.contains("generated stub/JIT") {
        true => ("STUB", "", 0),
        false => (frame, "", 0),
    }
}

/// Splits `name (place` at the last parenthesis that has a blank before it.
fn in_parentheses(text: &str) -> Option<(&str, &str)> {
    text.match_indices('(').rev().find_map(|(at, _)| {
        let name = text[..at].strip_suffix(char::is_whitespace)?;
        Some((name, &text[at + 1..]))
    })
}

/// Returns the last part of a path, as Go's `filepath.Base` does.
fn base(path: &str) -> &str {
    if path.is_empty() {
        return ".";
    }
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit_once('/') {
        _ if trimmed.is_empty() => "/",
        Some((_, last)) => last,
        None => trimmed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        let table = [
            (
                "java.lang.Thread.run (Thread.java:744)",
                ("java.lang.Thread.run", "Thread.java", 744),
            ),
            ("a.b.<init> (B.java:-2)", ("a.b.<init>", "B.java", 0)),
            ("malloc (/usr/lib/libc.so.6)", ("malloc", "libc.so.6", 0)),
            ("f ()", ("f", ".", 0)),
            ("f (/)", ("f", "/", 0)),
            ("f  (a (b):3)", ("f  (a", "b)", 3)),
            ("0x7f generated stub/JIT", ("STUB", "", 0)),
            ("GC", ("GC", "", 0)),
            ("f(g.java:3)", ("f(g.java:3)", "", 0)),
            ("f (:3)", ("f", ":3", 0)),
        ];
        for (frame, expected) in table {
            assert_eq!(frame_parts(frame), expected, "{frame}");
        }
    }
}

//! Reads heap profiles of Google's Java agent. A file consists of `--- heapz 1 ---`, attributes,
//! samples whose frames are numbers, and the names of the frames.
//!
//! Profiles are read as pprof reads them. The numbers of frames are left out, because they are not
//! addresses. Frames with the same name are one function, even if their files differ.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Line, ProfileBuilder, StringId};

use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::figures::value;
use crate::format::ProfileFormat;
use crate::heap_line::HexAddresses;
use crate::heap_samples::size_label;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::sampling::Unsampler;
use crate::stacks::{self, AddressLocations};

const FIRST_LINE: &str = "--- heapz 1 ---";
/// Sampling period of the agent in bytes. The file does not contain it.
const SAMPLING_PERIOD: i64 = 512 << 10;

pub(crate) fn sniff(head: &[u8]) -> bool {
    let first = head.split(|&b| b == b'\n').next().unwrap_or_default();
    first.trim_ascii() == FIRST_LINE.as_bytes()
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    lines.advance()?;
    let unit = attributes(lines)?;
    let mut builder = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", &unit)]);
    let mut locations = AddressLocations::new(options);
    let mut unsampler = Unsampler::new(SAMPLING_PERIOD, options.as_pprof);
    let mut stack = Vec::new();
    while lines.advance()? {
        let line = lines.trimmed();
        if line.is_empty() {
            continue;
        }
        let Some([bytes, count, ids]) = sample(line) else {
            lines.stay();
            break;
        };
        let number = |digits| {
            value(digits).ok_or_else(|| lines.wrong_part("a number below 2^63", shortened(digits)))
        };
        let (bytes, count) = (number(bytes)?, number(count)?);
        if count == 0 {
            return Err(lines.wrong("`BYTES COUNT @ 0xID …` with a count over 0"));
        }
        let values = unsampler.next(count, bytes).ok_or_else(|| {
            let found = format!("{bytes} bytes in {count} objects");
            lines.wrong_part(
                format!(
                    "values that fit in 64 bits when scaled up from one sample every \
                         {SAMPLING_PERIOD} bytes"
                ),
                found,
            )
        })?;
        let profile = &mut builder.profile;
        stack.clear();
        for id in HexAddresses(ids) {
            let id = id.map_err(|text| lines.wrong_part("an id of 64 bits", shortened(text)))?;
            stack.push(locations.get(profile, id)?);
        }
        locations.count_sample(stack.len(), || profile.memory())?;
        let label = size_label(profile, bytes / count);
        let labels = profile.label_sets.intern(&mut [label], &profile.strings);
        let values = [values.0, values.1];
        profile.samples.push(stack.iter().copied(), &values, labels);
    }
    names(lines, &mut builder, &mut locations)?;
    let mut profile = builder.finish();
    cut_frames::add_pprof_frames(&mut profile);
    let rule = format!("heapz 1, count and bytes divided by 1 - exp(-mean size/{SAMPLING_PERIOD})");
    Ok(ProfileReading::new(ProfileFormat::JavaHeapz, rule, profile))
}

/// Reads `name = value` lines and returns the value of `resolution`, which is the unit.
fn attributes(lines: &mut LineReader<'_>) -> Result<String, FormatError> {
    let mut unit = None;
    while lines.advance()? {
        let line = lines.text();
        let Some((name, value)) = line.split_once('=') else {
            if line.trim().is_empty() {
                continue;
            }
            break;
        };
        match (name.trim(), value.trim()) {
            ("format", "java") => {}
            ("resolution", "") => return Err(lines.wrong("`resolution=bytes`")),
            ("resolution", value) => unit = Some(value.to_string()),
            _ => return Err(lines.wrong("`format = java` or `resolution=bytes`")),
        }
    }
    lines.stay();
    unit.ok_or_else(|| lines.wrong("`resolution=bytes`"))
}

/// Splits a sample line, `BYTES COUNT @ 0xID …`, into its three parts.
fn sample(line: &[u8]) -> Option<[&[u8]; 3]> {
    let at = memchr::memchr(b'@', line)?;
    let mut words = line[..at]
        .split(|&b| b == b' ')
        .filter(|word| !word.is_empty());
    let number = |word: Option<_>| word.filter(|w: &&[u8]| w.iter().all(u8::is_ascii_digit));
    let (bytes, count) = (number(words.next())?, number(words.next())?);
    words
        .next()
        .is_none()
        .then_some([bytes, count, &line[at + 1..]])
}

/// Reads the names of the frames, and sets the functions of the locations.
fn names(
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

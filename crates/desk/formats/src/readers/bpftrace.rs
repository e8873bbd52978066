//! Reads maps of bpftrace whose keys are stacks, such as `@bytes[ustack] = sum(arg0)`, in the form
//! that bpftrace prints.
//!
//! Each map is a sample type. If several maps have a value for a stack, these values form one
//! sample. A map may be printed repeatedly, for example every few seconds. Each print is a part of
//! the file. The last print is read unless the user selects another. bpftrace prints a map from its
//! smallest value to its largest, so a new print begins if a value is smaller than the one before,
//! or if a key recurs.

mod maps;

use heapprof_profile::{Label, LabelSetIndex, LocationIndex};

use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::figures::value;
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::symbol_frame;
use crate::tally::{SampleTally, overflow};
use crate::texts::TextTable;
use maps::BpftraceMaps;

pub(crate) fn sniff(head: &[u8]) -> bool {
    head.split(|&b| b == b'\n').any(begins)
}

/// Whether a line begins a map whose keys are stacks. The line may be among other output.
pub(crate) fn begins(line: &[u8]) -> bool {
    matches!(opening(line), Some((_, rest)) if !is_whole(rest))
}

/// Returns the name of a map and the text after its opening bracket.
fn opening(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"@")?;
    let bracket = rest.iter().position(|&b| b == b'[')?;
    let (name, rest) = (&rest[..bracket], &rest[bracket + 1..]);
    let plain = name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    plain.then_some((name, rest))
}

/// Whether the rest of a map's first line contains the end of the key and the value. The keys of
/// such a map are not stacks.
fn is_whole(rest: &[u8]) -> bool {
    memchr::memmem::find(rest, b"]: ").is_some()
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut file = BpftraceFile {
        tally: SampleTally::new(&[], options),
        frames: TextTable::default(),
        maps: BpftraceMaps::default(),
        stack: Vec::new(),
        labels: Vec::new(),
    };
    while lines.advance()? {
        if let Some((name, rest)) = opening(lines.line())
            && !is_whole(rest)
        {
            let map = file.maps.map(name)?;
            let rest = rest.to_vec();
            file.keys(&rest);
            file.entry(lines, map)?;
        }
    }
    if file.maps.is_empty() {
        return Err(lines.ended("@NAME[, a stack, and ]: VALUE"));
    }
    file.reading(options)
}

struct BpftraceFile {
    /// The keys of all maps; the values are in `maps`. Stacks consist of numbers in `frames`
    /// instead of locations, because frames that differ only in their offsets are different keys,
    /// but one location.
    tally: SampleTally,
    frames: TextTable,
    maps: BpftraceMaps,
    stack: Vec<LocationIndex>,
    labels: Vec<Label>,
}

impl BpftraceFile {
    /// Reads the rest of a map's entry: frames, other keys, and the value.
    fn entry(&mut self, lines: &mut LineReader<'_>, map: usize) -> Result<(), FormatError> {
        loop {
            if !lines.advance()? {
                return Err(lines.ended("a frame, or ]: and a value"));
            }
            let text = lines.trimmed();
            let (keys, after) = match memchr::memmem::rfind(text, b"]:") {
                Some(at) if text.starts_with(b",") || at == 0 => {
                    (&text[..at], Some(&text[at + 2..]))
                }
                _ => (text, None),
            };
            if let Some(value) = after {
                let values = values(lines, value)?;
                let keys = keys.to_vec();
                self.keys(&keys);
                return self.close(map, values);
            }
            if text.starts_with(b",") {
                let keys = text.to_vec();
                self.keys(&keys);
            } else if text.starts_with(b"@")
                || lines
                    .line()
                    .first()
                    .is_some_and(|b| !b.is_ascii_whitespace())
            {
                return Err(lines.wrong("a frame, or ]: and a value"));
            } else if !text.is_empty() {
                let number = self.frames.intern(&String::from_utf8_lossy(text));
                let number = number.ok_or_else(|| overflow("the number of frames"))?;
                self.stack.push(LocationIndex(number));
            }
        }
    }

    /// Turns the keys other than the stack into labels.
    fn keys(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        for key in text.split(',').map(str::trim).filter(|key| !key.is_empty()) {
            let label = self.tally.builder.text_label("key", key);
            self.labels.push(label);
        }
    }

    fn close(&mut self, map: usize, values: MapValue) -> Result<(), FormatError> {
        let labels: LabelSetIndex = self.tally.builder.label_set(&mut self.labels);
        let sample = self.tally.add(&self.stack, labels, &[])?;
        self.stack.clear();
        self.labels.clear();
        self.maps.push(map, sample, values)
    }

    fn reading(self, options: &FormatReadOptions) -> Result<ProfileReading, FormatError> {
        let columns = self.maps.columns(options)?;
        let types: Vec<(&str, &str)> = columns
            .iter()
            .map(|c| (c.name.as_str(), c.unit.as_str()))
            .collect();
        let mut values = vec![0; types.len() * self.tally.len()];
        self.maps.fill(&columns, &mut values);
        let mut tally = self.tally.with_values(&types, values);
        let frames = (0..self.frames.len()).filter_map(|i| self.frames.get(i as u32));
        let locations: Result<Vec<LocationIndex>, FormatError> = frames
            .map(|frame| tally.location(&[symbol_frame::parse(frame).0]))
            .collect();
        let mut tally = tally.relocated(&locations?)?;
        cut_frames::add_tracer_frames(&mut tally.builder.profile);
        if let Some(bytes) = columns.iter().find(|c| c.unit == "bytes") {
            let shown = tally.builder.text(&bytes.name);
            tally.builder.profile.default_sample_type = shown;
        }
        if let Some(which) = self.maps.which(options)? {
            tally.comment(&which);
        }
        Ok(ProfileReading::new(
            ProfileFormat::Bpftrace,
            "none, as bpftrace aggregated",
            tally.finish(),
        ))
    }
}

/// The value of an entry: a number, or the two numbers of stats().
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MapValue {
    One(i64),
    CountAndTotal(i64, i64),
}

fn values(lines: &LineReader<'_>, text: &[u8]) -> Result<MapValue, FormatError> {
    let text = text.trim_ascii();
    if let Some(number) = value(text) {
        return Ok(MapValue::One(number));
    }
    // stats() prints `count 3, average 16, total 48`.
    let mut parts = text.split(|&b| b == b',').map(<[u8]>::trim_ascii);
    let count = parts.next().and_then(|p| value(p.strip_prefix(b"count ")?));
    let total = parts
        .next_back()
        .and_then(|p| value(p.strip_prefix(b"total ")?));
    match (count, total) {
        (Some(count), Some(total)) => Ok(MapValue::CountAndTotal(count, total)),
        _ => {
            let found = match text.is_empty() {
                true => "a histogram".to_string(),
                false => shortened(text),
            };
            Err(lines.wrong_part("a number; aggregate with count(), sum() or stats()", found))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::profile_text::{read, read_with, samples, types};
    use crate::reading::{FormatReadOptions, PartSelector};

    #[test]
    fn maps_of_the_same_stacks_join() {
        let text = "Attaching 2 probes...\n@total: 5\n@by[app]: 3\n\
            @bytes[\n    malloc+0\n    f+1\n    main+7\n]: 5\n\
            @bytes[\n    malloc+0\n    f+2\n    main+7\n]: 5\n\
            @count[\n    malloc+0\n    f+1\n    main+7\n]: 1\n\
            @count[app, \n    read+9\n, \n    main+7\n, 12]: 2\n";
        let profile = read(text);
        assert_eq!(types(&profile), ["bytes/bytes", "count/count"]);
        // Frames that differ only in their offsets are one place, but two keys.
        assert_eq!(
            samples(&profile),
            ["main;f;malloc 10 1", "main;read [key=app] [key=12] 0 2"]
        );
        assert_eq!(profile.text(profile.default_sample_type), "bytes");
    }

    #[test]
    fn the_last_print_is_read_unless_another_is_asked_for() {
        let text = "@[\n    f+1\n]: 5\n@[\n    g+1\n]: 9\n\
            @[\n    g+1\n]: 4\n@[\n    f+1\n]: 7\n@[\n    f+1\n]: 8\n";
        let part = |part| {
            samples(&read_with(
                text,
                FormatReadOptions::default().part(Some(part)),
            ))
        };
        assert_eq!(samples(&read(text)), ["f 8"]);
        assert_eq!(part(PartSelector::Number(1)), ["f 5", "g 9"]);
        assert_eq!(part(PartSelector::Number(2)), ["f 7", "g 4"]);
        assert_eq!(part(PartSelector::Peak), ["f 5", "g 9"]);
    }

    #[test]
    fn numbers_have_names() {
        let values = |text: &str| {
            types(&read_with(
                text,
                FormatReadOptions::default().values("alloc_space/bytes".parse().ok()),
            ))
        };
        assert_eq!(values("@[\n    f+1\n]: 5\n"), ["alloc_space/bytes"]);
        let stats = read("@size[\n    f+1\n]: count 3, average 2, total 7\n");
        assert_eq!(types(&stats), ["size_count/count", "size/bytes"]);
        assert_eq!(samples(&stats), ["f 3 7"]);
    }
}

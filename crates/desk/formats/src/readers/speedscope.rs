//! Reads JSON of speedscope. A file holds profiles that share their frames. A profile is a list of
//! stacks, or a list of events at which frames open and close.
//!
//! The format is described in `file-format-spec.ts` of speedscope. A file that heapprof wrote
//! becomes the original profile again: each profile in the file becomes a sample type. From any
//! other file, all profiles are read unless the user selects one. The name of each profile becomes
//! a label, and each unit becomes a sample type. Times are nanoseconds.

mod file;
mod timeline;
mod unit;

use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::json;
use crate::lines::LineReader;
use crate::readers::folded;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::tally::{SampleTally, TextFrame};
use file::{SpeedscopeFile, SpeedscopeFileSeed};
use unit::SpeedscopeUnit;

pub(crate) fn sniff(head: &[u8]) -> bool {
    let says = |text: &str| memchr::memmem::find(head, text.as_bytes()).is_some();
    // Keys may come in any order, and the first value may be longer than the head.
    json::begins(head)
        && (says("speedscope.app/file-format-schema")
            || says("\"shared\"") && says("\"frames\"")
            || says("\"profiles\"") && says("\"startValue\""))
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut file = SpeedscopeFile::new(options);
    json::whole(lines, SpeedscopeFileSeed(&mut file))?;
    file.reading(options)
}

/// A sample type, with the values of one or more profiles of the file.
struct SpeedscopeColumn {
    name: String,
    unit: String,
}

impl SpeedscopeFile {
    fn reading(self, options: &FormatReadOptions) -> Result<ProfileReading, FormatError> {
        let count = self.profiles.len();
        let total = |i: &usize| self.profiles[*i].total;
        let peak = (0..count).rev().max_by_key(total).unwrap_or(0);
        let chosen = options
            .part
            .map(|part| part.choose("profile", count, peak))
            .transpose()?;
        let is_ours = self.exporter.starts_with("heapprof");
        let mut columns: Vec<SpeedscopeColumn> = Vec::new();
        // Column of each profile; `None` for profiles that are not read.
        let mut of_profile: Vec<Option<usize>> = Vec::new();
        for (i, profile) in self.profiles.iter().enumerate() {
            if chosen.is_some_and(|chosen| chosen != i) {
                of_profile.push(None);
                continue;
            }
            let column = match (is_ours, profile.name.rsplit_once('/')) {
                (true, Some((name, unit))) => SpeedscopeColumn {
                    name: name.to_string(),
                    unit: unit.to_string(),
                },
                _ => profile.unit.column(),
            };
            let same = |c: &SpeedscopeColumn| !is_ours && c.name == column.name;
            let known = columns.iter().position(same);
            of_profile.push(Some(known.unwrap_or(columns.len())));
            if known.is_none() {
                columns.push(column);
            }
        }
        if columns.len() > MAX_SAMPLE_TYPES {
            return Err(FormatError::TooMuch(format!(
                "{MAX_SAMPLE_TYPES} sample types"
            )));
        }
        let types: Vec<(&str, &str)> = columns
            .iter()
            .map(|c| (c.name.as_str(), c.unit.as_str()))
            .collect();
        let mut tally = SampleTally::new(&types, options);
        self.add(
            &mut tally,
            &of_profile,
            chosen.is_none() && !is_ours && count > 1,
        )?;
        let shown = self.active.unwrap_or(0);
        if let Some(column) = of_profile.get(shown).copied().flatten() {
            let shown = tally.builder.text(&columns[column].name);
            tally.builder.profile.default_sample_type = shown;
        }
        if !self.name.is_empty() {
            tally.comment(&format!("name: {}", self.name));
        }
        if let Some(chosen) = chosen {
            let name = &self.profiles[chosen].name;
            tally.comment(&format!("profile: {} of {count}, {name}", chosen + 1));
        }
        Ok(ProfileReading::new(
            ProfileFormat::Speedscope,
            "none, as the file says",
            tally.finish(),
        ))
    }

    /// Adds the entries of all profiles for which `of_profile` has a column.
    fn add(
        &self,
        tally: &mut SampleTally,
        of_profile: &[Option<usize>],
        labelled: bool,
    ) -> Result<(), FormatError> {
        let text = |range: &std::ops::Range<usize>| self.text.get(range.clone()).unwrap_or("");
        let mut locations = Vec::new();
        for frame in &self.frames {
            locations.push(tally.location(&[TextFrame {
                file: text(&frame.file),
                line: frame.line,
                column: frame.column,
                ..folded::frame(text(&frame.name))
            }])?);
        }
        let mut stack = Vec::new();
        let mut row = vec![0; tally.builder.profile.sample_type.len()];
        for (profile, column) in self.profiles.iter().zip(of_profile) {
            let Some(column) = *column else { continue };
            let name = if labelled { profile.name.as_str() } else { "" };
            let labels = tally.text_label_set("profile", name);
            for &(number, value) in &profile.entries {
                stack.clear();
                stack.extend(
                    self.stacks
                        .stack(number)
                        .iter()
                        .map(|frame| locations[frame.index()]),
                );
                row[column] = value;
                tally.add(&stack, labels, &row)?;
            }
            row[column] = 0;
        }
        Ok(())
    }
}

/// Maximum number of sample types: as many as a pprof profile may have.
const MAX_SAMPLE_TYPES: usize = 1024;

impl SpeedscopeUnit {
    /// Returns the sample type for a profile with this unit.
    fn column(self) -> SpeedscopeColumn {
        let (name, unit) = match self {
            SpeedscopeUnit::None => ("samples", "count"),
            SpeedscopeUnit::Bytes => ("space", "bytes"),
            SpeedscopeUnit::Time(_) => ("time", "nanoseconds"),
        };
        SpeedscopeColumn {
            name: name.to_string(),
            unit: unit.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile_text::{read, read_with, samples, types};
    use crate::reading::PartSelector;

    const FRAMES: &str =
        r#""shared":{"frames":[{"name":"main","file":"m.c","line":3},{"name":"f","col":null}]}"#;
    const PROFILES: &str = r#""profiles":[
        {"type":"sampled","name":"one","unit":"seconds","startValue":0,"endValue":2,"samples":[[0,1],[0]],"weights":[1.5,0.25]},
        {"type":"sampled","name":"two","unit":"seconds","startValue":0,"endValue":2,"weights":[1],"samples":[[0,1]]},
        {"type":"evented","name":"three","unit":"none","startValue":0,"endValue":2,
         "events":[{"type":"O","frame":0,"at":0},{"type":"C","frame":0,"at":2}]}]"#;

    #[test]
    fn profiles_are_labels_and_units_are_types() {
        // Keys may come in any order.
        for text in [
            format!("{{{FRAMES},{PROFILES}}}"),
            format!("{{{PROFILES},\"version\":\"0\",{FRAMES}}}"),
        ] {
            let profile = read(&text);
            assert_eq!(types(&profile), ["time/nanoseconds", "samples/count"]);
            assert_eq!(
                samples(&profile),
                [
                    "main@m.c:3;f [profile=one] 1500000000 0",
                    "main@m.c:3 [profile=one] 250000000 0",
                    "main@m.c:3;f [profile=two] 1000000000 0",
                    "main@m.c:3 [profile=three] 0 2",
                ]
            );
            let part = |part| {
                samples(&read_with(
                    &text,
                    FormatReadOptions::default().part(Some(part)),
                ))
            };
            assert_eq!(part(PartSelector::Number(2)), ["main@m.c:3;f 1000000000"]);
            assert_eq!(part(PartSelector::Last), ["main@m.c:3 2"]);
            assert_eq!(part(PartSelector::Peak).len(), 2);
        }
    }

    #[test]
    fn what_heapprof_wrote_is_what_it_was() {
        let text = PROFILES
            .replace("\"one\"", "\"alloc_objects/count\"")
            .replace("\"two\"", "\"inuse_space/pages\"")
            .replace("seconds", "none")
            .replace("1.5,0.25", "9007199254740993,1");
        let profile = read(&format!(
            "{{\"exporter\":\"heapprof@0\",\"activeProfileIndex\":1,{FRAMES},{text}}}"
        ));
        assert_eq!(
            types(&profile),
            ["alloc_objects/count", "inuse_space/pages", "samples/count"]
        );
        assert_eq!(
            samples(&profile),
            ["main@m.c:3;f 9007199254740993 1 0", "main@m.c:3 1 0 2"]
        );
        assert_eq!(profile.text(profile.default_sample_type), "inuse_space");
    }
}

//! Reads JSON of Valgrind's DHAT, version 2. The Rust crate `dhat` writes this format, too. DHAT's
//! author describes the format in `dhat/dh_main.c`.
//!
//! A program point is a stack with three amounts: the memory that it allocated in total, its memory
//! in use when the heap was largest (t-gmax), and its memory in use at the end. The maximum of each
//! point (`mb`, `mbk`) is ignored, because maxima at different moments can't be added. The accesses
//! by offset (`acc`) are ignored too.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::cut_frames;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::json::{self, EachElement, WholeNumber};
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::tally::SampleTally;
use crate::texts::TextTable;
use crate::valgrind_frame::ValgrindStacks;

pub(crate) fn sniff(head: &[u8]) -> bool {
    json::begins(head) && memchr::memmem::find(head, b"\"dhatFileVersion\"").is_some()
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut file = DhatFile::default();
    json::whole(lines, DhatFileSeed(&mut file))?;
    file.reading(options)
}

/// Optional data of a file, on which some values of a program point depend.
#[derive(Clone, Copy)]
enum ValueRequirement {
    Nothing,
    /// Lifetimes of blocks (`bklt`).
    Lifetimes,
    /// Reads and writes in blocks (`bkacc`).
    Accesses,
}

/// Values of a program point: the key in the format, the sample type, the unit, and the data that
/// the file must record.
const POINT_VALUES: [(&str, &str, &str, ValueRequirement); 9] = [
    ("tbk", "alloc_objects", "count", ValueRequirement::Nothing),
    ("tb", "alloc_space", "bytes", ValueRequirement::Nothing),
    ("gbk", "peak_objects", "count", ValueRequirement::Lifetimes),
    ("gb", "peak_space", "bytes", ValueRequirement::Lifetimes),
    ("rb", "read_space", "bytes", ValueRequirement::Accesses),
    ("wb", "written_space", "bytes", ValueRequirement::Accesses),
    ("tl", "lifetime", "", ValueRequirement::Lifetimes),
    ("ebk", "inuse_objects", "count", ValueRequirement::Lifetimes),
    ("eb", "inuse_space", "bytes", ValueRequirement::Lifetimes),
];
const VALUE_COUNT: usize = POINT_VALUES.len();

#[derive(Default)]
struct DhatFile {
    version: Option<u64>,
    mode: String,
    verb: String,
    command: String,
    pid: Option<i64>,
    has_lifetimes: bool,
    has_accesses: bool,
    /// Unit of sizes. The next two fields are the units of counts of blocks and of time.
    sizes: Option<String>,
    blocks: Option<String>,
    time: Option<String>,
    end_time: i64,
    peak_time: Option<i64>,
    points: ProgramPoints,
    frames: TextTable,
    has_frames: bool,
}

/// All program points, column by column.
#[derive(Default)]
struct ProgramPoints {
    value: Vec<[i64; VALUE_COUNT]>,
    /// For each value: whether any program point has it.
    present: [bool; VALUE_COUNT],
    frame: Vec<u32>,
    end: Vec<usize>,
}

impl DhatFile {
    fn reading(self, options: &FormatReadOptions) -> Result<ProfileReading, FormatError> {
        let sizes = self.sizes.as_deref().unwrap_or("bytes");
        let blocks = self.blocks.as_deref().unwrap_or("count");
        let time = self.time.as_deref().unwrap_or("");
        // The header says which data is recorded, even in files without points. A value that a
        // point has was recorded, too.
        let is_recorded = |i: usize| match POINT_VALUES[i].3 {
            ValueRequirement::Nothing => true,
            ValueRequirement::Lifetimes => self.has_lifetimes,
            ValueRequirement::Accesses => self.has_accesses,
        };
        let kept: Vec<usize> = (0..VALUE_COUNT)
            .filter(|&i| is_recorded(i) || self.points.present[i])
            .collect();
        let types: Vec<(&str, &str)> = kept
            .iter()
            .map(|&i| match POINT_VALUES[i] {
                (_, name, "bytes", _) => (name, sizes),
                (_, name, "count", _) => (name, blocks),
                (_, name, _, _) => (name, time),
            })
            .collect();
        let mut tally = SampleTally::new(&types, options);
        cut_frames::add_tracer_frames(&mut tally.builder.profile);
        let none = tally.text_label_set("", "");
        let mut stacks = ValgrindStacks::new(&self.frames);
        let mut values = Vec::new();
        let mut start = 0;
        for (point, &end) in self.points.value.iter().zip(&self.points.end) {
            let stack = stacks.locations(&mut tally, &self.points.frame[start..end])?;
            start = end;
            values.clear();
            values.extend(kept.iter().map(|&i| point[i]));
            tally.add(stack, none, &values)?;
        }
        let unit = if time.is_empty() { "" } else { " " };
        let peak = self.peak_time.map_or(String::new(), |t| {
            format!(", the peak was at {t}{unit}{time}")
        });
        for (what, text) in [
            ("command", self.command.clone()),
            ("mode", format!("{} ({})", self.mode, self.verb)),
            (
                "process",
                self.pid.map_or(String::new(), |pid| pid.to_string()),
            ),
            (
                "time",
                format!("ended at {}{unit}{time}{peak}", self.end_time),
            ),
        ] {
            if !text.is_empty() {
                tally.comment(&format!("{what}: {text}"));
            }
        }
        if self.mode.starts_with("heap") || self.mode.starts_with("rust-heap") {
            tally.builder.profile.set_default_of_finished_program();
        }
        Ok(ProfileReading::new(
            ProfileFormat::Dhat,
            "none, DHAT measures every block",
            tally.finish(),
        ))
    }
}

struct DhatFileSeed<'f>(&'f mut DhatFile);

impl<'de> DeserializeSeed<'de> for DhatFileSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for DhatFileSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object of a DHAT file")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let file = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "dhatFileVersion" => {
                    let WholeNumber(version) = map.next_value()?;
                    if version != 2 {
                        let found = format!("expected dhatFileVersion 2, found {version}");
                        return Err(A::Error::custom(found));
                    }
                    file.version = Some(version);
                }
                "mode" => file.mode = map.next_value()?,
                "verb" => file.verb = map.next_value()?,
                "cmd" => file.command = map.next_value()?,
                "pid" => file.pid = Some(map.next_value::<WholeNumber<i64>>()?.0),
                "bklt" => file.has_lifetimes = map.next_value()?,
                "bkacc" => file.has_accesses = map.next_value()?,
                "bsu" => file.sizes = Some(map.next_value()?),
                "bksu" => file.blocks = Some(map.next_value()?),
                "tu" => file.time = Some(map.next_value()?),
                "te" => file.end_time = map.next_value::<WholeNumber<i64>>()?.0,
                "tg" => file.peak_time = Some(map.next_value::<WholeNumber<i64>>()?.0),
                "pps" => map.next_value_seed(ProgramPointsSeed(&mut file.points))?,
                "ftbl" => {
                    file.has_frames = true;
                    map.next_value_seed(EachElement::new("a list of frames", |text: String| {
                        file.frames.push(&text);
                        Ok(())
                    }))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let missing = |key| {
            Err(A::Error::custom(format!(
                "expected {key}, found the end of the object"
            )))
        };
        if file.version.is_none() {
            return missing("dhatFileVersion");
        }
        if !file.has_frames {
            return missing("ftbl");
        }
        let frames = file.frames.len();
        if let Some(&frame) = file.points.frame.iter().find(|&&f| f as usize >= frames) {
            let found = format!(
                "expected frame numbers below {frames}, the length of ftbl, found {frame} \
                         in fs"
            );
            return Err(A::Error::custom(found));
        }
        Ok(())
    }
}

struct ProgramPointsSeed<'f>(&'f mut ProgramPoints);

impl<'de> DeserializeSeed<'de> for ProgramPointsSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ProgramPointsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of program points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(ProgramPointSeed(self.0))?.is_some() {}
        Ok(())
    }
}

/// Reads one program point.
struct ProgramPointSeed<'f>(&'f mut ProgramPoints);

impl<'de> DeserializeSeed<'de> for ProgramPointSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ProgramPointSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a program point")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let points = self.0;
        let mut values = [0; VALUE_COUNT];
        let mut has_stack = false;
        while let Some(key) = map.next_key::<PointKey>()? {
            match key {
                PointKey::Value(i) => {
                    values[i] = map.next_value::<WholeNumber<i64>>()?.0;
                    points.present[i] = true;
                }
                PointKey::Frames => {
                    has_stack = true;
                    map.next_value_seed(EachElement::new(
                        "a list of frames",
                        |frame: WholeNumber<u32>| {
                            points.frame.push(frame.0);
                            Ok(())
                        },
                    ))?;
                }
                PointKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if !has_stack {
            return Err(A::Error::custom(
                "expected fs, found the end of the program point",
            ));
        }
        points.value.push(values);
        points.end.push(points.frame.len());
        Ok(())
    }
}

/// A key in the JSON of a program point. There are millions of keys, so they are not stored as
/// text.
enum PointKey {
    Value(usize),
    Frames,
    Other,
}

impl<'de> Deserialize<'de> for PointKey {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct PointKeyVisitor;
        impl Visitor<'_> for PointKeyVisitor {
            type Value = PointKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<PointKey, E> {
                let value = POINT_VALUES.iter().position(|(name, ..)| *name == key);
                Ok(match value {
                    Some(i) => PointKey::Value(i),
                    None if key == "fs" => PointKey::Frames,
                    None => PointKey::Other,
                })
            }
        }
        json.deserialize_identifier(PointKeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use crate::profile_text::{read, samples, types};

    #[test]
    fn program_points_are_samples() {
        // Frames may come first or last.
        let points = r#""pps":[{"tb":96,"tbk":3,"tl":7,"mb":64,"mbk":2,"gb":64,"gbk":2,"eb":32,"ebk":1,"rb":9,"wb":8,"acc":[-2,3],"fs":[1,2]},
            {"tb":5,"tbk":1,"tl":1,"mb":5,"mbk":1,"gb":0,"gbk":0,"eb":0,"ebk":0,"rb":0,"wb":0,"fs":[]}]"#;
        let frames = r#""ftbl":["[root]","0x1: malloc (in /lib/x.so)","0x2: main (m.c:3)"]"#;
        let head = r#"{"dhatFileVersion":2,"mode":"heap","verb":"Allocated","bklt":true,"bkacc":true,"tu":"instrs","Mtu":"Minstr","tuth":500,"cmd":"./app","pid":1,"te":9,"tg":4"#;
        for text in [
            format!("{head},{points},{frames}}}"),
            format!("{head},{frames},{points}}}"),
        ] {
            let profile = read(&text);
            assert_eq!(
                types(&profile),
                [
                    "alloc_objects/count",
                    "alloc_space/bytes",
                    "peak_objects/count",
                    "peak_space/bytes",
                    "read_space/bytes",
                    "written_space/bytes",
                    "lifetime/instrs",
                    "inuse_objects/count",
                    "inuse_space/bytes"
                ]
            );
            assert_eq!(
                samples(&profile),
                [
                    "main@m.c:3;malloc 3 96 2 64 9 8 7 1 32",
                    " 1 5 0 0 0 0 1 0 0"
                ]
            );
        }
    }

    #[test]
    fn other_modes_have_other_values() {
        let text = r#"{"dhatFileVersion":2,"mode":"rust-ad-hoc","verb":"Allocated","bklt":false,"bkacc":false,
            "bsu":"units","bksu":"events","tu":"\u00b5s","Mtu":"s","cmd":"app","pid":1,"te":9,
            "pps":[{"tb":10,"tbk":2,"fs":[0]}],"ftbl":["0x5: app::main (src/main.rs:3:9)"]}"#;
        let profile = read(text);
        assert_eq!(
            types(&profile),
            ["alloc_objects/events", "alloc_space/units"]
        );
        assert_eq!(samples(&profile), ["app::main@src/main.rs:3 2 10"]);
    }

    #[test]
    fn a_program_that_allocated_nothing_has_types() {
        let file = |lifetimes, accesses| {
            format!(
                r#"{{"dhatFileVersion":2,"mode":"heap","verb":"Allocated","bklt":{lifetimes},"bkacc":{accesses},"te":9,"pps":[],"ftbl":["[root]"]}}"#
            )
        };
        for (lifetimes, accesses, expected) in
            [(true, true, 9), (true, false, 7), (false, false, 2)]
        {
            let without = file(lifetimes, accesses);
            let of_nothing = without.replace(r#""pps":[]"#, r#""pps":[{"fs":[0]}]"#);
            for text in [&without, &of_nothing] {
                let profile = read(text);
                assert_eq!(types(&profile).len(), expected);
                assert!(samples(&profile).is_empty());
            }
        }
        let profile = read(&file(true, true));
        assert_eq!(
            types(&profile)[profile.default_sample_type_index()],
            "inuse_space/bytes"
        );
    }
}

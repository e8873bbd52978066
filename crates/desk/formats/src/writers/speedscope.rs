//! Writes speedscope's JSON: a profile named `type/unit` for each sample type, with frames that all
//! profiles share.
//!
//! The units of the format are none, bytes and times. Bytes and times in larger units are written
//! as bytes and nanoseconds. The format has no place for labels.

use std::io::Write;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{FunctionIndex, Location, Profile, Unit, UnitFamily};
use serde_json::json;

use super::WriteError;

/// Writes a profile under the name `name`. If `lines` is set, calls at different lines of a
/// function are different frames.
pub fn write_speedscope(
    profile: &Profile,
    name: &str,
    lines: bool,
    mut writer: impl Write,
) -> Result<(), WriteError> {
    let frames = SpeedscopeFrameTable::new(profile, lines);
    let head = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("heapprof@", env!("CARGO_PKG_VERSION")),
        "name": name,
        "activeProfileIndex": profile.default_sample_type_index(),
    });
    let head = serde_json::to_string(&head)?;
    writeln!(
        writer,
        "{},\"shared\":{{\"frames\":[",
        &head[..head.len() - 1]
    )?;
    frames.write(&mut writer)?;
    writeln!(writer, "]}},\"profiles\":[")?;
    let mut last = "";
    for (at, value_type) in profile.sample_type.iter().enumerate() {
        let (r#type, unit) = (
            profile.text(value_type.r#type),
            profile.text(value_type.unit),
        );
        let (factor, unit, known) = unit_of(unit);
        let weights = weights(profile, at, factor)?;
        let end: i128 = weights.iter().map(|&(_, weight)| i128::from(weight)).sum();
        let name = serde_json::to_string(&format!("{}/{unit}", r#type))?;
        write!(
            writer,
            "{last}{{\"type\":\"sampled\",\"name\":{name},\"unit\":\"{known}\",\"startValue\":0,\"\
             endValue\":{end},\"samples\":["
        )?;
        for (i, &(sample, _)) in weights.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(writer, "{comma}\n[")?;
            frames.stack(profile, sample, &mut writer)?;
            write!(writer, "]")?;
        }
        write!(writer, "],\n\"weights\":[")?;
        for (i, (_, weight)) in weights.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(writer, "{comma}{weight}")?;
        }
        write!(writer, "]}}")?;
        last = ",\n";
    }
    writeln!(writer, "]}}")?;
    Ok(())
}

/// Returns the factor that converts a value, the unit of the result, and speedscope's name of that
/// unit.
fn unit_of(unit: &str) -> (i64, &str, &'static str) {
    match Unit::parse(unit) {
        Some(Unit {
            family: UnitFamily::Bytes,
            factor,
        }) => (factor, "bytes", "bytes"),
        Some(Unit {
            family: UnitFamily::Time,
            factor,
        }) => (factor, "nanoseconds", "nanoseconds"),
        None => (1, unit, "none"),
    }
}

/// Returns the samples whose value is not 0, each with its value.
fn weights(profile: &Profile, at: usize, factor: i64) -> Result<Vec<(usize, i64)>, WriteError> {
    let samples = &profile.samples;
    let values = (0..samples.len()).map(|i| (i, samples.values(i)[at]));
    let weight = |(i, value): (usize, i64)| {
        let weight = value.checked_mul(factor);
        let too_large = || {
            WriteError::Unfit(format!(
                "sample #{}: its value times {factor} does not fit in 64 bits",
                i + 1
            ))
        };
        Ok((i, weight.ok_or_else(too_large)?))
    };
    values
        .filter(|(_, value)| *value != 0)
        .map(weight)
        .collect()
}

/// The distinct frames of all locations.
struct SpeedscopeFrameTable<'p> {
    profile: &'p Profile,
    /// Distinct frames: a function at a line, or a location without symbols.
    frame: Vec<SpeedscopeFrame>,
    /// Indexes in `frame` of the frames of all locations, outermost first. `end` holds the end of
    /// each location's frames.
    of_location: Vec<u32>,
    end: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum SpeedscopeFrame {
    Function(FunctionIndex, i64, i64),
    Address(usize),
}

impl<'p> SpeedscopeFrameTable<'p> {
    fn new(profile: &'p Profile, lines: bool) -> Self {
        let mut frames = Self {
            profile,
            frame: Vec::new(),
            of_location: Vec::new(),
            end: Vec::new(),
        };
        let mut index: HashMap<SpeedscopeFrame, u32> = HashMap::new();
        for (i, location) in profile.location.iter().enumerate() {
            let functions = profile
                .lines(location)
                .iter()
                .rev()
                .map(|line| match lines {
                    true => SpeedscopeFrame::Function(line.function, line.line, line.column),
                    false => SpeedscopeFrame::Function(line.function, 0, 0),
                });
            let unnamed = profile
                .lines(location)
                .is_empty()
                .then_some(SpeedscopeFrame::Address(i));
            for frame in functions.chain(unnamed) {
                let number = *index.entry(frame).or_insert_with(|| {
                    frames.frame.push(frame);
                    frames.frame.len() as u32 - 1
                });
                frames.of_location.push(number);
            }
            frames.end.push(frames.of_location.len());
        }
        frames
    }

    fn write(&self, writer: &mut impl Write) -> Result<(), WriteError> {
        for (i, frame) in self.frame.iter().enumerate() {
            let comma = if i + 1 < self.frame.len() { "," } else { "" };
            let json = match *frame {
                SpeedscopeFrame::Address(location) => {
                    let location: &Location = &self.profile.location[location];
                    json!({"name": self.profile.address_name(location)})
                }
                SpeedscopeFrame::Function(function, line, column) => {
                    let function = &self.profile.function[function.index()];
                    let mut json = json!({"name": self.profile.text(function.name)});
                    if !function.filename.is_empty() {
                        json["file"] = self.profile.text(function.filename).into();
                    }
                    if line != 0 {
                        json["line"] = line.into();
                    }
                    if column != 0 {
                        json["col"] = column.into();
                    }
                    json
                }
            };
            writeln!(writer, "{}{comma}", serde_json::to_string(&json)?)?;
        }
        Ok(())
    }

    /// Writes the frame indexes of a stack, root first.
    fn stack(
        &self,
        profile: &Profile,
        sample: usize,
        writer: &mut impl Write,
    ) -> Result<(), WriteError> {
        let mut comma = "";
        for location in profile.samples.stack(sample).iter().rev() {
            let end = self.end[location.index()];
            let start = location
                .index()
                .checked_sub(1)
                .map_or(0, |before| self.end[before]);
            for frame in &self.of_location[start..end] {
                write!(writer, "{comma}{frame}")?;
                comma = ",";
            }
        }
        Ok(())
    }
}

//! The command `convert`: a whole profile in other forms, written while it is read.

use std::io::Write;

use heapprof_analysis::{EMPTY_STACK, PlaceId, PlaceTable};
use heapprof_profile::{Label, Location, Profile};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::ReportError;
use crate::flame::frame;
use crate::names::{NameCache, push_root_first};
use heapprof_text::{ControlReplacement, EscapingWriter};

/// Writes folded stacks, root first.
pub struct FoldedWriter<W> {
    writer: W,
    frames: NameCache,
    line: String,
}

impl<W: Write> FoldedWriter<W> {
    /// Makes a writer of folded stacks. Nothing is written yet.
    pub fn new(writer: W) -> Self {
        let frames = NameCache::new(|place| frame(&place.label()));
        Self {
            writer,
            frames,
            line: String::new(),
        }
    }

    /// Writes a stack, which is given leaf first.
    pub fn write(
        &mut self,
        places: &PlaceTable,
        stack: &[PlaceId],
        value: i64,
    ) -> std::io::Result<()> {
        match stack.is_empty() {
            true => writeln!(self.writer, "{EMPTY_STACK} {value}"),
            false => {
                self.line.clear();
                push_root_first(places, stack, &mut self.frames, &mut self.line);
                writeln!(self.writer, "{} {value}", self.line)
            }
        }
    }
}

fn text(profile: &Profile, label: &Label) -> Value {
    match label.str.is_empty() {
        true => json!({"num": label.num, "unit": profile.text(label.num_unit)}),
        false => json!(profile.text(label.str)),
    }
}

fn labels(profile: &Profile, sample: usize) -> Value {
    let mut labels: Map<String, Value> = Map::new();
    for label in profile.label_sets.get(profile.samples.label_set(sample)) {
        let list = labels
            .entry(profile.text(label.key).to_string())
            .or_insert_with(|| json!([]));
        if let Value::Array(list) = list {
            list.push(text(profile, label));
        }
    }
    labels.into()
}

/// Returns the frames of a location as elements of a JSON list, innermost first.
fn frames(profile: &Profile, location: &Location) -> String {
    let address = json!(format!("{:#x}", location.address));
    let mut frames: Vec<Map<String, Value>> = profile
        .lines(location)
        .iter()
        .map(|line| {
            let function = &profile.function[line.function.index()];
            let mut frame = Map::new();
            frame.insert("function".into(), json!(profile.text(function.name)));
            frame.insert("file".into(), json!(profile.text(function.filename)));
            frame.insert("line".into(), json!(line.line));
            frame
        })
        .collect();
    if frames.is_empty() {
        frames.push(Map::new());
    }
    for frame in &mut frames {
        frame.insert("address".into(), address.clone());
    }
    let frames: Vec<String> = frames
        .iter()
        .map(|frame| json!(frame).to_string())
        .collect();
    frames.join(",")
}

#[derive(Serialize)]
struct JsonSample<'a> {
    labels: Value,
    values: &'a [i64],
}

/// Writes the whole content of a profile as JSON, with one sample on each line.
pub fn profile_json(profile: &Profile, writer: impl Write) -> Result<(), ReportError> {
    let mut writer = EscapingWriter::new(writer, ControlReplacement::Json);
    let value_type = |t: &heapprof_profile::ValueType| json!({"type": profile.text(t.r#type), "unit": profile.text(t.unit)});
    let head = json!({
        "sample_types": profile.sample_type.iter().map(value_type).collect::<Vec<_>>(),
        "time_nanos": profile.time_nanos,
        "duration_nanos": profile.duration_nanos,
        "period_type": profile.period_type.as_ref().map(value_type),
        "period": profile.period,
        "default_sample_type": profile.text(profile.default_sample_type),
        "drop_frames": profile.text(profile.drop_frames),
        "keep_frames": profile.text(profile.keep_frames),
        "doc_url": profile.text(profile.doc_url),
        "comments": profile.comment.iter().map(|&c| profile.text(c)).collect::<Vec<_>>(),
        "mappings": profile.mapping.iter().map(|m| json!({
            "memory_start": format!("{:#x}", m.memory_start),
            "memory_limit": format!("{:#x}", m.memory_limit),
            "file_offset": format!("{:#x}", m.file_offset),
            "filename": profile.text(m.filename),
            "build_id": profile.text(m.build_id),
        })).collect::<Vec<_>>(),
    });
    let head = serde_json::to_string(&head)?;
    writeln!(writer, "{},\"samples\":[", &head[..head.len() - 1])?;
    let samples = &profile.samples;
    let frames: Vec<String> = profile
        .location
        .iter()
        .map(|location| frames(profile, location))
        .collect();
    let mut line = String::new();
    for i in 0..samples.len() {
        line.clear();
        line.push_str("{\"stack\":[");
        for (n, location) in samples.stack(i).iter().enumerate() {
            line.push_str(if n > 0 { "," } else { "" });
            line.push_str(&frames[location.index()]);
        }
        let rest = serde_json::to_string(&JsonSample {
            labels: labels(profile, i),
            values: samples.values(i),
        })?;
        // `rest` is an object, too. Its members are added to the object that begins with the stack.
        line.extend(["],", rest.strip_prefix('{').unwrap_or(&rest)]);
        line.push_str(if i + 1 < samples.len() { ",\n" } else { "\n" });
        writer.write_all(line.as_bytes())?;
    }
    writeln!(writer, "]}}")?;
    Ok(writer.flush()?)
}

/// Returns the names of a location's functions, outermost first.
fn names(profile: &Profile, location: &Location) -> String {
    let names = profile.lines(location).iter().rev().map(|line| {
        let function = &profile.function[line.function.index()];
        profile.text(function.name)
    });
    let names: Vec<String> = names.map(|name| name.replace(';', ":")).collect();
    if names.iter().all(String::is_empty) {
        return profile.address_name(location).replace(';', ":");
    }
    names.join(";")
}

/// Writes one row for each sample: its stack (root first), its labels, and one column for each
/// sample type.
pub fn profile_csv(profile: &Profile, writer: impl Write) -> Result<(), ReportError> {
    let mut csv =
        csv::Writer::from_writer(EscapingWriter::new(writer, ControlReplacement::Replacement));
    let types = profile
        .sample_type
        .iter()
        .map(|t| profile.text(t.r#type).to_string());
    csv.write_record(
        ["stack".to_string(), "labels".to_string()]
            .into_iter()
            .chain(types),
    )?;
    let samples = &profile.samples;
    let names: Vec<String> = profile
        .location
        .iter()
        .map(|location| names(profile, location))
        .collect();
    for i in 0..samples.len() {
        let frames = samples.stack(i).iter().rev();
        let frames: Vec<&str> = frames.map(|l| names[l.index()].as_str()).collect();
        let stack = match frames.is_empty() {
            true => EMPTY_STACK.to_string(),
            false => frames.join(";"),
        };
        let labels = match labels(profile, i) {
            Value::Object(map) if map.is_empty() => String::new(),
            labels => labels.to_string(),
        };
        let values = samples.values(i).iter().map(ToString::to_string);
        csv.write_record([stack, labels].into_iter().chain(values))?;
    }
    csv.flush()?;
    Ok(())
}

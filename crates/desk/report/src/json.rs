//! JSON parts that several reports share. Programs rely on their shapes: add to them, but never
//! change them.

use std::io::Write;

use heapprof_analysis::{
    CodePlace, PlaceId, PlaceTable, ReportHeader, SampleType, ShownFile, traces::LabelValue,
};
use serde::ser::{Serialize, SerializeMap};
use serde_json::{Map, Value, json};

use crate::error::ReportError;
use crate::names::NameCache;
use crate::range;
use heapprof_text::{ControlReplacement, EscapingWriter};

pub(crate) fn sample_type(sample_type: &SampleType) -> Value {
    json!({"type": sample_type.r#type, "unit": sample_type.unit})
}

/// Returns a place as JSON: `function`, its `file` if it has one, and `line` and `address` if the
/// granularity distinguishes them. If the granularity distinguishes files, `file` may be empty.
pub(crate) fn place(place: &CodePlace) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("function".into(), json!(place.function));
    if let Some(file) = file(place) {
        row.insert("file".into(), json!(file));
    }
    if let Some(line) = place.line {
        row.insert("line".into(), json!(line));
    }
    if let Some(address) = place.address {
        row.insert("address".into(), json!(format!("{address:#x}")));
    }
    row
}

fn file(place: &CodePlace) -> Option<&str> {
    let is_shown = |file: &&str| !file.is_empty() || place.shown_file == ShownFile::Whole;
    place.file.as_deref().filter(is_shown)
}

/// Writes the members of a place, as [`place`] returns them, into an object.
pub(crate) fn place_keys<M: SerializeMap>(
    place: &CodePlace,
    object: &mut M,
) -> Result<(), M::Error> {
    object.serialize_entry("function", &place.function)?;
    if let Some(file) = file(place) {
        object.serialize_entry("file", file)?;
    }
    if let Some(line) = place.line {
        object.serialize_entry("line", &line)?;
    }
    if let Some(address) = place.address {
        object.serialize_entry("address", &format!("{address:#x}"))?;
    }
    Ok(())
}

/// Returns the head of a document: `sample_type`, `total` and `net`. Estimates add `estimate`.
/// Filters add `left_out`, and `net_estimate` if values are estimates.
pub(crate) fn head(header: &ReportHeader) -> Map<String, Value> {
    let mut head = Map::new();
    head.insert("sample_type".into(), sample_type(&header.sample_type));
    head.insert("total".into(), json!(header.total));
    head.insert("net".into(), json!(header.net));
    range::insert(&mut head, "estimate", header.estimate.as_ref());
    if !header.filters.is_empty() {
        head.insert("left_out".into(), json!(header.left_out));
        range::insert(&mut head, "net_estimate", header.net_estimate.as_ref());
    }
    head
}

/// Returns a label's value as JSON: a text, or a number with its unit.
pub(crate) fn label(value: &LabelValue) -> Value {
    match value {
        LabelValue::Text(text) => json!(text),
        LabelValue::Number(number, unit) => json!({"num": number, "unit": unit}),
    }
}

/// Returns a document as text with a line end.
pub(crate) fn text(value: impl Into<Value>) -> Result<String, ReportError> {
    let mut text = Vec::new();
    let mut out = EscapingWriter::new(&mut text, ControlReplacement::Json);
    serde_json::to_writer(&mut out, &value.into())?;
    writeln!(out)?;
    out.flush()?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Writes a document of `head`, `rows` and `tail` row by row, because it may be much longer than
/// the profile.
pub(crate) fn write_each(
    head: &Map<String, Value>,
    tail: &Map<String, Value>,
    out: &mut dyn Write,
    rows: impl FnOnce(&mut JsonRowWriter<'_>) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let out = &mut EscapingWriter::new(out, ControlReplacement::Json);
    let entry = |key: &String, value: &Value, out: &mut dyn Write| -> Result<(), ReportError> {
        serde_json::to_writer(&mut *out, key)?;
        out.write_all(b":")?;
        Ok(serde_json::to_writer(out, value)?)
    };
    out.write_all(b"{")?;
    for (key, value) in head {
        entry(key, value, out)?;
        out.write_all(b",")?;
    }
    out.write_all(b"\"rows\":[")?;
    rows(&mut JsonRowWriter { out, separator: "" })?;
    out.write_all(b"]")?;
    for (key, value) in tail {
        out.write_all(b",")?;
        entry(key, value, out)?;
    }
    out.write_all(b"}\n")?;
    Ok(out.flush()?)
}

/// Writes the rows of a document.
pub(crate) struct JsonRowWriter<'o> {
    out: &'o mut dyn Write,
    separator: &'static str,
}

impl JsonRowWriter<'_> {
    /// Writes one row.
    pub(crate) fn row(&mut self, row: &impl Serialize) -> Result<(), ReportError> {
        self.out.write_all(self.separator.as_bytes())?;
        self.separator = ",";
        Ok(serde_json::to_writer(&mut *self.out, row)?)
    }
}

impl JsonRowWriter<'_> {
    /// Writes one row, which is an object, with a `stack` after its other members. `names` must
    /// hold the texts of [`place_json`].
    pub(crate) fn row_with_stack(
        &mut self,
        row: &impl Serialize,
        places: &PlaceTable,
        stack: &[PlaceId],
        names: &mut NameCache,
    ) -> Result<(), ReportError> {
        names.fetch(stack.iter().copied());
        let row = serde_json::to_string(row)?;
        self.out.write_all(self.separator.as_bytes())?;
        self.separator = ",";
        self.out
            .write_all(row.strip_suffix('}').unwrap_or(&row).as_bytes())?;
        let mut separator = ",\"stack\":[";
        for &place in stack {
            self.out.write_all(separator.as_bytes())?;
            self.out
                .write_all(names.name_of(places, place).as_bytes())?;
            separator = ",";
        }
        let end: &[u8] = match stack.is_empty() {
            true => b",\"stack\":[]}",
            false => b"]}",
        };
        Ok(self.out.write_all(end)?)
    }
}

/// Returns a place's JSON as text, for [`NameCache`].
pub(crate) fn place_json(of: &CodePlace) -> String {
    Value::Object(place(of)).to_string()
}

//! JSON parts that several reports share. Their shapes are promised: add to them, never change them.

use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;

use heapprof_analysis::{Header, LabelValue, Place, SampleType};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::error::Error;

pub(crate) fn sample_type(sample_type: &SampleType) -> Value {
    json!({"type": sample_type.r#type, "unit": sample_type.unit})
}

/// `function`, and `file`, `line`, `address` where the granularity tells them apart.
pub(crate) fn place(place: &Place) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("function".into(), json!(place.function));
    if let Some(file) = &place.file {
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

/// `sample_type`, `total`, `net`, and with filters `left_out`.
pub(crate) fn head(header: &Header) -> Map<String, Value> {
    let mut head = Map::new();
    head.insert("sample_type".into(), sample_type(&header.sample_type));
    head.insert("total".into(), json!(header.total));
    head.insert("net".into(), json!(header.net));
    if !header.filters.is_empty() {
        head.insert("left_out".into(), json!(header.left_out));
    }
    head
}

/// A text, or a number with its unit.
pub(crate) fn label(value: &LabelValue) -> Value {
    match value {
        LabelValue::Text(text) => json!(text),
        LabelValue::Number(number, unit) => json!({"num": number, "unit": unit}),
    }
}

/// The document with a line end.
pub(crate) fn text(value: impl Into<Value>) -> Result<String, Error> {
    let mut text = serde_json::to_string(&value.into())?;
    text.push('\n');
    Ok(text)
}

/// Writes a document of `head`, `rows` and `tail` row by row: it may be much longer than the profile.
pub(crate) fn write<R: Serialize>(
    head: &Map<String, Value>,
    rows: impl Iterator<Item = R>,
    tail: &Map<String, Value>,
    mut out: &mut dyn Write,
) -> Result<(), Error> {
    let mut serializer = serde_json::Serializer::new(&mut out);
    let mut document = serializer.serialize_map(None)?;
    for (key, value) in head {
        document.serialize_entry(key, value)?;
    }
    document.serialize_entry("rows", &Rows(Cell::new(Some(rows))))?;
    for (key, value) in tail {
        document.serialize_entry(key, value)?;
    }
    document.end()?;
    Ok(writeln!(out)?)
}

/// Rows that are made as they are written, once.
struct Rows<I>(Cell<Option<I>>);

impl<R: Serialize, I: Iterator<Item = R>> Serialize for Rows<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.take().into_iter().flatten())
    }
}

/// JSON that is written again and again, and made once.
#[derive(Clone)]
pub(crate) struct Made(Rc<RawValue>);

impl Made {
    pub(crate) fn new(value: &Map<String, Value>) -> Self {
        // A map of texts, numbers and lists can't fail.
        let made = to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self(made.into())
    }
}

impl Serialize for Made {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// A place's JSON, for [`Once`](crate::names::Once).
pub(crate) fn made_place(of: &Place) -> Made {
    Made::new(&place(of))
}

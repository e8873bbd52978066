//! JSON parts that several reports share. Their shapes are promised: add to them, never change them.

use heapprof_analysis::{Header, LabelValue, Place, SampleType};
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

//! Names of rows and labels as one cell shows them.

use heapprof_analysis::{LabelValue, Place};

use crate::measure::Measure;
use crate::table::{Align, Table};

/// The columns that name a row: in text one, for programs one each.
pub(crate) fn name_columns(table: &mut Table, place: &Place, split: bool) {
    if !split {
        table.column("function", Align::Left);
        return;
    }
    table.column("function", Align::Left);
    if place.file.is_some() {
        table.column("file", Align::Left);
    }
    if place.line.is_some() {
        table.column("line", Align::Right);
    }
    if place.address.is_some() {
        table.column("address", Align::Right);
    }
}

/// The cells under [`name_columns`]; `like` says which columns there are.
pub(crate) fn name_cells(place: &Place, like: &Place, split: bool) -> Vec<String> {
    if !split {
        return vec![place.label()];
    }
    let mut cells = vec![place.function.clone()];
    if like.file.is_some() {
        cells.push(place.file.clone().unwrap_or_default());
    }
    if like.line.is_some() {
        cells.push(place.line.map(|l| l.to_string()).unwrap_or_default());
    }
    if like.address.is_some() {
        cells.push(place.address.map(|a| format!("{a:#x}")).unwrap_or_default());
    }
    cells
}

/// A label's value.
pub(crate) fn label_value(value: &LabelValue) -> String {
    match value {
        LabelValue::Text(text) => text.clone(),
        LabelValue::Number(number, unit) => match Measure::new(unit, None) {
            Ok(measure) => measure.show(*number),
            Err(_) => number.to_string(),
        },
    }
}

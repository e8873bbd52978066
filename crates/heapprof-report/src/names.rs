//! Names of rows and labels as one cell shows them.

use std::collections::HashMap;
use std::rc::Rc;

use heapprof_analysis::{Granularity, LabelValue, Place};

use crate::measure::Measure;
use crate::table::{Align, Table};

/// How lines of text name places that many stacks share: each label is made once.
#[derive(Default)]
pub(crate) struct Labels {
    known: HashMap<*const Place, String>,
}

impl Labels {
    /// The label of a place that lives as long as the report.
    pub(crate) fn of(&mut self, place: &Rc<Place>) -> &str {
        let known = self.known.entry(Rc::as_ptr(place));
        known.or_insert_with(|| place.label())
    }
}

/// The columns that name a row: in text one, for programs (`split`) one each.
pub(crate) fn name_columns(table: &mut Table, granularity: Granularity, split: bool) {
    if granularity == Granularity::Files {
        return table.column("file", Align::Left);
    }
    table.column("function", Align::Left);
    if split && granularity.has_file() {
        table.column("file", Align::Left);
    }
    if split && granularity.has_line() {
        table.column("line", Align::Right);
    }
    if split && granularity.has_address() {
        table.column("address", Align::Right);
    }
}

/// The cells under [`name_columns`].
pub(crate) fn name_cells(place: &Place, granularity: Granularity, split: bool) -> Vec<String> {
    if !split {
        return vec![place.label()];
    }
    let mut cells = vec![place.function.clone()];
    if granularity == Granularity::Files {
        return cells;
    }
    if granularity.has_file() {
        cells.push(place.file.clone().unwrap_or_default());
    }
    if granularity.has_line() {
        cells.push(place.line.map(|l| l.to_string()).unwrap_or_default());
    }
    if granularity.has_address() {
        cells.push(place.address.map(|a| format!("{a:#x}")).unwrap_or_default());
    }
    cells
}

/// A label's value, a number in its own unit: 2 kilobytes and 2048 bytes are two labels.
pub(crate) fn label_value(value: &LabelValue) -> String {
    match value {
        LabelValue::Text(text) => text.clone(),
        LabelValue::Number(number, unit) => match (unit.as_str(), Measure::new(unit, None)) {
            ("bytes" | "nanoseconds", Ok(measure)) => measure.show(*number),
            ("", _) => number.to_string(),
            (unit, _) => format!("{number} {unit}"),
        },
    }
}

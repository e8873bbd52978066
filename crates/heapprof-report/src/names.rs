//! Names of rows and labels as one cell shows them.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use heapprof_analysis::{Granularity, LabelValue, Place};

use crate::measure::Measure;
use crate::table::{Align, Table};

/// What is made of places that many stacks share: of each once.
pub(crate) struct Once<T> {
    /// The places are kept, so that no other comes to their addresses.
    known: HashMap<*const Place, (Rc<Place>, T)>,
    make: fn(&Place) -> T,
}

impl<T> Once<T> {
    pub(crate) fn new(make: fn(&Place) -> T) -> Self {
        Self {
            known: HashMap::new(),
            make,
        }
    }

    pub(crate) fn of(&mut self, place: &Rc<Place>) -> &T {
        let known = self.known.entry(Rc::as_ptr(place));
        let (_, made) = known.or_insert_with(|| (Rc::clone(place), (self.make)(place)));
        made
    }
}

/// A stack as one line, in the order of the folded form.
pub(crate) fn root_first(stack: &[Rc<Place>], names: &mut Once<String>) -> String {
    let mut line = String::new();
    for (i, place) in stack.iter().rev().enumerate() {
        if i > 0 {
            line.push(';');
        }
        line.push_str(names.of(place));
    }
    line
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

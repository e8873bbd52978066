//! Names of rows and labels as one cell shows them.

use std::collections::HashMap;

use heapprof_analysis::{Granularity, LabelValue, Place, PlaceId, Places, shorten};

use crate::fetch::fetch;
use crate::measure::Measure;
use crate::style::{Format, Style};
use crate::table::{Align, Table, printable};

/// A text for each place that many rows share, made once; one behind the other, for reading from one corner of memory
/// after the other is what long reports spend their time on.
pub(crate) struct Names {
    make: Label,
    text: String,
    /// Where each begins and ends; none ends at 0.
    at: Vec<(usize, usize)>,
}

impl Names {
    pub(crate) fn new(make: impl Fn(&Place) -> String + 'static) -> Self {
        Self {
            make: Box::new(make),
            text: String::new(),
            at: Vec::new(),
        }
    }

    /// [Fetches](fetch) names that are asked for next.
    pub(crate) fn fetch(&self, ids: impl Iterator<Item = PlaceId>) {
        let text = self.text.as_bytes();
        fetch(ids.filter_map(|id| text.get(self.at.get(id.index())?.0).copied()));
    }

    pub(crate) fn of(&mut self, places: &Places, id: PlaceId) -> &str {
        if self.at.len() <= id.index() {
            self.at.resize(id.index() + 1, (0, 0));
        }
        let (start, end) = &mut self.at[id.index()];
        if *end == 0 {
            *start = self.text.len();
            self.text.push_str(&(self.make)(places.get(id)));
            *end = self.text.len();
        }
        &self.text[*start..*end]
    }
}

/// Appends a stack as one line, in the order of the folded form.
pub(crate) fn push_root_first(
    places: &Places,
    stack: &[PlaceId],
    names: &mut Names,
    line: &mut String,
) {
    names.fetch(stack.iter().copied());
    for (i, &place) in stack.iter().rev().enumerate() {
        if i > 0 {
            line.push(';');
        }
        line.push_str(names.of(places, place));
    }
}

/// The same as a text of its own.
pub(crate) fn root_first(places: &Places, stack: &[PlaceId], names: &mut Names) -> String {
    let mut line = String::new();
    push_root_first(places, stack, names, &mut line);
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

/// Columns of text that a row takes by default.
pub(crate) const COLUMNS: usize = 120;
/// What names get at least, however wide the numbers are.
pub(crate) const LEAST: usize = 24;
/// What a name may take where it has no column to itself.
pub(crate) const ALONE: usize = 88;

/// Gives the rows of a table for eyes their names: short ones, unless whole ones are wanted.
pub(crate) fn name_rows(table: &mut Table, places: &[Place], style: &Style) {
    let left = COLUMNS.saturating_sub(table.width_of_others());
    name_rows_within(table, places, left.max(LEAST), style);
}

/// The same in a table that is wide anyway.
pub(crate) fn name_wide_rows(table: &mut Table, places: &[Place], style: &Style) {
    name_rows_within(table, places, ALONE, style);
}

/// The same with names in so many columns.
pub(crate) fn name_rows_within(table: &mut Table, places: &[Place], left: usize, style: &Style) {
    if style.full_names {
        return table.set_last(places.iter().map(Place::label));
    }
    let short = Short::new(places.iter(), left);
    table.set_last(places.iter().map(|place| short.label(place)));
}

/// Places as a line has room for them; different functions have different names.
struct Short {
    width: usize,
    /// What functions are called whose name is another one.
    functions: HashMap<String, String>,
}

impl Short {
    fn new<'p>(places: impl Iterator<Item = &'p Place>, width: usize) -> Self {
        let mut beside = 0;
        // The same function in two files is told apart by these.
        let mut functions: Vec<&str> = Vec::new();
        for place in places {
            let file = short_file(place, width);
            beside = beside.max(place.label_as("", file.as_deref()).chars().count());
            functions.push(&place.function);
        }
        functions.sort_unstable();
        functions.dedup();
        let short = shorten(&functions, width.saturating_sub(beside).max(LEAST));
        let both = functions.into_iter().zip(short);
        let changed = both.filter(|(name, short)| name != short);
        Self {
            width,
            functions: changed
                .map(|(name, short)| (name.to_string(), short))
                .collect(),
        }
    }

    fn label(&self, place: &Place) -> String {
        let short = self.functions.get(&place.function);
        let file = short_file(place, self.width);
        place.label_as(short.unwrap_or(&place.function), file.as_deref())
    }
}

/// A place's file, from the left of which so much is gone that half of `width` holds it.
fn short_file(place: &Place, width: usize) -> Option<String> {
    let file = place.file.as_deref()?;
    let length = file.chars().count();
    let most = width / 2;
    Some(match length > most {
        false => file.to_string(),
        true => format!(
            "…{}",
            file.chars().skip(length - most + 1).collect::<String>()
        ),
    })
}

/// What makes a place's text.
pub(crate) type Label = Box<dyn Fn(&Place) -> String>;

/// The places that stacks consist of, each once.
pub(crate) fn places_of<'p>(
    places: &'p Places,
    stacks: impl Iterator<Item = &'p [PlaceId]>,
) -> impl Iterator<Item = &'p Place> {
    let mut is_used = vec![false; places.iter().len()];
    stacks.flatten().for_each(|id| is_used[id.index()] = true);
    places
        .iter()
        .zip(is_used)
        .filter(|(_, used)| *used)
        .map(|(place, _)| place)
}

/// How places are called where their names have no column to themselves: in at most `width` columns where they are for eyes.
pub(crate) fn short_labels<'p>(
    places: impl Iterator<Item = &'p Place>,
    width: usize,
    style: &Style,
) -> Label {
    match style.format {
        Format::Text | Format::Markdown if !style.full_names => {
            let short = Short::new(places, width);
            Box::new(move |place| short.label(place))
        }
        _ => Box::new(Place::label),
    }
}

/// The same, with nothing in it that a terminal would obey.
pub(crate) fn printable_short_labels<'p>(
    places: impl Iterator<Item = &'p Place>,
    width: usize,
    style: &Style,
) -> Label {
    let labels = short_labels(places, width, style);
    Box::new(move |place| printable(&labels(place)).into_owned())
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

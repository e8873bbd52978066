//! The names of rows and labels, as they are shown in one cell.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use heapprof_analysis::{
    CodePlace, Granularity, PlaceId, PlaceTable, ShownFile, traces::LabelValue,
};
use heapprof_text::{shorten, similar_names};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::measure::UnitFormatter;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};
use heapprof_totals::fetch::fetch;

/// A cache of the texts of places, because many rows share a place. The texts are next to each
/// other in memory. Otherwise a long report would spend most of its time on reading scattered
/// memory.
pub(crate) struct NameCache {
    make: PlaceLabelFn,
    text: String,
    /// The beginning and the end of each text. An end of 0 means that the text is not made yet.
    at: Vec<(usize, usize)>,
}

impl NameCache {
    pub(crate) fn new(make: impl Fn(&CodePlace) -> String + 'static) -> Self {
        Self {
            make: Box::new(make),
            text: String::new(),
            at: Vec::new(),
        }
    }

    /// [Prefetches](fetch) names into the processor's cache, because they are read next.
    pub(crate) fn fetch(&self, ids: impl Iterator<Item = PlaceId>) {
        let text = self.text.as_bytes();
        fetch(ids.filter_map(|id| text.get(self.at.get(id.index())?.0).copied()));
    }

    pub(crate) fn name_of(&mut self, places: &PlaceTable, id: PlaceId) -> &str {
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

/// Appends a stack as one line, root first, as in folded stacks.
pub(crate) fn push_root_first(
    places: &PlaceTable,
    stack: &[PlaceId],
    names: &mut NameCache,
    line: &mut String,
) {
    names.fetch(stack.iter().copied());
    for (i, &place) in stack.iter().rev().enumerate() {
        if i > 0 {
            line.push(';');
        }
        line.push_str(names.name_of(places, place));
    }
}

/// Returns a stack as one line, as [`push_root_first`] appends it.
pub(crate) fn root_first(places: &PlaceTable, stack: &[PlaceId], names: &mut NameCache) -> String {
    let mut line = String::new();
    push_root_first(places, stack, names, &mut line);
    line
}

/// Adds the columns for the name of a row. For people, there is one column. For programs (`split`),
/// each part of the name has a column.
pub(crate) fn name_columns(table: &mut ReportTable, granularity: Granularity, split: bool) {
    if granularity == Granularity::Files {
        return table.column("file", ColumnAlign::Left);
    }
    table.column("function", ColumnAlign::Left);
    if split && granularity.has_file() {
        table.column("file", ColumnAlign::Left);
    }
    if split && granularity.has_line() {
        table.column("line", ColumnAlign::Right);
    }
    if split && granularity.has_address() {
        table.column("address", ColumnAlign::Right);
    }
}

/// Returns the cells for the columns of [`name_columns`].
pub(crate) fn name_cells(place: &CodePlace, granularity: Granularity, split: bool) -> Vec<String> {
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

/// Adds a last column for the file, if the table is for programs (`split`) and has no such column
/// yet.
pub(crate) fn file_column(table: &mut ReportTable, granularity: Granularity, split: bool) {
    if split && !granularity.has_file() {
        table.column("file", ColumnAlign::Left);
    }
}

/// Returns the cell for the column that [`file_column`] adds; `None` if it adds none.
pub(crate) fn file_cell(
    place: &CodePlace,
    granularity: Granularity,
    split: bool,
) -> Option<String> {
    let file = place.file.clone().unwrap_or_default();
    (split && !granularity.has_file()).then_some(file)
}

/// Returns the name of a place for a row whose last column is the file. The name does not contain
/// the file, unless the place shows its whole path.
pub(crate) fn name_beside_file(place: &CodePlace) -> Cow<'_, str> {
    match place.shown_file {
        ShownFile::End(_) => Cow::Borrowed(&place.function),
        ShownFile::Whole => Cow::Owned(place.label()),
    }
}

/// Least number of terminal columns for names, however wide the numbers are.
pub(crate) const MIN_NAME_COLUMNS: usize = 24;
/// Largest number of terminal columns for a name that has no table column to itself.
pub(crate) const MAX_INLINE_NAME_COLUMNS: usize = 88;

/// Fills the last column of a table for people with the names of its rows: short names, unless
/// `style` asks for whole ones. `others` are functions that are not shown. The short names differ
/// from the short names of `others`.
pub(crate) fn name_rows(
    table: &mut ReportTable,
    places: &[CodePlace],
    others: &[impl AsRef<str>],
    style: &ReportStyle,
) {
    let left = style.columns().saturating_sub(table.width_of_others());
    name_rows_within(table, places, others, left.max(MIN_NAME_COLUMNS), style);
}

/// Fills the last column with names as [`name_rows`] does, in a table that is wider than a screen
/// anyway.
pub(crate) fn name_wide_rows(
    table: &mut ReportTable,
    places: &[CodePlace],
    others: &[impl AsRef<str>],
    style: &ReportStyle,
) {
    name_rows_within(table, places, others, MAX_INLINE_NAME_COLUMNS, style);
}

/// Fills the last column with names as [`name_rows`] does, with at most `left` terminal columns for
/// each.
pub(crate) fn name_rows_within(
    table: &mut ReportTable,
    places: &[CodePlace],
    others: &[impl AsRef<str>],
    left: usize,
    style: &ReportStyle,
) {
    if style.full_names {
        return table.set_last(places.iter().map(CodePlace::label));
    }
    let others = others.iter().map(AsRef::as_ref);
    let short = ShortNames::new(places.iter(), others, left);
    table.set_last(places.iter().map(|place| short.label(place)));
}

/// Short names of places, each of which fits into a line. Different functions have different names.
struct ShortNames {
    width: usize,
    /// The short names of functions, by their whole names. Functions whose whole name is short
    /// enough are missing.
    functions: HashMap<String, String>,
    /// The shown parts of files, by function and whole file, where the usual part is that of
    /// another file of the function, too.
    files: HashMap<(String, String), String>,
}

impl ShortNames {
    /// Shortens the names of `places`. `others` are functions that are not shown. The short names
    /// differ from the short names of `others`, too.
    fn new<'p>(
        places: impl Iterator<Item = &'p CodePlace>,
        others: impl Iterator<Item = &'p str>,
        width: usize,
    ) -> Self {
        // `room` is the width that a function's file, line and address leave for its name. They
        // distinguish the functions with one name in two files.
        let mut room: BTreeMap<&str, usize> = others.map(|name| (name, width)).collect();
        let mut cut: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
        for place in places {
            let file = short_file(place, width);
            if let (Some(short), Some(whole)) = (&file, place.shown_file())
                && short.starts_with('…')
            {
                let group = cut.entry((&place.function, short.clone()));
                group.or_default().insert(whole);
            }
            let beside = printable(&place.label_as("", file.as_deref())).width();
            let left = width.saturating_sub(beside).max(MIN_NAME_COLUMNS);
            let room = room.entry(&place.function).or_insert(width);
            *room = left.min(*room);
        }
        let (functions, room): (Vec<&str>, Vec<usize>) = room.into_iter().unzip();
        // Escapes are part of the names, so they are cut, too.
        let shown: Vec<Cow<'_, str>> = functions.iter().map(|name| printable(name)).collect();
        let shown: Vec<&str> = shown.iter().map(|name| &**name).collect();
        let short = shorten(&shown, |at| room[at]);
        let both = functions.into_iter().zip(short);
        let changed = both.filter(|(name, short)| name != short);
        let mut files = HashMap::new();
        for ((function, _), group) in cut.into_iter().filter(|(_, group)| group.len() > 1) {
            let group: Vec<&str> = group.into_iter().collect();
            let shown = files_apart(&group, width / 2);
            let key = |file: &str| (function.to_string(), file.to_string());
            files.extend(group.into_iter().map(key).zip(shown));
        }
        Self {
            width,
            files,
            functions: changed
                .map(|(name, short)| (name.to_string(), short))
                .collect(),
        }
    }

    fn label(&self, place: &CodePlace) -> String {
        let short = self.functions.get(&place.function);
        let apart = place.shown_file().filter(|_| !self.files.is_empty());
        let apart = apart.and_then(|file| {
            let key = (place.function.clone(), file.to_string());
            self.files.get(&key).cloned()
        });
        let file = apart.or_else(|| short_file(place, self.width));
        place.label_as(short.unwrap_or(&place.function), file.as_deref())
    }
}

/// Returns the shown parts of different files that end alike, each of at most `most` columns: what
/// all of them end with is left out.
fn files_apart(files: &[&str], most: usize) -> Vec<String> {
    let end = common_end(files);
    let rest = |file: &&str| {
        let rest = printable(&file[..file.len() - end]).into_owned();
        format!("{}…", tail(&rest, most.saturating_sub(1)))
    };
    let mut shown: Vec<String> = files.iter().map(rest).collect();
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, text) in shown.iter().enumerate() {
        groups.entry(text.clone()).or_default().push(at);
    }
    // Some of them may have more of their end in common than all have.
    let is_smaller = |group: &Vec<usize>| (2..files.len()).contains(&group.len());
    for group in groups.into_values().filter(is_smaller) {
        let alike: Vec<&str> = group.iter().map(|&at| files[at]).collect();
        for (at, text) in group.into_iter().zip(files_apart(&alike, most)) {
            shown[at] = text;
        }
    }
    shown
}

/// Returns the number of bytes with which all files end alike, from a separator on.
fn common_end(files: &[&str]) -> usize {
    let Some((first, others)) = files.split_first() else {
        return 0;
    };
    let separators = first.char_indices().filter(|(_, c)| ";/".contains(*c));
    let mut ends = separators.map(|(at, _)| &first[at..]);
    let common = ends.find(|end| others.iter().all(|file| file.ends_with(end)));
    common.map_or(0, str::len)
}

/// Returns the shown part of a place's file, cut from the left so that it fits in half of `width`.
fn short_file(place: &CodePlace, width: usize) -> Option<String> {
    Some(tail(&printable(place.shown_file()?), width / 2))
}

/// Returns a text of at most `most` columns, or `…` and its end.
fn tail(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_string();
    }
    let mut left = most.saturating_sub(1);
    let from = text.char_indices().rev().take_while(|(_, c)| {
        let width = c.width().unwrap_or(1);
        let fits = width <= left;
        left -= if fits { width } else { 0 };
        fits
    });
    let start = from.last().map_or(text.len(), |(at, _)| at);
    format!("…{}", &text[start..])
}

/// A function that returns the text of a place.
pub(crate) type PlaceLabelFn = Box<dyn Fn(&CodePlace) -> String>;

/// Returns a function that returns the name of a place, for lines in which other text stands beside
/// the name. Names for people take at most `width` columns.
pub(crate) fn short_labels(places: &PlaceTable, width: usize, style: &ReportStyle) -> PlaceLabelFn {
    match is_short(style) {
        true => short(ShortNames::new(places.iter(), std::iter::empty(), width)),
        false => Box::new(CodePlace::label),
    }
}

/// Returns a function that names places as [`short_labels`] does, but only the places in these
/// stacks.
pub(crate) fn short_labels_of<'p>(
    places: &'p PlaceTable,
    stacks: impl Iterator<Item = &'p [PlaceId]>,
    width: usize,
    style: &ReportStyle,
) -> PlaceLabelFn {
    if !is_short(style) {
        return Box::new(CodePlace::label);
    }
    let mut is_used = vec![false; places.iter().len()];
    stacks.flatten().for_each(|id| is_used[id.index()] = true);
    let used = places.iter().zip(is_used).filter(|(_, used)| *used);
    let used: Vec<&CodePlace> = used.map(|(place, _)| place).collect();
    let name = |place: &'p CodePlace| place.function.as_str();
    let others = similar_names(used.iter().copied().map(name), places.iter().map(name));
    short(ShortNames::new(used.into_iter(), others.into_iter(), width))
}

/// Returns a function that makes the texts of `label` safe to print: characters that control a
/// terminal are escaped.
pub(crate) fn printable_label(label: PlaceLabelFn) -> PlaceLabelFn {
    Box::new(move |place| printable(&label(place)).into_owned())
}

fn is_short(style: &ReportStyle) -> bool {
    matches!(style.format, ReportFormat::Text | ReportFormat::Markdown) && !style.full_names
}

fn short(short: ShortNames) -> PlaceLabelFn {
    Box::new(move |place| short.label(place))
}

/// Returns a label's value as text. A number is shown in its own unit, because 2 kilobytes and 2048
/// bytes are two labels.
pub(crate) fn label_value(value: &LabelValue) -> String {
    match value {
        LabelValue::Text(text) => text.clone(),
        LabelValue::Number(number, unit) => match (unit.as_str(), UnitFormatter::new(unit, None)) {
            ("bytes" | "nanoseconds", Ok(measure)) => measure.show(*number),
            ("", _) => number.to_string(),
            (unit, _) => format!("{number} {unit}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_end_alike_are_told_apart() {
        let table: [(&[&str], &[&str]); 4] = [
            (
                &["main::;&alpha;<pad depth 1>", "main::;&beta;<pad depth 1>"],
                &["…;&alpha…", "…:;&beta…"],
            ),
            (
                &["/src/one/build/lib.rs", "/src/two/build/lib.rs"],
                &["/src/one…", "/src/two…"],
            ),
            // The first two have more in common with each other.
            (
                &["a;x;same;same;end", "b;x;same;same;end", "c;other;end"],
                &["a…", "b…", "c;other…"],
            ),
            (
                &["no separator", "in a separator"],
                &["…parator…", "…parator…"],
            ),
        ];
        for (files, expected) in table {
            assert_eq!(files_apart(files, 9), expected, "{files:?}");
        }
    }
}

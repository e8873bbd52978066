//! The report `peek`: each function with its callers above it and its callees below it. The callers
//! add up to cum, and flat and the callees add up to cum.

use std::io::Write;

use heapprof_analysis::{
    CodePlace, PlaceId,
    peek::{PeekNeighbours, PeekReport, PeekRow},
};
use heapprof_text::cut;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Map;

use crate::advice::ReportAdvice;
use crate::error::ReportError;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::push_percent;
use crate::names::{NameCache, name_beside_file, short_labels};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, RowCells, RowPass};

/// Largest number of columns for the names of neighbours beside the numbers.
const MAX_NEIGHBOUR_NAME_COLUMNS: usize = 56;
const ROOT_NAME: &str = "(root)";
const ITSELF_NAME: &str = "(itself)";

/// Writes the report `peek` entity by entity, because it may be much longer than the profile.
pub fn peek(
    peek: &PeekReport<'_>,
    style: &ReportStyle,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let measure = head::measure(&peek.header, style)?;
    if style.format == ReportFormat::Json {
        return document(peek, out);
    }
    let split = style.format == ReportFormat::Csv;
    let table = match split {
        true => ReportTable::new(&[
            ("function", ColumnAlign::Left),
            ("side", ColumnAlign::Left),
            ("neighbour", ColumnAlign::Left),
            ("value", ColumnAlign::Right),
            ("file", ColumnAlign::Left),
            ("neighbour_file", ColumnAlign::Left),
        ]),
        false => ReportTable::new(&[
            ("flat", ColumnAlign::Right),
            ("cum", ColumnAlign::Right),
            ("cum%", ColumnAlign::Right),
            ("calls", ColumnAlign::Right),
            ("calls%", ColumnAlign::Right),
            ("function", ColumnAlign::Left),
        ]),
    };
    let mut lines = head::lines(&peek.header, &measure, style);
    if peek.more > 0 && !lines.is_empty() {
        let all = style.advise(ReportAdvice::AllRows);
        lines.push(format!("not shown: {} more that match; {all}", peek.more));
    }
    out.write_all(with_head(&lines, "", style).as_bytes())?;
    let is_cut = style.format == ReportFormat::Text && !style.full_names;
    let label = match split {
        true => Box::new(|place: &CodePlace| name_beside_file(place).into_owned()),
        false => short_labels(&peek.places, MAX_NEIGHBOUR_NAME_COLUMNS, style),
    };
    let file_of = |place: Option<PlaceId>| {
        let file = place.and_then(|place| peek.places.get(place).file.as_deref());
        file.unwrap_or_default()
    };
    let names: Vec<String> = peek.rows.iter().map(|row| label(&row.place)).collect();
    let mut labels = NameCache::new(label);
    let mut cells = RowCells::default();
    table.stream(style, out, |pass, each| {
        for (row, name) in peek.rows.iter().zip(&names) {
            let room = match pass {
                RowPass::Rows(room) if is_cut => room,
                _ => usize::MAX,
            };
            let file = row.place.file.as_deref().unwrap_or_default();
            let neighbour =
                |cells: &mut RowCells, side: &str, label: &str, of: &str, value: i64| {
                    cells.clear();
                    if split {
                        cells.extend([name, side, label]);
                        cells.make(|text| measure.push(value, text));
                        return cells.extend([file, of]);
                    }
                    cells.extend([""; 3]);
                    cells.make(|text| measure.push(value, text));
                    cells.make(|text| push_percent(value, row.cum, text));
                    cells.make(|text| {
                        let label = cut(label, room.saturating_sub(side.len() + 3));
                        text.extend(["  ", side, " ", &label]);
                    });
                };
            let PeekNeighbours { callers, callees } = match pass {
                RowPass::Rows(_) => peek.neighbours(row)?,
                RowPass::Widths => {
                    peek.values(row, |value| {
                        neighbour(&mut cells, "", "", "", value);
                        each(&cells)
                    })?;
                    PeekNeighbours::default()
                }
            };
            labels.fetch(callers.iter().filter_map(|(place, _)| *place));
            for (place, value) in &callers {
                let label = place.map_or(ROOT_NAME, |place| labels.name_of(&peek.places, place));
                neighbour(&mut cells, "caller", label, file_of(*place), *value);
                each(&cells)?;
            }
            if !split {
                cells.clear();
                cells.make(|text| measure.push(row.flat, text));
                cells.make(|text| measure.push(row.cum, text));
                cells.make(|text| push_percent(row.cum, peek.header.total, text));
                cells.extend(["", "", &cut(name, room)]);
                each(&cells)?;
            }
            if row.flat != 0 {
                neighbour(&mut cells, "callee", ITSELF_NAME, file, row.flat);
                each(&cells)?;
            }
            labels.fetch(callees.iter().map(|(place, _)| *place));
            for (place, value) in &callees {
                let label = labels.name_of(&peek.places, *place);
                neighbour(&mut cells, "callee", label, file_of(Some(*place)), *value);
                each(&cells)?;
            }
        }
        Ok(())
    })
}

fn document(peek: &PeekReport<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    let root = CodePlace {
        function: ROOT_NAME.to_string(),
        ..CodePlace::default()
    };
    json::write_each(&json::head(&peek.header), &Map::new(), out, |rows| {
        peek.rows.iter().try_for_each(|row| {
            rows.row(&PeekJsonRow {
                peek,
                row,
                neighbours: peek.neighbours(row)?,
                root: &root,
            })
        })
    })
}

struct PeekJsonRow<'a> {
    peek: &'a PeekReport<'a>,
    row: &'a PeekRow,
    neighbours: PeekNeighbours,
    root: &'a CodePlace,
}

impl Serialize for PeekJsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PeekNeighbours { callers, callees } = &self.neighbours;
        let mut object = serializer.serialize_map(None)?;
        json::place_keys(&self.row.place, &mut object)?;
        object.serialize_entry("flat", &self.row.flat)?;
        object.serialize_entry("cum", &self.row.cum)?;
        let places = &self.peek.places;
        let callers: Vec<PeekJsonNeighbour<'_>> = callers
            .iter()
            .map(|(place, value)| {
                PeekJsonNeighbour(place.map_or(self.root, |p| places.get(p)), *value)
            })
            .collect();
        let callees: Vec<PeekJsonNeighbour<'_>> = callees
            .iter()
            .map(|(p, v)| PeekJsonNeighbour(places.get(*p), *v))
            .collect();
        object.serialize_entry("callers", &callers)?;
        object.serialize_entry("callees", &callees)?;
        object.end()
    }
}

struct PeekJsonNeighbour<'a>(&'a CodePlace, i64);

impl Serialize for PeekJsonNeighbour<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        json::place_keys(self.0, &mut object)?;
        object.serialize_entry("value", &self.1)?;
        object.end()
    }
}

//! `peek`: each function with its callers above it and its callees below it. Each side adds up to
//! cum.

use std::io::Write;

use heapprof_analysis::{Neighbours, Peek, PeekRow, Place, PlaceId};
use heapprof_text::cut;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Map;

use crate::error::Error;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::push_percent;
use crate::names::{Names, name_beside_file, short_labels};
use crate::style::{Format, Style};
use crate::table::{Align, Cells, Pass, Table};

/// How many columns the names of neighbours may take beside the numbers.
const NAME: usize = 56;
const ROOT: &str = "(root)";
const ITSELF: &str = "(itself)";

/// Writes the report entity by entity, because it may be much longer than the profile.
pub fn peek(peek: &Peek<'_>, style: &Style, out: &mut dyn Write) -> Result<(), Error> {
    let measure = head::measure(&peek.header, style)?;
    if style.format == Format::Json {
        return document(peek, out);
    }
    let split = style.format == Format::Csv;
    let table = match split {
        true => Table::new(&[
            ("function", Align::Left),
            ("side", Align::Left),
            ("neighbour", Align::Left),
            ("value", Align::Right),
            ("file", Align::Left),
            ("neighbour_file", Align::Left),
        ]),
        false => Table::new(&[
            ("flat", Align::Right),
            ("cum", Align::Right),
            ("cum%", Align::Right),
            ("calls", Align::Right),
            ("calls%", Align::Right),
            ("function", Align::Left),
        ]),
    };
    let mut lines = head::lines(&peek.header, &measure, style);
    if peek.more > 0 && !lines.is_empty() {
        lines.push(format!("{} more match; -n 0 shows all", peek.more));
    }
    out.write_all(with_head(&lines, "", style).as_bytes())?;
    let is_cut = style.format == Format::Text && !style.full_names;
    let label = match split {
        true => Box::new(|place: &Place| name_beside_file(place).into_owned()),
        false => short_labels(&peek.places, NAME, style),
    };
    let file_of = |place: Option<PlaceId>| {
        let file = place.and_then(|place| peek.places.get(place).file.as_deref());
        file.unwrap_or_default()
    };
    let names: Vec<String> = peek.rows.iter().map(|row| label(&row.place)).collect();
    let mut labels = Names::new(label);
    let mut cells = Cells::default();
    table.stream(style, out, |pass, each| {
        for (row, name) in peek.rows.iter().zip(&names) {
            let room = match pass {
                Pass::Rows(room) if is_cut => room,
                _ => usize::MAX,
            };
            let file = row.place.file.as_deref().unwrap_or_default();
            let neighbour = |cells: &mut Cells, side: &str, label: &str, of: &str, value: i64| {
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
            let Neighbours { callers, callees } = match pass {
                Pass::Rows(_) => peek.neighbours(row)?,
                Pass::Widths => {
                    peek.values(row, |value| {
                        neighbour(&mut cells, "", "", "", value);
                        each(&cells)
                    })?;
                    Neighbours::default()
                }
            };
            labels.fetch(callers.iter().filter_map(|(place, _)| *place));
            for (place, value) in &callers {
                let label = place.map_or(ROOT, |place| labels.of(&peek.places, place));
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
                neighbour(&mut cells, "callee", ITSELF, file, row.flat);
                each(&cells)?;
            }
            labels.fetch(callees.iter().map(|(place, _)| *place));
            for (place, value) in &callees {
                let label = labels.of(&peek.places, *place);
                neighbour(&mut cells, "callee", label, file_of(Some(*place)), *value);
                each(&cells)?;
            }
        }
        Ok(())
    })
}

fn document(peek: &Peek<'_>, out: &mut dyn Write) -> Result<(), Error> {
    let root = Place {
        function: ROOT.to_string(),
        ..Place::default()
    };
    json::write_each(&json::head(&peek.header), &Map::new(), out, |rows| {
        peek.rows.iter().try_for_each(|row| {
            rows.row(&Row {
                peek,
                row,
                neighbours: peek.neighbours(row)?,
                root: &root,
            })
        })
    })
}

struct Row<'a> {
    peek: &'a Peek<'a>,
    row: &'a PeekRow,
    neighbours: Neighbours,
    root: &'a Place,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Neighbours { callers, callees } = &self.neighbours;
        let mut object = serializer.serialize_map(None)?;
        json::place_keys(&self.row.place, &mut object)?;
        object.serialize_entry("flat", &self.row.flat)?;
        object.serialize_entry("cum", &self.row.cum)?;
        let places = &self.peek.places;
        let callers: Vec<Neighbour<'_>> = callers
            .iter()
            .map(|(place, value)| Neighbour(place.map_or(self.root, |p| places.get(p)), *value))
            .collect();
        let callees: Vec<Neighbour<'_>> = callees
            .iter()
            .map(|(p, v)| Neighbour(places.get(*p), *v))
            .collect();
        object.serialize_entry("callers", &callers)?;
        object.serialize_entry("callees", &callees)?;
        object.end()
    }
}

struct Neighbour<'a>(&'a Place, i64);

impl Serialize for Neighbour<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        json::place_keys(self.0, &mut object)?;
        object.serialize_entry("value", &self.1)?;
        object.end()
    }
}

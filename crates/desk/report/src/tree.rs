//! The report `tree`: the call tree, indented.

use std::collections::BTreeMap;
use std::io::Write;

use heapprof_analysis::tree::{TreeReport, TreeRow};
use heapprof_text::cut;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, json};

use crate::error::ReportError;
use crate::fold::{RowFolds, RowPaths, names};
use crate::head::{self, with_head};
use crate::json;
use crate::measure::push_percent;
use crate::names::{MIN_NAME_COLUMNS, NameCache, name_beside_file, short_labels_of};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, RowCells, RowPass};

/// Largest number of columns for a name in a tree whose rows are not cut to a width.
const MAX_TREE_NAME_COLUMNS: usize = 86;
/// Number of columns of the number of a deep node.
const DEPTH_COLUMNS: usize = 6;
/// Maximum number of steps by which a node is indented. The first number is for folded paths, so
/// that names stay in sight. The second number is for paths that are not folded.
const MAX_INDENT_STEPS: [usize; 2] = [20, 100];

/// Writes the report `tree` node by node, because it may be much longer than the profile. Text and
/// Markdown show a path without branches as one row, unless `full` is set.
pub fn tree(
    tree: &TreeReport<'_>,
    full: bool,
    style: &ReportStyle,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let measure = head::measure(&tree.header, style)?;
    if style.format == ReportFormat::Json {
        // Nodes are in pre-order with depths, not nested, because a stack may be deeper than the
        // recursion of a JSON reader allows.
        let mut head = json::head(&tree.header);
        head.insert("reverse".into(), json!(tree.reverse));
        return json::write_each(&head, &Map::new(), out, |rows| {
            tree.each(|row| rows.row(&TreeJsonNode(tree, row)))
        });
    }
    let mut lines = head::lines(&tree.header, &measure, style);
    if !lines.is_empty() {
        let from = if tree.reverse { "leaves" } else { "roots" };
        lines.push(format!(
            "Call tree from the {from}; nodes below {}% of {} are in (other)",
            tree.least * 100.0,
            match tree.header.filters.is_empty() {
                true => "the total",
                false => "what the filters keep",
            }
        ));
    }
    out.write_all(with_head(&lines, "", style).as_bytes())?;
    let split = style.format == ReportFormat::Csv;
    let mut table = ReportTable::new(&[("total", ColumnAlign::Right)]);
    match split {
        true => table.column("depth", ColumnAlign::Right),
        false => table.column("total%", ColumnAlign::Right),
    }
    table.column("self", ColumnAlign::Right);
    table.column("function", ColumnAlign::Left);
    if split {
        table.column("file", ColumnAlign::Left);
    }
    let step = match style.format {
        ReportFormat::Text => "  ",
        ReportFormat::Markdown => "\u{a0}\u{a0}",
        _ => "",
    };
    let mut folds = RowFolds::default();
    let is_short = !split && !style.full_names;
    let (mut shown, mut is_shown) = (Vec::new(), vec![false; tree.places.iter().len()]);
    if is_short || !full && !split {
        tree.each(|row| {
            if !full && !split {
                folds.add(row);
            }
            if !std::mem::replace(&mut is_shown[row.place.index()], true) {
                shown.push(row.place);
            }
            Ok::<_, ReportError>(())
        })?;
    }
    let folds = folds.finish();
    // `labels` holds the names of places, cut to the room in the rows of each indentation.
    let mut labels = BTreeMap::<usize, NameCache>::new();
    let names_in = |width: usize| {
        let shown = std::iter::once(&shown[..]);
        NameCache::new(short_labels_of(&tree.places, shown, width, style))
    };
    let deepest = MAX_INDENT_STEPS[usize::from(full || split)];
    let mut cells = RowCells::default();
    table.stream(style, out, |pass, each| {
        let mut paths = RowPaths::new(&folds);
        tree.each(|row| {
            let Some(path) = paths.next(row) else {
                return Ok(());
            };
            cells.clear();
            cells.make(|text| measure.push(row.total[0], text));
            match split {
                true => cells.push(&row.depth.to_string()),
                false => cells.make(|text| push_percent(row.total[0], tree.header.total, text)),
            }
            cells.make(|text| measure.push(row.own[0], text));
            if split {
                let place = tree.places.get(row.place);
                cells.push(&name_beside_file(place));
                cells.push(place.file.as_deref().unwrap_or_default());
                return each(&cells);
            }
            let RowPass::Rows(room) = pass else {
                cells.push("");
                return each(&cells);
            };
            // Names stay in sight on a narrow screen, too.
            let deepest = match full || split {
                true => deepest,
                false => deepest.min(room.saturating_sub(MIN_NAME_COLUMNS + DEPTH_COLUMNS) / 2),
            };
            // A node below the deepest indentation has its depth as a number.
            let number = match path.depth > deepest && !split {
                true => format!("({}) ", path.depth),
                false => String::new(),
            };
            let indented = 2 * path.depth.min(deepest) + number.len();
            let (room, width) = match is_short && !full {
                true => (
                    room.saturating_sub(indented).max(MIN_NAME_COLUMNS),
                    room.saturating_sub(indented),
                ),
                false => (usize::MAX, MAX_TREE_NAME_COLUMNS),
            };
            let labels = labels.entry((width / 10 * 10).max(MIN_NAME_COLUMNS));
            let labels = labels.or_insert_with_key(|&width| names_in(width));
            cells.make(|text| {
                text.extend(std::iter::repeat_n(step, path.depth.min(deepest)));
                text.push_str(&number);
                match path.places[..] {
                    [place] => text.push_str(&cut(labels.name_of(&tree.places, place), room)),
                    ref places => {
                        let all = places
                            .iter()
                            .map(|&p| labels.name_of(&tree.places, p).to_string());
                        text.push_str(&names(&all.collect::<Vec<_>>(), tree.reverse, room));
                    }
                }
            });
            each(&cells)
        })
    })
}

struct TreeJsonNode<'a>(&'a TreeReport<'a>, &'a TreeRow);

impl Serialize for TreeJsonNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let TreeRow {
            place,
            depth,
            own,
            total,
        } = self.1;
        let mut object = serializer.serialize_map(None)?;
        json::place_keys(self.0.places.get(*place), &mut object)?;
        object.serialize_entry("depth", depth)?;
        object.serialize_entry("total", &total[0])?;
        object.serialize_entry("self", &own[0])?;
        object.end()
    }
}

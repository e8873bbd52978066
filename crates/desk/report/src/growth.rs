//! The report `growth`: what grows over many moments, with the figures and a sparkline for each
//! row.

use heapprof_analysis::{
    CodePlace, Granularity, OTHER_NAME, SortKey,
    growth::GrowthVerdict,
    series::{SeriesGrowth, SeriesGrowthRow},
};
use serde_json::{Value, json};

use crate::error::ReportError;
use crate::glyphs::sparkline;
use crate::head::with_head;
use crate::json;
use crate::measure::{UnitFormatter, plural, time_utc};
use crate::names::{file_cell, file_column, name_cells, name_columns, name_rows};
use crate::range;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, RowTint};

/// Maximum number of characters of a sparkline.
const MAX_SPARKLINE_CHARS: usize = 16;

/// Writes the report `growth`.
pub fn growth(
    growth: &SeriesGrowth,
    granularity: Granularity,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let shown = UnitFormatter::new(&growth.sample_type.unit, style.unit.as_deref())?;
    match style.format {
        ReportFormat::Json => json::text(document(growth)),
        ReportFormat::Csv => {
            table(growth, granularity, &UnitFormatter::raw(), style)?.render(style)
        }
        ReportFormat::Text | ReportFormat::Markdown => {
            let rows = table(growth, granularity, &shown, style)?.render(style)?;
            Ok(with_head(&head(growth, &shown), &rows, style))
        }
    }
}

/// Returns the lines above the table: the selected moments, their totals, and the rows that are
/// left out.
fn head(growth: &SeriesGrowth, measure: &UnitFormatter) -> Vec<String> {
    let [moments, processes, at_end] = growth.counts;
    let (first, last) = ends(&growth.totals);
    let mut lines = vec![
        format!(
            "{}: growth of {} over {} moments in time, {} to {}",
            growth.name,
            growth.sample_type.r#type,
            growth.times.len(),
            time_utc(growth.times[0]),
            time_utc(growth.times[growth.times.len() - 1]),
        ),
        format!(
            "from {} to {} ({}), {} profiles of {}, {} in the first moment and {} in the last",
            measure.show(first),
            measure.show(last),
            measure.show_signed(i128::from(last) - i128::from(first)),
            moments,
            plural(&processes.to_string(), "process"),
            growth.first_processes,
            at_end,
        ),
    ];
    if growth.first_processes != at_end {
        lines.push(
            "The first and the last moment have different numbers of processes, which alone may \
             explain what seems to grow."
                .to_string(),
        );
    }
    if !growth.filters.is_empty() {
        lines.push(format!("Filters: {}", growth.filters.join(" ")));
    }
    if growth.rows.is_empty() {
        lines.push("The filters leave no samples with a value of this type.".to_string());
    }
    lines
}

fn ends(values: &[i64]) -> (i64, i64) {
    let end = |value: Option<&i64>| value.copied().unwrap_or_default();
    (end(values.first()), end(values.last()))
}

fn table(
    growth: &SeriesGrowth,
    granularity: Granularity,
    measure: &UnitFormatter,
    style: &ReportStyle,
) -> Result<ReportTable, ReportError> {
    let split = style.format == ReportFormat::Csv;
    let is_known = growth.rows.iter().any(|row| row.change.is_some());
    let mut table = ReportTable::new(&[
        ("verdict", ColumnAlign::Left),
        ("per hour", ColumnAlign::Right),
        ("steps grown", ColumnAlign::Right),
        ("first", ColumnAlign::Right),
        ("last", ColumnAlign::Right),
        ("change", ColumnAlign::Right),
    ]);
    if is_known && !split {
        table.column("range (95%)", ColumnAlign::Right);
    }
    if split {
        for name in ["r2", "largest", "low", "high", "samples"] {
            table.column(name, ColumnAlign::Right);
        }
    } else {
        table.column("trend", ColumnAlign::Left);
    }
    match growth.is_by_stack {
        true => table.column("stack", ColumnAlign::Left),
        false => {
            name_columns(&mut table, granularity, split);
            file_column(&mut table, granularity, split);
        }
    }
    let mut places = Vec::new();
    for row in &growth.rows {
        let g = &row.growth;
        let mut cells = vec![
            g.verdict.text().to_string(),
            match split {
                true => g.slope.to_string(),
                false => measure.show_signed(g.slope.round() as i128),
            },
            format!("{}/{}", g.grew, g.steps),
            measure.show(g.first),
            measure.show(g.last),
            measure.show_signed(i128::from(g.last) - i128::from(g.first)),
        ];
        if split {
            cells.extend([g.r2.to_string(), measure.show(g.largest)]);
            cells.extend(range::cells(row.change.as_ref()));
        } else {
            if is_known {
                let range = row.change.as_ref().map(|e| {
                    let (low, high) = (measure.show_signed(e.low), measure.show_signed(e.high));
                    format!("{low} to {high}")
                });
                cells.push(range.unwrap_or_default());
            }
            let values: Vec<i128> = row.values.iter().map(|&v| i128::from(v)).collect();
            cells.push(sparkline(&values, MAX_SPARKLINE_CHARS));
        }
        let place = place_of(row, growth.is_by_stack);
        match growth.is_by_stack {
            true => cells.push(place.function.clone()),
            false => {
                cells.extend(name_cells(&place, granularity, split));
                cells.extend(file_cell(&place, granularity, split));
            }
        }
        table.tinted_row(cells, tint(g.verdict));
        places.push(place);
    }
    let (first, last) = ends(&growth.totals);
    let [other_first, other_last] = growth.other.1;
    let is_sum = growth.sort == SortKey::Flat || growth.is_by_stack;
    let mut sums = Vec::new();
    if growth.other.0 > 0 && is_sum {
        sums.push((OTHER_NAME, other_first, other_last));
    }
    sums.push(("(total)", first, last));
    for (name, first, last) in sums {
        let place = CodePlace {
            function: name.to_string(),
            ..CodePlace::default()
        };
        let empty = String::new;
        let mut cells = vec![
            empty(),
            empty(),
            empty(),
            measure.show(first),
            measure.show(last),
        ];
        cells.push(measure.show_signed(i128::from(last) - i128::from(first)));
        let unknown = match (split, is_known) {
            (true, _) => 5,
            (false, true) => 2,
            (false, false) => 1,
        };
        cells.extend(std::iter::repeat_with(empty).take(unknown));
        match growth.is_by_stack {
            true => cells.push(name.to_string()),
            false => {
                cells.extend(name_cells(&place, granularity, split));
                cells.extend(file_cell(&place, granularity, split));
            }
        }
        table.row(cells);
        places.push(place);
    }
    if !split && !growth.is_by_stack {
        name_rows(&mut table, &places, &[] as &[&str], style);
    }
    Ok(table)
}

fn tint(verdict: GrowthVerdict) -> Option<RowTint> {
    match verdict.is_bounded() {
        Some(false) => Some(RowTint::Grown),
        _ => None,
    }
}

/// Returns the place of a row. A stack becomes one text, root first.
fn place_of(row: &SeriesGrowthRow, is_by_stack: bool) -> CodePlace {
    if !is_by_stack {
        return row.places.first().cloned().unwrap_or_default();
    }
    let names: Vec<String> = row.places.iter().rev().map(CodePlace::label).collect();
    CodePlace {
        function: names.join(";"),
        ..CodePlace::default()
    }
}

fn document(growth: &SeriesGrowth) -> Value {
    let rows = growth.rows.iter().map(|row| {
        let g = &row.growth;
        let mut object = match growth.is_by_stack {
            true => {
                let frames = row
                    .places
                    .iter()
                    .map(|place| Value::Object(json::place(place)));
                let mut object = serde_json::Map::new();
                object.insert("stack".into(), frames.collect());
                object
            }
            false => json::place(row.places.first().unwrap_or(&CodePlace::default())),
        };
        for (key, value) in [
            ("verdict", json!(g.verdict.text())),
            ("bounded", json!(g.verdict.is_bounded())),
            ("slope", json!(g.slope)),
            ("r2", json!(g.r2)),
            ("grew", json!(g.grew)),
            ("steps", json!(g.steps)),
            ("first", json!(g.first)),
            ("last", json!(g.last)),
            ("largest", json!(g.largest)),
            ("values", json!(row.values)),
        ] {
            object.insert(key.into(), value);
        }
        range::insert(&mut object, "change", row.change.as_ref());
        Value::Object(object)
    });
    let [moments, processes, at_end] = growth.counts;
    json!({
        "selector": growth.name,
        "sample_type": json::sample_type(&growth.sample_type),
        "moments": moments,
        "processes": processes,
        "first_processes": growth.first_processes,
        "last_processes": at_end,
        "times_nanos": growth.times,
        "totals": growth.totals,
        "rows": rows.collect::<Value>(),
        "other": {"rows": growth.other.0, "first": growth.other.1[0], "last": growth.other.1[1]},
    })
}

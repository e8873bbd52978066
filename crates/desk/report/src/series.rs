//! The report `series`: one row for each series of a database, with a sparkline of its totals.

use std::collections::BTreeMap;

use heapprof_analysis::series::SeriesSummary;
use serde_json::{Value, json};

use crate::error::ReportError;
use crate::glyphs::sparkline;
use crate::measure::{UnitFormatter, plural, time_utc};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// Maximum number of characters of a sparkline.
const MAX_SPARKLINE_CHARS: usize = 24;

/// Writes the list of series.
pub fn series(series: &[SeriesSummary], style: &ReportStyle) -> Result<String, ReportError> {
    if style.format == ReportFormat::Json {
        return crate::json::text(series.iter().map(document).collect::<Value>());
    }
    let is_raw = style.format == ReportFormat::Csv;
    let keys = keys(series);
    let mut table = ReportTable::new(&[]);
    for key in &keys {
        table.column(key.clone(), ColumnAlign::Left);
    }
    for (name, align) in [
        ("moments", ColumnAlign::Right),
        ("processes", ColumnAlign::Right),
        ("first", ColumnAlign::Left),
        ("last", ColumnAlign::Left),
        ("type", ColumnAlign::Left),
        ("total", ColumnAlign::Right),
    ] {
        table.column(name, align);
    }
    if !is_raw {
        table.column("trend", ColumnAlign::Left);
    }
    for one in series {
        let measure = match is_raw {
            true => UnitFormatter::raw(),
            false => UnitFormatter::new(&one.sample_type.unit, style.unit.as_deref())?,
        };
        let time = |nanos: i64| match nanos {
            0 => String::new(),
            nanos => time_utc(nanos),
        };
        let values: Vec<i128> = one.totals.iter().map(|(_, total)| *total).collect();
        let of = |key: &String| one.labels.get(key).cloned().unwrap_or_default();
        let mut cells: Vec<String> = keys.iter().map(of).collect();
        cells.extend([
            one.moments.to_string(),
            one.processes.to_string(),
            time(one.first_nanos),
            time(one.last_nanos),
            one.sample_type.r#type.clone(),
            measure.show(values.last().copied().unwrap_or_default()),
        ]);
        if !is_raw {
            cells.push(sparkline(&values, MAX_SPARKLINE_CHARS));
        }
        table.row(cells);
    }
    let rows = table.render(style)?;
    if is_raw {
        return Ok(rows);
    }
    let count = |of: &dyn Fn(&SeriesSummary) -> usize| series.iter().map(of).sum::<usize>();
    let head = format!(
        "{} series of {} and {}",
        series.len(),
        plural(&count(&|s| s.moments).to_string(), "moment"),
        plural(&count(&|s| s.processes).to_string(), "process")
    );
    Ok(crate::head::with_head(&[head], &rows, style))
}

/// Returns the keys of all labels, `service` and `host` first.
fn keys(series: &[SeriesSummary]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    let all = series.iter().flat_map(|one| one.labels.keys());
    let all: BTreeMap<&String, ()> = all.map(|key| (key, ())).collect();
    for first in ["service", "host"] {
        if all.keys().any(|key| *key == first) {
            keys.push(first.to_string());
        }
    }
    let rest = all
        .keys()
        .filter(|key| !matches!(key.as_str(), "service" | "host"));
    keys.extend(rest.map(|key| key.to_string()));
    keys
}

fn document(series: &SeriesSummary) -> Value {
    let totals = series.totals.iter();
    let (times, totals): (Vec<i64>, Vec<Value>) =
        totals.map(|(time, total)| (*time, number(*total))).unzip();
    json!({
        "labels": series.labels,
        "moments": series.moments,
        "processes": series.processes,
        "builds": series.builds,
        "first_nanos": series.first_nanos,
        "last_nanos": series.last_nanos,
        "sample_type": crate::json::sample_type(&series.sample_type),
        "times_nanos": times,
        "totals": totals,
    })
}

/// Returns a sum as a JSON number, or as text if it is beyond 64 bits.
fn number(value: i128) -> Value {
    match i64::try_from(value) {
        Ok(value) => json!(value),
        Err(_) => json!(value.to_string()),
    }
}

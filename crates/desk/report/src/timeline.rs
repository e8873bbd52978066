//! The report `timeline`: the heap over time, as a chart and as rows.

use heapprof_analysis::timeline::{TimelineReport, TimelineRow};
use serde_json::{Value, json};

use crate::advice::ReportAdvice;
use crate::chart::{StepFunction, TimeChart};
use crate::error::ReportError;
use crate::head::with_head;
use crate::json;
use crate::measure::{UnitFormatter, time_utc};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// The number of columns of the chart, in characters.
const CHART_COLUMNS: usize = 76;
/// The number of rows of the chart, in characters.
const CHART_ROWS: usize = 12;
/// Largest ratio of RSS to the heap at which RSS is drawn. At larger ratios, the heap's curve would
/// be flat.
const MAX_RSS_TO_HEAP: i64 = 6;

/// Writes the report `timeline`.
pub fn timeline(timeline: &TimelineReport, style: &ReportStyle) -> Result<String, ReportError> {
    let bytes = UnitFormatter::new("bytes", style.unit.as_deref())?;
    match style.format {
        ReportFormat::Json => json::text(document(timeline)),
        ReportFormat::Csv => {
            table(timeline, &UnitFormatter::raw(), &UnitFormatter::raw())?.render(style)
        }
        ReportFormat::Markdown => {
            let head = [summary(timeline, &bytes, style)?];
            let body = match timeline.rows.is_empty() {
                true => String::new(),
                false => table(timeline, &bytes, &time()?)?.render(style)?,
            };
            Ok(with_head(&head, &body, style))
        }
        ReportFormat::Text => {
            let mut lines = vec![summary(timeline, &bytes, style)?];
            lines.extend(chart(timeline, &bytes)?);
            Ok(with_head(&lines, "", style))
        }
    }
}

fn time() -> Result<UnitFormatter, ReportError> {
    UnitFormatter::new("nanoseconds", None)
}

/// Returns the known values of a column, with their times.
fn steps(timeline: &TimelineReport, of: impl Fn(&TimelineRow) -> Option<i64>) -> StepFunction {
    let rows = timeline.rows.iter();
    rows.filter_map(|row| Some((row.since_nanos, of(row)?)))
        .collect()
}

/// Returns the line above the chart: the profiles, the first and the last value, the peak, and RSS.
fn summary(
    timeline: &TimelineReport,
    bytes: &UnitFormatter,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let heap = steps(timeline, |row| row.inuse_space);
    let resident = steps(timeline, |row| row.rss);
    let name = timeline.profiles.join(", ");
    let Some((&(_, first), &(end, last))) = heap.first().zip(heap.last()) else {
        return Ok(match timeline.is_history {
            true => format!(
                "{name}: has no history, which only heapprof record keeps; several profiles of a \
                 process ({}) also make a timeline",
                style.advise(ReportAdvice::RecordMoments)
            ),
            false => format!("{name}: inuse_space is in none of them"),
        });
    };
    let time = time()?;
    let what = match (timeline.is_history, timeline.profiles.len()) {
        (true, _) => name,
        (false, profiles) => format!("{profiles} profiles"),
    };
    let about = if timeline.is_sampled { "about " } else { "" };
    let mut text = format!(
        "{what}: heap over {}, from {about}{} to {about}{}",
        time.show(end),
        bytes.show(first),
        bytes.show(last)
    );
    if let Some(peak) = timeline.peak {
        text += &format!(", peak {about}{}", bytes.show(peak.bytes));
        text += &match peak.since_nanos {
            Some(since) => format!(" at {}", time.show(since)),
            None => " (at an unknown time)".to_string(),
        };
    }
    match resident.iter().map(|(_, value)| *value).max() {
        Some(most) => text += &format!("; RSS up to {}", bytes.show(most)),
        None => text += "; RSS not recorded",
    }
    if timeline.is_sampled {
        text += " (the heap is estimated from samples)";
    }
    Ok(text)
}

/// Returns the values of a column as they are drawn. A peak between two profiles of a series lasts
/// for one moment. It is not known how far the heap shrank after the peak, so the curve returns to
/// its value before the peak.
fn drawn_steps(
    timeline: &TimelineReport,
    of: impl Fn(&TimelineRow) -> Option<i64>,
) -> StepFunction {
    let mut steps = StepFunction::new();
    let mut before = 0;
    for row in &timeline.rows {
        let Some(value) = of(row) else {
            continue;
        };
        steps.push((row.since_nanos, value));
        match row.is_peak && row.inuse_objects.is_none() && !timeline.is_history {
            true => steps.push((row.since_nanos + 1, before)),
            false => before = value,
        }
    }
    steps
}

fn chart(timeline: &TimelineReport, bytes: &UnitFormatter) -> Result<Vec<String>, ReportError> {
    let heap = drawn_steps(timeline, |row| row.inuse_space);
    let Some(end) = timeline.rows.last().filter(|_| !heap.is_empty()) else {
        return Ok(Vec::new());
    };
    let resident = drawn_steps(timeline, |row| row.rss);
    let most = |steps: &StepFunction| steps.iter().map(|(_, value)| *value).max().unwrap_or(0);
    let is_far = most(&resident) / MAX_RSS_TO_HEAP > most(&heap);
    let time = time()?;
    let marks: Vec<i64> = timeline
        .peak
        .and_then(|peak| peak.since_nanos)
        .into_iter()
        .collect();
    let mark = if marks.is_empty() { "" } else { "  ▲ peak" };
    let chart = TimeChart {
        area: &heap,
        line: if is_far { &Vec::new() } else { &resident },
        span: [0, end.since_nanos],
        marks,
        columns: CHART_COLUMNS,
        rows: CHART_ROWS,
    };
    let mut lines = chart.lines(|value| bytes.show(value), |at| time.show(at));
    lines.push(match (resident.is_empty(), is_far) {
        (true, _) => format!("⣿ heap in use{mark}"),
        (false, false) => format!("⣿ heap in use  ⠁ RSS{mark}"),
        (false, true) => format!("⣿ heap in use{mark}  (RSS is far above, and not drawn)"),
    });
    Ok(lines)
}

fn table(
    timeline: &TimelineReport,
    bytes: &UnitFormatter,
    time: &UnitFormatter,
) -> Result<ReportTable, ReportError> {
    let mut table = ReportTable::new(&[
        ("since_nanos", ColumnAlign::Right),
        ("time_nanos", ColumnAlign::Right),
        ("inuse_space", ColumnAlign::Right),
        ("inuse_objects", ColumnAlign::Right),
        ("rss", ColumnAlign::Right),
        ("is_peak", ColumnAlign::Left),
    ]);
    if !timeline.is_history {
        table.column("profile", ColumnAlign::Left);
    }
    let count = UnitFormatter::raw();
    let known = |value: Option<i64>, measure: &UnitFormatter| {
        value.map_or_else(String::new, |value| measure.show(value))
    };
    for row in &timeline.rows {
        let mut cells = vec![
            time.show(row.since_nanos),
            row.time_nanos.to_string(),
            known(row.inuse_space, bytes),
            known(row.inuse_objects, &count),
            known(row.rss, bytes),
            i64::from(row.is_peak).to_string(),
        ];
        if !timeline.is_history {
            cells.push(row.profile.clone());
        }
        table.row(cells);
    }
    Ok(table)
}

fn document(timeline: &TimelineReport) -> Value {
    let rows = timeline.rows.iter().map(|row| {
        let mut object = json!({
            "since_nanos": row.since_nanos,
            "time_nanos": row.time_nanos,
            "inuse_space": row.inuse_space,
            "inuse_objects": row.inuse_objects,
            "rss": row.rss,
        });
        if row.time_nanos != 0 {
            object["time"] = json!(time_utc(row.time_nanos));
        }
        if row.is_peak {
            object["peak"] = json!(true);
        }
        if !timeline.is_history {
            object["profile"] = json!(row.profile);
        }
        object
    });
    let rows: Vec<Value> = rows.collect();
    json!({
        "profiles": timeline.profiles,
        "history": timeline.is_history,
        "sampled": timeline.is_sampled,
        "peak": timeline.peak.map(|peak| json!({
            "bytes": peak.bytes,
            "since_nanos": peak.since_nanos,
        })),
        "rows": rows,
    })
}

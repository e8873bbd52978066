//! `timeline`: the heap over time, as a chart and as rows.

use heapprof_analysis::{Timeline, TimelineRow};
use serde_json::{Value, json};

use crate::chart::{Chart, Steps};
use crate::error::Error;
use crate::head::with_head;
use crate::json;
use crate::measure::{Measure, time_utc};
use crate::style::{Format, Style};
use crate::table::{Align, Table};

/// Columns and rows of the chart.
const COLUMNS: usize = 76;
const ROWS: usize = 12;
/// An RSS that is so many times the heap would make the heap's curve flat.
const FAR: i64 = 6;

/// Writes the report.
pub fn timeline(timeline: &Timeline, style: &Style) -> Result<String, Error> {
    let bytes = Measure::new("bytes", style.unit.as_deref())?;
    match style.format {
        Format::Json => json::text(document(timeline)),
        Format::Csv => table(timeline, &Measure::raw(), &Measure::raw())?.render(style),
        Format::Markdown => {
            let head = [summary(timeline, &bytes)?];
            let body = match timeline.rows.is_empty() {
                true => String::new(),
                false => table(timeline, &bytes, &time()?)?.render(style)?,
            };
            Ok(with_head(&head, &body, style))
        }
        Format::Text => {
            let mut lines = vec![summary(timeline, &bytes)?];
            lines.extend(chart(timeline, &bytes)?);
            Ok(with_head(&lines, "", style))
        }
    }
}

fn time() -> Result<Measure, Error> {
    Measure::new("nanoseconds", None)
}

/// The known values of a column, with their times.
fn steps(timeline: &Timeline, of: impl Fn(&TimelineRow) -> Option<i64>) -> Steps {
    let rows = timeline.rows.iter();
    rows.filter_map(|row| Some((row.since_nanos, of(row)?)))
        .collect()
}

/// The line that says of what the chart is, and its ends.
fn summary(timeline: &Timeline, bytes: &Measure) -> Result<String, Error> {
    let heap = steps(timeline, |row| row.inuse_space);
    let resident = steps(timeline, |row| row.rss);
    let name = timeline.profiles.join(", ");
    let Some((&(_, first), &(end, last))) = heap.first().zip(heap.last()) else {
        return Ok(match timeline.is_history {
            true => format!(
                "{name}: has no history, which heapprof record notes; several profiles of a \
                 process (record --interval 1s) make a timeline, too"
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
            None => " (nothing says when)".to_string(),
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

/// A column as it is drawn. A peak between two profiles of a series is a moment, from which the
/// heap went back to nobody knows what; the curve goes back to where it was.
fn drawn(timeline: &Timeline, of: impl Fn(&TimelineRow) -> Option<i64>) -> Steps {
    let mut steps = Steps::new();
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

fn chart(timeline: &Timeline, bytes: &Measure) -> Result<Vec<String>, Error> {
    let heap = drawn(timeline, |row| row.inuse_space);
    let Some(end) = timeline.rows.last().filter(|_| !heap.is_empty()) else {
        return Ok(Vec::new());
    };
    let resident = drawn(timeline, |row| row.rss);
    let most = |steps: &Steps| steps.iter().map(|(_, value)| *value).max().unwrap_or(0);
    let is_far = most(&resident) / FAR > most(&heap);
    let time = time()?;
    let marks: Vec<i64> = timeline
        .peak
        .and_then(|peak| peak.since_nanos)
        .into_iter()
        .collect();
    let mark = if marks.is_empty() { "" } else { "  ▲ peak" };
    let chart = Chart {
        area: &heap,
        line: if is_far { &Vec::new() } else { &resident },
        span: [0, end.since_nanos],
        marks,
        columns: COLUMNS,
        rows: ROWS,
    };
    let mut lines = chart.lines(|value| bytes.show(value), |at| time.show(at));
    lines.push(match (resident.is_empty(), is_far) {
        (true, _) => format!("⣿ heap in use{mark}"),
        (false, false) => format!("⣿ heap in use  ⠁ RSS{mark}"),
        (false, true) => format!("⣿ heap in use{mark}  (RSS is far above, and not drawn)"),
    });
    Ok(lines)
}

fn table(timeline: &Timeline, bytes: &Measure, time: &Measure) -> Result<Table, Error> {
    let mut table = Table::new(&[
        ("since_nanos", Align::Right),
        ("time_nanos", Align::Right),
        ("inuse_space", Align::Right),
        ("inuse_objects", Align::Right),
        ("rss", Align::Right),
        ("is_peak", Align::Left),
    ]);
    if !timeline.is_history {
        table.column("profile", Align::Left);
    }
    let count = Measure::raw();
    let known = |value: Option<i64>, measure: &Measure| {
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

fn document(timeline: &Timeline) -> Value {
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

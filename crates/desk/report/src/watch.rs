//! The report `watch`: the memory of processes over time.

use heapprof_analysis::store::{WatchEvent, WatchFigures, WatchReport, WatchedProcess};
use serde_json::{Value, json};

use crate::chart::{StepFunction, TimeChart};
use crate::error::ReportError;
use crate::measure::{UnitFormatter, percent, plural, time_utc};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// The number of columns of the chart, in characters.
const CHART_COLUMNS: usize = 76;
/// The number of rows of the chart, in characters.
const CHART_ROWS: usize = 10;
/// Maximum number of rows of processes, and of events, in a report for people.
const MAX_TABLE_ROWS: usize = 40;

/// A formatter for times in milliseconds.
struct WatchTimeFormatter(UnitFormatter);

impl WatchTimeFormatter {
    fn show(&self, millis: i64) -> String {
        match millis {
            0 => "0s".to_string(),
            millis => self.0.show(millis),
        }
    }
}

/// Writes the report `watch`.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn watch(watch: &WatchReport, style: &ReportStyle) -> Result<String, ReportError> {
    match style.format {
        ReportFormat::Json => return crate::json::text(document(watch)),
        ReportFormat::Csv => return sums(watch).render(style),
        ReportFormat::Text | ReportFormat::Markdown => {}
    }
    let bytes = UnitFormatter::new("bytes", style.unit.as_deref())?;
    let time = WatchTimeFormatter(UnitFormatter::new("milliseconds", None)?);
    let mut text = head(watch, &bytes, &time)?;
    if style.format == ReportFormat::Text {
        for line in chart(watch, &bytes, &time) {
            text += &line;
            text += "\n";
        }
    }
    let marks = marks(watch, &bytes, &time);
    let sections = [
        (
            "Marks, with what has changed since the previous mark",
            marks,
        ),
        ("Processes", processes(watch, &bytes, &time)),
        ("What happened", events(watch, &time)),
    ];
    for (title, table) in sections.iter().filter(|(_, table)| !table.is_empty()) {
        text += &table.render_titled(title, style)?;
    }
    Ok(text)
}

fn first_time(watch: &WatchReport) -> i64 {
    watch.start.began_ms
}

fn head(
    watch: &WatchReport,
    bytes: &UnitFormatter,
    time: &WatchTimeFormatter,
) -> Result<String, ReportError> {
    let start = &watch.start;
    let last = watch.sums.last().map_or(start.began_ms, |sum| sum.time_ms);
    let mut text = format!("{}: {}", printable(&start.name), printable(&start.command));
    let most = watch.sums.iter().max_by_key(|sum| sum.rss);
    match (watch.sums.first(), watch.sums.last(), most) {
        (Some(first), Some(end), Some(most)) => {
            text += &format!(
                ", {} in memory at first (rss), {} at the end, {} at most; {} in {}",
                bytes.show(first.rss),
                bytes.show(end.rss),
                bytes.show(most.rss),
                plural(&watch.sample_count.to_string(), "reading"),
                time.show(last.saturating_sub(start.began_ms)),
            );
            if watch.sums.iter().any(|sum| sum.processes > 1) {
                text +=
                    "; these are sums over processes, so memory that two share is counted twice";
            }
        }
        _ => text += ": it ended before the first reading",
    }
    let span = watch
        .ended_ms
        .unwrap_or(last)
        .saturating_sub(start.began_ms);
    let micros = UnitFormatter::new("microseconds", None)?;
    text += &format!("\nwatching took {} of CPU time", micros.show(watch.cost_us));
    if span > 0 {
        let share = percent(watch.cost_us, i128::from(span) * 1000);
        text += &format!(", {share} of one CPU");
    }
    Ok(text + "\n")
}

fn chart(watch: &WatchReport, bytes: &UnitFormatter, time: &WatchTimeFormatter) -> Vec<String> {
    let began = first_time(watch);
    let area: StepFunction = watch
        .sums
        .iter()
        .map(|sum| (sum.time_ms.saturating_sub(began), sum.rss))
        .collect();
    let Some(&(end, _)) = area.last().filter(|_| area.len() > 1) else {
        return Vec::new();
    };
    let marks = watch.events.iter().filter(|event| event.kind == "mark");
    let marks: Vec<i64> = marks
        .map(|mark| mark.time_ms.saturating_sub(began))
        .collect();
    let peak = || area.iter().max_by_key(|(_, rss)| *rss).map(|(at, _)| *at);
    let chart = TimeChart {
        area: &area,
        line: &Vec::new(),
        span: [0, end],
        marks: match marks.is_empty() {
            true => peak().into_iter().collect(),
            false => marks.clone(),
        },
        columns: CHART_COLUMNS,
        rows: CHART_ROWS,
    };
    let mut lines = chart.lines(|value| bytes.show(value), |at| time.show(at));
    lines.push(match marks.is_empty() {
        false => "⣿ in memory (rss)  ▲ marks".to_string(),
        true => "⣿ in memory (rss)  ▲ peak".to_string(),
    });
    lines
}

/// Returns the pid of a process, by its number in the watch.
fn pid(watch: &WatchReport, process: Option<i64>) -> String {
    let mut all = watch.processes.iter();
    let found = process.and_then(|process| all.find(|one| one.about.process == process));
    found.map_or_else(String::new, |one| one.about.pid.to_string())
}

fn marks(watch: &WatchReport, bytes: &UnitFormatter, time: &WatchTimeFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[("at", ColumnAlign::Right), ("pid", ColumnAlign::Right)]);
    for name in ["size", "rss", "shared", "code", "data"] {
        table.column(name, ColumnAlign::Right);
        table.column("+/-", ColumnAlign::Right);
    }
    table.column("mark", ColumnAlign::Left);
    let mut before: Vec<(Option<i64>, WatchFigures)> = Vec::new();
    for event in watch.events.iter().filter(|event| event.kind == "mark") {
        let mut cells = vec![
            time.show(event.time_ms.saturating_sub(first_time(watch))),
            pid(watch, event.process),
        ];
        let old = before
            .iter()
            .rev()
            .find(|(process, _)| *process == event.process);
        let of = |figures: &WatchFigures| {
            [
                figures.size,
                figures.rss,
                figures.shared,
                figures.code,
                figures.data,
            ]
        };
        match &event.figures {
            Some(figures) => {
                for (i, value) in of(figures).into_iter().enumerate() {
                    cells.push(bytes.show(value));
                    cells.push(old.map_or_else(String::new, |(_, old)| {
                        let change = value.saturating_sub(of(old)[i]);
                        match change {
                            0 => "-".to_string(),
                            change => bytes.show_signed(change),
                        }
                    }));
                }
                before.push((event.process, *figures));
            }
            None => cells.extend(std::iter::repeat_n(String::new(), 10)),
        }
        cells.push(event.text.clone());
        table.row(cells);
    }
    table
}

fn processes(watch: &WatchReport, bytes: &UnitFormatter, time: &WatchTimeFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("pid", ColumnAlign::Right),
        ("parent", ColumnAlign::Right),
        ("from", ColumnAlign::Right),
        ("for", ColumnAlign::Right),
        ("readings", ColumnAlign::Right),
        ("first rss", ColumnAlign::Right),
        ("last rss", ColumnAlign::Right),
        ("peak rss", ColumnAlign::Right),
        ("last pss", ColumnAlign::Right),
        ("cpu time", ColumnAlign::Right),
        ("end", ColumnAlign::Left),
        ("what it is", ColumnAlign::Left),
    ]);
    let last = watch
        .sums
        .last()
        .map_or(first_time(watch), |sum| sum.time_ms);
    for one in watch.processes.iter().take(MAX_TABLE_ROWS) {
        let end = one.about.ended_ms.or(watch.ended_ms).unwrap_or(last);
        table.row(vec![
            one.about.pid.to_string(),
            one.about.parent.to_string(),
            time.show(one.about.began_ms.saturating_sub(first_time(watch))),
            time.show(end.saturating_sub(one.about.began_ms)),
            one.sample_count.to_string(),
            bytes.show(one.first),
            bytes.show(one.last),
            bytes.show(one.most),
            one.pss.map_or_else(String::new, |pss| bytes.show(pss)),
            time.show(one.worked_us / 1000),
            end_of(one).to_string(),
            process_name(one),
        ]);
    }
    more(&mut table, watch.processes.len());
    table.cut_last(60);
    table
}

fn process_name(one: &WatchedProcess) -> String {
    match one.about.command.as_str() {
        "" => one.about.name.clone(),
        command => command.to_string(),
    }
}

fn end_of(one: &WatchedProcess) -> &str {
    match (one.about.ended_ms, one.about.ending.as_str()) {
        (None, _) => "running",
        (Some(_), "") => "ended",
        (Some(_), ending) => ending,
    }
}

fn events(watch: &WatchReport, time: &WatchTimeFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("at", ColumnAlign::Right),
        ("pid", ColumnAlign::Right),
        ("what", ColumnAlign::Left),
        ("details", ColumnAlign::Left),
    ]);
    let others: Vec<&WatchEvent> = watch
        .events
        .iter()
        .filter(|event| event.kind != "mark")
        .collect();
    for event in others.iter().take(MAX_TABLE_ROWS) {
        table.row(vec![
            time.show(event.time_ms.saturating_sub(first_time(watch))),
            pid(watch, event.process),
            event.kind.clone(),
            event.text.clone(),
        ]);
    }
    more(&mut table, others.len());
    table.cut_last(90);
    table
}

/// Adds a row with the number of rows that are left out, if there are any.
fn more(table: &mut ReportTable, all: usize) {
    if all > MAX_TABLE_ROWS {
        let columns = table.widths().len();
        let mut cells = vec![String::new(); columns - 1];
        cells.push(format!("(other: {} more)", all - MAX_TABLE_ROWS));
        table.row(cells);
    }
}

/// Makes the table for programs: the sums over time.
fn sums(watch: &WatchReport) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("time_ms", ColumnAlign::Right),
        ("rss", ColumnAlign::Right),
        ("processes", ColumnAlign::Right),
    ]);
    for sum in &watch.sums {
        table.row(vec![
            sum.time_ms.to_string(),
            sum.rss.to_string(),
            sum.processes.to_string(),
        ]);
    }
    table
}

fn document(watch: &WatchReport) -> Value {
    let sums = watch
        .sums
        .iter()
        .map(|sum| json!({"time_ms": sum.time_ms, "rss": sum.rss, "processes": sum.processes}));
    let processes = watch.processes.iter().map(|one| {
        let about = &one.about;
        json!({
            "process": about.process, "pid": about.pid, "parent": about.parent,
            "name": about.name, "command": about.command, "began_ms": about.began_ms,
            "ended_ms": about.ended_ms, "ending": about.ending, "looks": one.sample_count,
            "first": one.first, "last": one.last, "most": one.most, "pss": one.pss,
            "worked_us": one.worked_us,
        })
    });
    let events = watch.events.iter().map(|event| {
        let figures = event.figures.map(|f| {
            json!({"size": f.size, "rss": f.rss, "shared": f.shared, "code": f.code,
                   "data": f.data})
        });
        json!({
            "process": event.process, "time_ms": event.time_ms, "kind": event.kind,
            "text": event.text, "figures": figures,
        })
    });
    json!({
        "name": watch.start.name, "host": watch.start.host, "command": watch.start.command,
        "interval_ms": watch.start.interval_ms, "began_ms": watch.start.began_ms,
        "began": time_utc(watch.start.began_ms.saturating_mul(1_000_000)),
        "ended_ms": watch.ended_ms, "looks": watch.sample_count, "cost_us": watch.cost_us,
        "sums": sums.collect::<Vec<_>>(), "processes": processes.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use heapprof_analysis::store::{WatchProcess, WatchStart, WatchSum};

    use super::*;

    fn sample() -> WatchReport {
        let mark = |time_ms: i64, rss: i64| WatchEvent {
            process: Some(1),
            time_ms,
            kind: "mark".to_string(),
            text: format!("at {time_ms}"),
            figures: Some(WatchFigures {
                size: 9 << 20,
                rss,
                ..WatchFigures::default()
            }),
        };
        WatchReport {
            start: WatchStart {
                name: "app".to_string(),
                command: "app -x".to_string(),
                interval_ms: 1000,
                began_ms: 1000,
                ..WatchStart::default()
            },
            ended_ms: Some(5000),
            sample_count: 4,
            cost_us: 8000,
            sums: (0..4)
                .map(|i| WatchSum {
                    time_ms: 1000 + 1000 * i,
                    rss: (i + 1) << 20,
                    processes: 1,
                })
                .collect(),
            processes: vec![WatchedProcess {
                about: WatchProcess {
                    process: 1,
                    pid: 77,
                    parent: 1,
                    command: "app -x".to_string(),
                    began_ms: 1000,
                    ended_ms: Some(5000),
                    ending: "exit code 3".to_string(),
                    ..WatchProcess::default()
                },
                first: 1 << 20,
                last: 4 << 20,
                most: 5 << 20,
                sample_count: 4,
                worked_us: 20_000,
                ..WatchedProcess::default()
            }],
            events: vec![
                mark(2000, 2 << 20),
                mark(3000, 5 << 20),
                WatchEvent {
                    time_ms: 4000,
                    kind: "then".to_string(),
                    text: "true".to_string(),
                    ..WatchEvent::default()
                },
            ],
        }
    }

    #[test]
    fn a_watch_is_reported() {
        let text = watch(&sample(), &ReportStyle::default()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "app: app -x, 1MiB in memory at first (rss), 4MiB at the end, 4MiB at most; 4 readings \
             in 3s"
        );
        assert_eq!(lines[1], "watching took 8ms of CPU time, 0.20% of one CPU");
        assert!(text.contains("▲ marks"), "{text}");
        assert!(text.contains("5MiB  +3MiB"), "{text}");
        assert!(text.contains("exit code 3  app -x"), "{text}");
        assert!(text.contains("then  true"), "{text}");
        let style = ReportStyle {
            format: ReportFormat::Csv,
            ..ReportStyle::default()
        };
        assert_eq!(watch(&sample(), &style).unwrap().lines().count(), 5);
        // The watch ended before its first reading.
        let nothing = watch(&WatchReport::default(), &ReportStyle::default()).unwrap();
        assert!(
            nothing.contains("ended before the first reading"),
            "{nothing}"
        );
    }
}

//! The report `traces`: one block for each stack, with its value and labels above it.

use std::io::Write;

use heapprof_analysis::traces::{TraceRow, TracesReport};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::advice::ReportAdvice;
use crate::error::ReportError;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::{UnitFormatter, plural};
use crate::names::{
    MAX_INLINE_NAME_COLUMNS, NameCache, label_value, printable_label, root_first, short_labels_of,
};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// The order of the stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceOrder {
    /// The largest first.
    #[default]
    Descending,
    /// The largest last, at the end of the terminal's output. The note about left-out stacks comes
    /// first.
    Ascending,
}

/// Writes the report `traces` stack by stack, because it may be much longer than the profile.
pub fn traces(
    traces: &TracesReport,
    order: TraceOrder,
    style: &ReportStyle,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let measure = head::measure(&traces.header, style)?;
    let lines = head::lines(&traces.header, &measure, style);
    let (rest, count) = traces.other;
    let is_ascending = order == TraceOrder::Ascending;
    let ordered: Vec<&TraceRow> = match is_ascending {
        true => traces.rows.iter().rev().collect(),
        false => traces.rows.iter().collect(),
    };
    let stacks = traces.rows.iter().map(|trace| &trace.stack[..]);
    let label = || {
        short_labels_of(
            &traces.places,
            stacks.clone(),
            MAX_INLINE_NAME_COLUMNS,
            style,
        )
    };
    match style.format {
        ReportFormat::Json => {
            let mut made = NameCache::new(json::place_json);
            let mut tail = Map::new();
            tail.insert("other".into(), json!({"value": rest, "rows": count}));
            json::write_each(&json::head(&traces.header), &tail, out, |rows| {
                ordered.iter().try_for_each(|trace| {
                    let row = TraceJsonRow {
                        value: trace.value,
                        labels: labels_json(trace),
                    };
                    rows.row_with_stack(&row, &traces.places, &trace.stack, &mut made)
                })
            })?;
        }
        ReportFormat::Csv | ReportFormat::Markdown => {
            let table = ReportTable::new(&[
                ("value", ColumnAlign::Right),
                ("labels", ColumnAlign::Left),
                ("stack", ColumnAlign::Left),
            ]);
            let mut names = NameCache::new(label());
            let rows = ordered.iter().map(|trace| {
                let stack = root_first(&traces.places, &trace.stack, &mut names);
                vec![measure.show(trace.value), labels(trace), stack]
            });
            let other = (count > 0).then(|| {
                let other = format!(
                    "{} {}",
                    heapprof_analysis::OTHER_NAME,
                    plural(&count.to_string(), "stack")
                );
                vec![measure.show(rest), String::new(), other]
            });
            out.write_all(with_head(&lines, "", style).as_bytes())?;
            let (first, last) = match is_ascending {
                true => (other, None),
                false => (None, other),
            };
            let rows = first.into_iter().chain(rows).chain(last);
            table.write_rows(style.format, rows, out)?;
        }
        ReportFormat::Text => {
            out.write_all(with_head(&lines, "", style).as_bytes())?;
            let rule = "-".repeat(60);
            let mut line = String::new();
            let mut names = NameCache::new(printable_label(label()));
            if is_ascending {
                write_other(rest, count, &measure, style, out)?;
            }
            for trace in ordered {
                writeln!(out, "{rule}")?;
                let labels = labels(trace);
                if !labels.is_empty() {
                    writeln!(out, "{:>14}  {}", "", printable(&labels))?;
                }
                let mut value = measure.show(trace.value);
                if trace.stack.is_empty() {
                    writeln!(out, "{value:>14}  {}", heapprof_analysis::EMPTY_STACK)?;
                }
                names.fetch(trace.stack.iter().copied());
                for &place in &trace.stack {
                    line.clear();
                    line.extend(std::iter::repeat_n(
                        ' ',
                        14usize.saturating_sub(value.chars().count()),
                    ));
                    line.extend([&value, "  ", names.name_of(&traces.places, place), "\n"]);
                    out.write_all(line.as_bytes())?;
                    value.clear();
                }
            }
            if !is_ascending {
                write_other(rest, count, &measure, style, out)?;
            }
        }
    }
    Ok(())
}

/// Writes a note about the stacks that are left out, with their number and their sum, if there are
/// any.
fn write_other(
    rest: i64,
    count: usize,
    measure: &UnitFormatter,
    style: &ReportStyle,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    if count > 0 {
        let (rule, shown) = ("-".repeat(60), measure.show(rest));
        let other = heapprof_analysis::OTHER_NAME;
        let all = style.advise(ReportAdvice::AllRows);
        writeln!(
            out,
            "{rule}\n{shown:>14}  {other}: {}; {all}",
            plural(&count.to_string(), "more stack")
        )?;
    }
    Ok(())
}

fn labels(trace: &TraceRow) -> String {
    let labels: Vec<String> = trace
        .labels
        .iter()
        .map(|(key, value)| format!("{key}:{}", label_value(value)))
        .collect();
    labels.join(" ")
}

#[derive(Serialize)]
struct TraceJsonRow {
    value: i64,
    labels: Map<String, Value>,
}

fn labels_json(trace: &TraceRow) -> Map<String, Value> {
    let mut labels = Map::new();
    for (key, value) in &trace.labels {
        let list = labels.entry(key.clone()).or_insert_with(|| json!([]));
        if let Value::Array(list) = list {
            list.push(json::label(value));
        }
    }
    labels
}

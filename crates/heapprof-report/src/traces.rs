//! `traces`: one block a stack, its value and labels before it.

use std::io::Write;

use heapprof_analysis::{Trace, Traces};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::head::{self, with_head};
use crate::json;
use crate::names::{Labels, label_value};
use crate::style::{Format, Style};
use crate::table::{Align, Table, printable};

/// Writes the report. Text is written stack by stack: it may be much longer than the profile.
pub fn traces(traces: &Traces, style: &Style, out: &mut dyn Write) -> Result<(), Error> {
    let measure = head::measure(&traces.header, style)?;
    let lines = head::lines(&traces.header, &measure, style);
    let (rest, count) = traces.other;
    match style.format {
        Format::Json => {
            let mut document = json::head(&traces.header);
            document.insert("rows".into(), traces.rows.iter().map(row).collect());
            document.insert("other".into(), json!({"value": rest, "rows": count}));
            out.write_all(json::text(document)?.as_bytes())?;
        }
        Format::Csv | Format::Markdown => {
            let mut table = Table::new(&[
                ("value", Align::Right),
                ("labels", Align::Left),
                ("stack", Align::Left),
            ]);
            for trace in &traces.rows {
                let stack: Vec<String> = trace.stack.iter().rev().map(|p| p.label()).collect();
                table.row(vec![
                    measure.show(trace.value),
                    labels(trace),
                    stack.join(";"),
                ]);
            }
            if count > 0 {
                let other = format!("{} {count} stacks", heapprof_analysis::OTHER);
                table.row(vec![measure.show(rest), String::new(), other]);
            }
            out.write_all(with_head(&lines, &table.render(style)?, style).as_bytes())?;
        }
        Format::Text => {
            out.write_all(with_head(&lines, "", style).as_bytes())?;
            let rule = "-".repeat(60);
            let mut names = Labels::default();
            for trace in &traces.rows {
                writeln!(out, "{rule}")?;
                let labels = labels(trace);
                if !labels.is_empty() {
                    writeln!(out, "{:>14}  {}", "", printable(&labels))?;
                }
                let mut value = measure.show(trace.value);
                if trace.stack.is_empty() {
                    writeln!(out, "{value:>14}  {}", heapprof_analysis::EMPTY_STACK)?;
                }
                for place in &trace.stack {
                    writeln!(out, "{value:>14}  {}", printable(names.of(place)))?;
                    value.clear();
                }
            }
            if count > 0 {
                let shown = measure.show(rest);
                let other = heapprof_analysis::OTHER;
                writeln!(
                    out,
                    "{rule}\n{shown:>14}  {other}: {count} more stacks; -n 0 shows all"
                )?;
            }
        }
    }
    Ok(())
}

fn labels(trace: &Trace) -> String {
    let labels: Vec<String> = trace
        .labels
        .iter()
        .map(|(key, value)| format!("{key}:{}", label_value(value)))
        .collect();
    labels.join(" ")
}

fn row(trace: &Trace) -> Value {
    let stack: Vec<Value> = trace
        .stack
        .iter()
        .map(|p| Value::Object(json::place(p)))
        .collect();
    let mut labels = Map::new();
    for (key, value) in &trace.labels {
        let list = labels.entry(key.clone()).or_insert_with(|| json!([]));
        if let Value::Array(list) = list {
            list.push(json::label(value));
        }
    }
    json!({"value": trace.value, "labels": labels, "stack": stack})
}

//! `traces`: one block a stack, its value and labels before it.

use heapprof_analysis::{Trace, Traces};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::head::{self, with_head};
use crate::json;
use crate::names::label_value;
use crate::style::{Format, Style};
use crate::table::{Align, Table, printable};

/// Writes the report.
pub fn traces(traces: &Traces, style: &Style) -> Result<String, Error> {
    let measure = head::measure(&traces.header, style)?;
    let lines = head::lines(&traces.header, &measure, style);
    let (rest, count) = traces.other;
    match style.format {
        Format::Json => {
            let mut document = json::head(&traces.header);
            document.insert("rows".into(), traces.rows.iter().map(row).collect());
            document.insert("other".into(), json!({"value": rest, "rows": count}));
            json::text(document)
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
            Ok(with_head(&lines, &table.render(style)?, style))
        }
        Format::Text => {
            let mut body = String::new();
            let rule = "-".repeat(60);
            for trace in &traces.rows {
                body.push_str(&rule);
                body.push('\n');
                let labels = labels(trace);
                if !labels.is_empty() {
                    body.push_str(&format!("{:>14}  {}\n", "", printable(&labels)));
                }
                let mut value = measure.show(trace.value);
                if trace.stack.is_empty() {
                    body.push_str(&format!(
                        "{value:>14}  {}\n",
                        heapprof_analysis::EMPTY_STACK
                    ));
                }
                for place in &trace.stack {
                    body.push_str(&format!("{value:>14}  {}\n", printable(&place.label())));
                    value.clear();
                }
            }
            if count > 0 {
                let shown = measure.show(rest);
                let other = heapprof_analysis::OTHER;
                body.push_str(&format!(
                    "{rule}\n{shown:>14}  {other}: {count} more stacks; -n 0 shows all\n"
                ));
            }
            Ok(with_head(&lines, &body, style))
        }
    }
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

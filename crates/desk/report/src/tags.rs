//! The report `tags`: the label keys, the values of each key, and the sum of each value.

use heapprof_analysis::tags::TagsReport;
use serde_json::{Value, json};

use crate::error::ReportError;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::percent;
use crate::names::label_value;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// Writes the report `tags`.
pub fn tags(tags: &TagsReport, style: &ReportStyle) -> Result<String, ReportError> {
    let measure = head::measure(&tags.header, style)?;
    if style.format == ReportFormat::Json {
        let rows = tags.rows.iter().map(|tag| {
            let values: Vec<Value> = tag
                .values
                .iter()
                .map(|(label, value)| json!({"label": json::label(label), "value": value}))
                .collect();
            json!({
                "key": tag.key,
                "values": values,
                "without": tag.without,
                "repeated": tag.repeated,
            })
        });
        let mut document = json::head(&tags.header);
        document.insert("rows".into(), rows.collect());
        return json::text(document);
    }
    let mut table = ReportTable::new(&[("key", ColumnAlign::Left), ("value", ColumnAlign::Right)]);
    let eyes = style.format != ReportFormat::Csv;
    if eyes {
        table.column("value%", ColumnAlign::Right);
    }
    table.column("label", ColumnAlign::Left);
    for tag in &tags.rows {
        let mut add = |value: i64, label: String| {
            let mut cells = vec![tag.key.clone(), measure.show(value)];
            if eyes {
                cells.push(percent(value, tags.header.total));
            }
            cells.push(label);
            table.row(cells);
        };
        for (label, value) in &tag.values {
            add(*value, label_value(label));
        }
        if tag.without != 0 {
            add(tag.without, format!("(no {})", tag.key));
        }
        if tag.repeated != 0 {
            add(
                -tag.repeated,
                "(counted under more than one value)".to_string(),
            );
        }
    }
    let mut lines = head::lines(&tags.header, &measure, style);
    if tags.rows.is_empty() && !lines.is_empty() {
        lines.push("The samples have no labels.".to_string());
    }
    let body = if table.is_empty() && eyes {
        String::new()
    } else {
        table.render(style)?
    };
    Ok(with_head(&lines, &body, style))
}

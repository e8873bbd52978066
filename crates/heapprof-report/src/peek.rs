//! `peek`: callers above, callees below; either side adds up to cum.

use heapprof_analysis::{Peek, PeekRow, Place};
use serde_json::{Value, json};

use crate::error::Error;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::percent;
use crate::style::{Format, Style};
use crate::table::{Align, Table};

const ROOT: &str = "(root)";
const ITSELF: &str = "(itself)";

/// Writes the report.
pub fn peek(peek: &Peek, style: &Style) -> Result<String, Error> {
    let measure = head::measure(&peek.header, style)?;
    if style.format == Format::Json {
        let mut document = json::head(&peek.header);
        document.insert("rows".into(), peek.rows.iter().map(row).collect());
        return json::text(document);
    }
    let split = style.format == Format::Csv;
    let mut table = match split {
        true => Table::new(&[
            ("function", Align::Left),
            ("side", Align::Left),
            ("neighbour", Align::Left),
            ("value", Align::Right),
        ]),
        false => Table::new(&[
            ("flat", Align::Right),
            ("cum", Align::Right),
            ("cum%", Align::Right),
            ("calls", Align::Right),
            ("calls%", Align::Right),
            ("function", Align::Left),
        ]),
    };
    for row in &peek.rows {
        let name = row.place.label();
        let neighbour = |side: &str, label: String, value: i64| match split {
            true => vec![name.clone(), side.into(), label, measure.show(value)],
            false => {
                let (shown, share) = (measure.show(value), percent(value, row.cum));
                let label = format!("  {side} {label}");
                vec![
                    String::new(),
                    String::new(),
                    String::new(),
                    shown,
                    share,
                    label,
                ]
            }
        };
        for (place, value) in &row.callers {
            let label = place.as_ref().map_or(ROOT.to_string(), Place::label);
            table.row(neighbour("caller", label, *value));
        }
        if !split {
            table.row(vec![
                measure.show(row.flat),
                measure.show(row.cum),
                percent(row.cum, peek.header.total),
                String::new(),
                String::new(),
                name.clone(),
            ]);
        }
        if row.flat != 0 {
            table.row(neighbour("callee", ITSELF.to_string(), row.flat));
        }
        for (place, value) in &row.callees {
            table.row(neighbour("callee", place.label(), *value));
        }
    }
    let mut lines = head::lines(&peek.header, &measure, style);
    if peek.more > 0 && !lines.is_empty() {
        lines.push(format!("{} more match; -n 0 shows all", peek.more));
    }
    Ok(with_head(&lines, &table.render(style)?, style))
}

fn row(row: &PeekRow) -> Value {
    let mut object = json::place(&row.place);
    object.insert("flat".into(), json!(row.flat));
    object.insert("cum".into(), json!(row.cum));
    let side = |place: Option<&Place>, value: i64| {
        let mut object = match place {
            Some(place) => json::place(place),
            None => json::place(&Place {
                function: ROOT.to_string(),
                ..Place::default()
            }),
        };
        object.insert("value".into(), json!(value));
        Value::Object(object)
    };
    let callers = row
        .callers
        .iter()
        .map(|(p, v)| side(p.as_ref(), *v))
        .collect();
    let callees = row.callees.iter().map(|(p, v)| side(Some(p), *v)).collect();
    object.insert("callers".into(), callers);
    object.insert("callees".into(), callees);
    Value::Object(object)
}

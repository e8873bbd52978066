//! `tree`: the call tree, indented.

use heapprof_analysis::{Tree, TreeRow};
use serde_json::{Value, json};

use crate::error::Error;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::percent;
use crate::style::{Format, Style};
use crate::table::{Align, Table};

/// How many steps a node is indented at most.
const DEEPEST: usize = 100;

/// Writes the report.
pub fn tree(tree: &Tree, style: &Style) -> Result<String, Error> {
    let measure = head::measure(&tree.header, style)?;
    if style.format == Format::Json {
        // In pre-order with depths, not nested: a stack may be deeper than a reader's recursion.
        let mut document = json::head(&tree.header);
        document.insert("reverse".into(), json!(tree.reverse));
        document.insert("rows".into(), tree.rows.iter().map(node).collect());
        return json::text(document);
    }
    let split = style.format == Format::Csv;
    let mut table = Table::new(&[("total", Align::Right)]);
    match split {
        true => table.column("depth", Align::Right),
        false => table.column("total%", Align::Right),
    }
    table.column("self", Align::Right);
    table.column("function", Align::Left);
    for row in &tree.rows {
        let second = match split {
            true => row.depth.to_string(),
            false => percent(row.total[0], tree.header.total),
        };
        // Deeper than any screen is wide, the depth is a number.
        let steps = row.depth.min(DEEPEST);
        let deeper = match row.depth {
            depth if depth > DEEPEST => format!("({depth}) "),
            _ => String::new(),
        };
        let indent = match style.format {
            Format::Text => "  ".repeat(steps) + &deeper,
            Format::Markdown => "\u{a0}\u{a0}".repeat(steps) + &deeper,
            _ => String::new(),
        };
        table.row(vec![
            measure.show(row.total[0]),
            second,
            measure.show(row.own[0]),
            format!("{indent}{}", row.place.label()),
        ]);
    }
    let mut lines = head::lines(&tree.header, &measure, style);
    if !lines.is_empty() {
        let from = if tree.reverse { "leaves" } else { "roots" };
        lines.push(format!(
            "Call tree from the {from}; nodes below {}% of {} are in (other)",
            tree.least * 100.0,
            match tree.header.filters.is_empty() {
                true => "the total",
                false => "what the filters keep",
            }
        ));
    }
    Ok(with_head(&lines, &table.render(style)?, style))
}

fn node(row: &TreeRow) -> Value {
    let mut node = json::place(&row.place);
    node.insert("depth".into(), json!(row.depth));
    node.insert("total".into(), json!(row.total[0]));
    node.insert("self".into(), json!(row.own[0]));
    Value::Object(node)
}

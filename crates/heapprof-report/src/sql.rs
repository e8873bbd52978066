//! `sql`: the result of a statement.

use heapprof_analysis::{ResultTable, Value as Cell};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::json;
use crate::style::{Format, Style};
use crate::table::{Align, Table};

/// Writes a statement's result; JSON is a list of objects.
pub fn result_table(result: &ResultTable, style: &Style) -> Result<String, Error> {
    if style.format == Format::Json {
        let names = distinct(&result.columns);
        let rows = result.rows.iter().map(|row| {
            let values = row.iter().map(value);
            let object: Map<String, Value> = names.iter().cloned().zip(values).collect();
            Value::Object(object)
        });
        return json::text(rows.collect::<Value>());
    }
    let mut table = Table::default();
    for (at, name) in result.columns.iter().enumerate() {
        let numbers = result
            .rows
            .iter()
            .all(|row| !matches!(row[at], Cell::Text(_) | Cell::Blob(_)));
        table.column(name, if numbers { Align::Right } else { Align::Left });
    }
    for row in &result.rows {
        table.row(row.iter().map(text).collect());
    }
    table.render(style)
}

/// The columns' names, each once: the second `name` is `name_2`, as an object has a name once.
fn distinct(columns: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in columns {
        let again = (2..).map(|n| format!("{column}_{n}"));
        let mut free = std::iter::once(column.clone()).chain(again);
        names.extend(
            free.find(|name| !names.contains(name) && (name == column || !columns.contains(name))),
        );
    }
    names
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Int(number) => json!(number),
        Cell::Real(number) => json!(number),
        Cell::Text(text) => json!(text),
        Cell::Blob(_) => json!(text(cell)),
    }
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Null => String::new(),
        Cell::Int(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Text(text) => text.clone(),
        Cell::Blob(bytes) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
    }
}

//! `schema`: the tables that `sql -p` can read, and what their columns mean.

use serde_json::json;

use crate::error::Error;
use crate::style::{Format, Style};
use crate::table::{Align, Table};

/// A table's name, what a row is, and its columns with their meanings.
type Documented = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Writes the tables.
pub fn schema(tables: impl Iterator<Item = Documented>, style: &Style) -> Result<String, Error> {
    let tables: Vec<Documented> = tables.collect();
    match style.format {
        Format::Text => {
            let mut text = String::new();
            for (name, about, columns) in tables {
                text.push_str(&format!("{name}: {about}\n"));
                for (column, meaning) in columns {
                    text.push_str(&format!("    {column:<28} {meaning}\n"));
                }
                text.push('\n');
            }
            Ok(text)
        }
        Format::Json => {
            let tables = tables.iter().map(|(name, about, columns)| {
                let columns = columns
                    .iter()
                    .map(|(c, m)| json!({"column": c, "about": m}));
                json!({"table": name, "about": about, "columns": columns.collect::<Vec<_>>()})
            });
            crate::json::text(tables.collect::<serde_json::Value>())
        }
        Format::Csv | Format::Markdown => {
            let mut table = Table::new(&[
                ("table", Align::Left),
                ("column", Align::Left),
                ("meaning", Align::Left),
            ]);
            for (name, _, columns) in tables {
                for (column, meaning) in columns {
                    table.row(vec![name.into(), (*column).into(), (*meaning).into()]);
                }
            }
            table.render(style)
        }
    }
}

//! The report `schema`: the tables that `sql -p` can read, and the meanings of their columns.

use serde_json::json;

use crate::error::ReportError;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// A table's name, the meaning of a row, and its columns with their meanings.
type TableDescription = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Writes the tables with the meanings of their columns.
pub fn schema(
    tables: impl Iterator<Item = TableDescription>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let tables: Vec<TableDescription> = tables.collect();
    match style.format {
        ReportFormat::Text => {
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
        ReportFormat::Json => {
            let tables = tables.iter().map(|(name, about, columns)| {
                let columns = columns
                    .iter()
                    .map(|(c, m)| json!({"column": c, "about": m}));
                json!({"table": name, "about": about, "columns": columns.collect::<Vec<_>>()})
            });
            crate::json::text(tables.collect::<serde_json::Value>())
        }
        ReportFormat::Csv | ReportFormat::Markdown => {
            let mut table = ReportTable::new(&[
                ("table", ColumnAlign::Left),
                ("column", ColumnAlign::Left),
                ("meaning", ColumnAlign::Left),
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

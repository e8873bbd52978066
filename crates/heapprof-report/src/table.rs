//! Tables as text, CSV and Markdown; the only place that knows how they look.

use comfy_table::{CellAlignment, ContentArrangement, Table as TextTable, presets};

use crate::error::Error;
use crate::style::{Format, Style};

/// Where a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table of texts. Numbers in it are shown already.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Colours of rows, where they have one.
    tints: Vec<Option<Tint>>,
}

/// What a row's colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tint {
    /// More than before: orange.
    Grown,
    /// Less than before: blue.
    Shrunk,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            columns: columns.iter().map(|(name, align)| (name.to_string(), *align)).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn column(&mut self, name: impl Into<String>, align: Align) {
        self.columns.push((name.into(), align));
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.tinted_row(cells, None);
    }

    pub(crate) fn tinted_row(&mut self, cells: Vec<String>, tint: Option<Tint>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
        self.tints.push(tint);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table in the style's format; `Json` is not a table's business and comes out as CSV.
    pub(crate) fn render(&self, style: &Style) -> Result<String, Error> {
        match style.format {
            Format::Text => Ok(self.text(style.color)),
            Format::Markdown => Ok(self.markdown()),
            Format::Csv | Format::Json => self.csv(),
        }
    }

    fn text(&self, color: bool) -> String {
        let mut table = TextTable::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.columns.iter().map(|(name, _)| name));
        for row in &self.rows {
            table.add_row(row.iter().map(|cell| printable(cell)));
        }
        for (at, (_, align)) in self.columns.iter().enumerate() {
            if let Some(column) = table.column_mut(at) {
                column.set_padding((if at == 0 { 0 } else { 1 }, 1));
                column.set_cell_alignment(match align {
                    Align::Left => CellAlignment::Left,
                    Align::Right => CellAlignment::Right,
                });
            }
        }
        let mut text = String::new();
        for (at, line) in table.lines().enumerate() {
            let line = line.trim_end();
            let tint = at.checked_sub(1).and_then(|row| self.tints.get(row).copied().flatten());
            let paint = match (color, at, tint) {
                (true, 0, _) => "\u{1b}[1m",
                (true, _, Some(Tint::Grown)) => "\u{1b}[38;5;208m",
                (true, _, Some(Tint::Shrunk)) => "\u{1b}[38;5;75m",
                _ => "",
            };
            text.push_str(paint);
            text.push_str(line);
            text.push_str(if paint.is_empty() { "\n" } else { "\u{1b}[0m\n" });
        }
        text
    }

    fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = String>| {
            let cells: Vec<String> = cells.collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = line(&mut self.columns.iter().map(|(name, _)| markdown_cell(name)));
        text.push_str(&line(&mut self.columns.iter().map(|(_, align)| match align {
            Align::Left => ":---".to_string(),
            Align::Right => "---:".to_string(),
        })));
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(|cell| markdown_cell(cell))));
        }
        text
    }

    fn csv(&self) -> Result<String, Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(self.columns.iter().map(|(name, _)| name))?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        let bytes = writer.into_inner().map_err(|error| Error::Io(error.into_error()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A name as a terminal may show it: a profile can hold any text, also escape sequences.
pub(crate) fn printable(text: &str) -> String {
    match text.contains(char::is_control) {
        false => text.to_string(),
        true => text
            .chars()
            .flat_map(|c| {
                let (plain, escaped) = match c.is_control() {
                    true => (None, Some(c.escape_default())),
                    false => (Some(c), None),
                };
                plain.into_iter().chain(escaped.into_iter().flatten())
            })
            .collect(),
    }
}

/// A cell that Markdown shows as it is.
fn markdown_cell(text: &str) -> String {
    let mut cell = String::new();
    for c in printable(text).chars() {
        match c {
            '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '\\' => {
                cell.push('\\');
                cell.push(c);
            }
            '&' => cell.push_str("&amp;"),
            c => cell.push(c),
        }
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_break_out() {
        assert_eq!(printable("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(markdown_cell("f<T>(a|b)"), "f\\<T\\>(a\\|b)");
        let mut table = Table::new(&[("n", Align::Right), ("name", Align::Left)]);
        table.row(vec!["1".into(), "a,\"b\"".into()]);
        let csv = Style {
            format: Format::Csv,
            ..Style::default()
        };
        assert_eq!(table.render(&csv).unwrap(), "n,name\n1,\"a,\"\"b\"\"\"\n");
        assert_eq!(table.render(&Style::default()).unwrap(), "n  name\n1  a,\"b\"\n");
    }
}

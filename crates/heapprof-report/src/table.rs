//! Tables as text, CSV and Markdown; the only place that knows how they look.

use std::borrow::Cow;
use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

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
            columns: columns
                .iter()
                .map(|(name, align)| (name.to_string(), *align))
                .collect(),
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
        if style.format == Format::Text {
            return Ok(self.text(&self.widths(), style.color));
        }
        let mut bytes = Vec::new();
        self.write_rows(style.format, self.rows.iter(), &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes the table with other rows than its own, as Markdown or CSV, whose columns have no widths: the rows need not be
    /// there all at once.
    pub(crate) fn write_rows(
        &self,
        format: Format,
        rows: impl Iterator<Item = impl AsRef<[String]>>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        match format {
            Format::Markdown => Ok(self.markdown(rows, out)?),
            _ => self.csv(rows, out),
        }
    }

    /// The table as text, with more lines beneath a row in its last column: `beneath` gives those of a row by its number,
    /// as [`printable`] makes them. They need not be there all at once.
    pub(crate) fn write_text(
        &self,
        color: bool,
        out: &mut dyn Write,
        mut beneath: impl FnMut(usize, &mut dyn FnMut(&str) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        let widths = self.widths();
        let text = self.text(&widths, color);
        let mut lines = text.split_inclusive('\n');
        out.write_all(lines.next().unwrap_or_default().as_bytes())?;
        let before = widths.iter().take(widths.len() - 1).map(|w| w + 2).sum();
        let blanks = " ".repeat(before);
        for (row, line) in lines.enumerate() {
            out.write_all(line.as_bytes())?;
            beneath(row, &mut |cell| match cell {
                "" => writeln!(out),
                cell => writeln!(out, "{blanks}{cell}"),
            })?;
        }
        Ok(())
    }

    /// How wide the widest cell of each column is on a terminal.
    fn widths(&self) -> Vec<usize> {
        let names = self.columns.iter();
        let mut widths: Vec<usize> = names.map(|(name, _)| printable(name).width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(printable(cell).width());
            }
        }
        widths
    }

    /// Columns two blanks apart, as wide as [`widths`](Self::widths) says.
    fn text(&self, widths: &[usize], color: bool) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        let mut text = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = &str>, paint: &str| {
            text.push_str(paint);
            let start = text.len();
            for (at, cell) in cells.enumerate() {
                let cell = printable(cell);
                let (blanks, align) = (widths[at].saturating_sub(cell.width()), self.columns[at].1);
                if at > 0 {
                    text.push_str("  ");
                }
                if align == Align::Right {
                    text.extend(std::iter::repeat_n(' ', blanks));
                }
                text.push_str(&cell);
                // Nothing is to the right of the last column.
                if align == Align::Left && at + 1 < widths.len() {
                    text.extend(std::iter::repeat_n(' ', blanks));
                }
            }
            text.truncate(start + text[start..].trim_end().len());
            text.push_str(if paint.is_empty() {
                "\n"
            } else {
                "\u{1b}[0m\n"
            });
        };
        line(&mut names.into_iter(), if color { "\u{1b}[1m" } else { "" });
        for (row, tint) in self.rows.iter().zip(&self.tints) {
            let paint = match (color, tint) {
                (true, Some(Tint::Grown)) => "\u{1b}[38;5;208m",
                (true, Some(Tint::Shrunk)) => "\u{1b}[38;5;75m",
                _ => "",
            };
            line(&mut row.iter().map(String::as_str), paint);
        }
        text
    }

    fn markdown(
        &self,
        rows: impl Iterator<Item = impl AsRef<[String]>>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let names = self.columns.iter().map(|(name, _)| markdown_cell(name));
        let aligns = self.columns.iter().map(|(_, align)| match align {
            Align::Left => ":---",
            Align::Right => "---:",
        });
        writeln!(out, "| {} |", names.collect::<Vec<_>>().join(" | "))?;
        writeln!(out, "| {} |", aligns.collect::<Vec<_>>().join(" | "))?;
        for row in rows {
            let cells = row.as_ref().iter().map(|cell| markdown_cell(cell));
            writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
        }
        Ok(())
    }

    fn csv(
        &self,
        rows: impl Iterator<Item = impl AsRef<[String]>>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(self.columns.iter().map(|(name, _)| name))?;
        for row in rows {
            writer.write_record(row.as_ref())?;
        }
        Ok(writer.flush()?)
    }
}

/// A name as terminals and XML may show it: a profile can hold any text, also escape sequences.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    // Control characters are below 0x20, 0x7f, or two bytes that begin with 0xc2; what XML refuses
    // beside them is U+FFFE and U+FFFF, which begin with 0xef.
    if !text
        .bytes()
        .any(|b| b < 0x20 || matches!(b, 0x7f | 0xc2 | 0xef))
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{fffe}' | '\u{ffff}' => shown.push('\u{fffd}'),
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// A cell that Markdown shows as it is.
pub(crate) fn markdown_cell(text: &str) -> String {
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
        assert_eq!(printable("\u{ffff}é"), "\u{fffd}é");
        let mut odd = Table::new(&[("a\nb", Align::Right), ("\u{1b}[31m", Align::Left)]);
        odd.row(vec!["1".into(), "2".into()]);
        assert_eq!(
            odd.render(&Style::default()).unwrap(),
            "a\\nb  \\u{1b}[31m\n   1  2\n"
        );
        assert_eq!(markdown_cell("f<T>(a|b)"), "f\\<T\\>(a\\|b)");
        let mut table = Table::new(&[("n", Align::Right), ("name", Align::Left)]);
        table.row(vec!["1".into(), "a,\"b\"".into()]);
        let csv = Style {
            format: Format::Csv,
            ..Style::default()
        };
        assert_eq!(table.render(&csv).unwrap(), "n,name\n1,\"a,\"\"b\"\"\"\n");
        assert_eq!(
            table.render(&Style::default()).unwrap(),
            "n  name\n1  a,\"b\"\n"
        );
    }
}

//! Tables as text, CSV and Markdown. Their look is decided only in this file.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::error::ReportError;
use crate::style::{DEFAULT_COLUMNS, ReportFormat, ReportStyle};
pub(crate) use heapprof_text::printable;
use heapprof_text::{ControlReplacement, EscapingWriter, cut, fold_words};

/// Least number of terminal columns of a text that is cut.
pub(crate) const MIN_CUT_COLUMNS: usize = 12;

/// The alignment of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnAlign {
    Left,
    Right,
}

/// A table of texts. Numbers are texts already.
#[derive(Debug, Default)]
pub(crate) struct ReportTable {
    columns: Vec<(String, ColumnAlign)>,
    rows: Vec<Vec<String>>,
    /// The colour of each row, if it has one.
    tints: Vec<Option<RowTint>>,
    /// Whether the last column has words, which may take several lines.
    is_folding_last: bool,
}

/// The meaning of the colour of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowTint {
    /// The value grew: orange.
    Grown,
    /// The value shrank: blue.
    Shrunk,
}

impl ReportTable {
    pub(crate) fn new(columns: &[(&str, ColumnAlign)]) -> Self {
        Self {
            columns: columns
                .iter()
                .map(|(name, align)| (name.to_string(), *align))
                .collect(),
            ..Self::default()
        }
    }

    pub(crate) fn column(&mut self, name: impl Into<String>, align: ColumnAlign) {
        self.columns.push((name.into(), align));
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.tinted_row(cells, None);
    }

    pub(crate) fn tinted_row(&mut self, cells: Vec<String>, tint: Option<RowTint>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
        self.tints.push(tint);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table below its title, as a section of a report: an empty line, the title, rows.
    pub(crate) fn render_titled(
        &self,
        title: &str,
        style: &ReportStyle,
    ) -> Result<String, ReportError> {
        // Markdown needs an empty line before a table.
        let gap = if style.format == ReportFormat::Markdown {
            "\n"
        } else {
            ""
        };
        Ok(format!("\n{title}\n{gap}{}", self.render(style)?))
    }

    /// Renders the table in the style's format. For `Json`, the table is rendered as CSV, because
    /// tables have no form in JSON.
    pub(crate) fn render(&self, style: &ReportStyle) -> Result<String, ReportError> {
        let mut bytes = Vec::new();
        match style.format {
            ReportFormat::Text => {
                let fitted = style.width.map(|width| self.fitted(width));
                let table = fitted.as_ref().unwrap_or(self);
                let widths = table.widths();
                let mut line = TableLine::default();
                table.names(&widths, style.color, &mut line, &mut bytes)?;
                for (row, tint) in table.rows.iter().zip(&table.tints) {
                    let paint = match (style.color, tint) {
                        (true, Some(RowTint::Grown)) => "\u{1b}[38;5;208m",
                        (true, Some(RowTint::Shrunk)) => "\u{1b}[38;5;75m",
                        _ => "",
                    };
                    let cells = row.iter().map(String::as_str);
                    line.write(cells, &widths, &self.columns, paint, &mut bytes)?;
                }
            }
            format => self.write_rows(format, self.rows.iter(), &mut bytes)?,
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes the table with the given rows instead of its own, so that the rows need not be in
    /// memory all at once. `rows` passes the rows one by one.
    ///
    /// For text, `rows` is called twice, because the widths of the columns are measured first. In
    /// the first call, the last column may stay empty, and the rows may come in any order.
    pub(crate) fn stream<R>(
        &self,
        style: &ReportStyle,
        out: &mut dyn Write,
        mut rows: R,
    ) -> Result<(), ReportError>
    where
        R: FnMut(
            RowPass,
            &mut dyn FnMut(&RowCells) -> Result<(), ReportError>,
        ) -> Result<(), ReportError>,
    {
        match style.format {
            ReportFormat::Text => {
                let mut widths = self.widths();
                rows(RowPass::Widths, &mut |row| {
                    self.widen(&mut widths, row.iter());
                    Ok(())
                })?;
                let mut line = TableLine::default();
                self.names(&widths, style.color, &mut line, out)?;
                let (_, others) = widths.split_last().unwrap_or((&0, &[]));
                let taken = others.iter().map(|width| width + 2).sum();
                rows(
                    RowPass::Rows(style.columns().saturating_sub(taken)),
                    &mut |row| Ok(line.write(row.iter(), &widths, &self.columns, "", out)?),
                )
            }
            ReportFormat::Markdown => {
                self.markdown_names(out)?;
                rows(RowPass::Rows(DEFAULT_COLUMNS), &mut |row| {
                    Ok(markdown_row(row.iter(), out)?)
                })
            }
            _ => {
                let mut writer = self.csv_names(out)?;
                rows(RowPass::Rows(DEFAULT_COLUMNS), &mut |row| {
                    Ok(writer.write_record(row.iter())?)
                })?;
                Ok(writer.flush()?)
            }
        }
    }

    /// Writes the table with the given rows instead of its own, as Markdown or CSV. These formats
    /// have no column widths, so the rows need not be in memory all at once.
    pub(crate) fn write_rows(
        &self,
        format: ReportFormat,
        rows: impl Iterator<Item = impl AsRef<[String]>>,
        out: &mut dyn Write,
    ) -> Result<(), ReportError> {
        match format {
            ReportFormat::Markdown => {
                self.markdown_names(out)?;
                for row in rows {
                    markdown_row(row.as_ref().iter().map(String::as_str), out)?;
                }
            }
            _ => {
                let mut writer = self.csv_names(out)?;
                for row in rows {
                    writer.write_record(row.as_ref())?;
                }
                writer.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the table as text, with more lines below each row in the last column. `beneath` gets
    /// the number of a row and passes the lines below the row. The lines must be printable, as
    /// [`printable`] makes them, and need not be in memory all at once.
    pub(crate) fn write_text(
        &self,
        color: bool,
        out: &mut dyn Write,
        mut beneath: impl FnMut(usize, &mut dyn FnMut(&str) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        let widths = self.widths();
        let mut line = TableLine::default();
        self.names(&widths, color, &mut line, out)?;
        let before = widths.iter().take(widths.len() - 1).map(|w| w + 2).sum();
        let blanks = " ".repeat(before);
        for (at, row) in self.rows.iter().enumerate() {
            let cells = row.iter().map(String::as_str);
            line.write(cells, &widths, &self.columns, "", out)?;
            beneath(at, &mut |cell| {
                if !cell.is_empty() {
                    out.write_all(blanks.as_bytes())?;
                    out.write_all(cell.as_bytes())?;
                }
                out.write_all(b"\n")
            })?;
        }
        Ok(())
    }

    /// Removes the columns for which `kept` is false.
    pub(crate) fn keep_columns(&mut self, kept: &[bool]) {
        fn keep<T>(cells: &mut Vec<T>, kept: &[bool]) {
            let mut kept = kept.iter();
            cells.retain(|_| kept.next().copied().unwrap_or(true));
        }
        keep(&mut self.columns, kept);
        for row in &mut self.rows {
            keep(row, kept);
        }
    }

    /// Adds a last column whose cells are cut to `width`.
    pub(crate) fn append(&mut self, name: &'static str, cells: Vec<String>, width: usize) {
        self.column(name, ColumnAlign::Left);
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            row.push(cell);
        }
        self.cut_last(width);
    }

    /// Cuts the cells of the last column that are wider than `width`.
    pub(crate) fn cut_last(&mut self, width: usize) {
        for cell in self.rows.iter_mut().filter_map(|row| row.last_mut()) {
            let shown = printable(cell);
            if shown.width() <= width {
                continue;
            }
            let mut left = width.saturating_sub(1);
            let fits = |c: &char| {
                let wide = c.width().unwrap_or(0);
                let fits = wide <= left;
                left = left.saturating_sub(wide);
                fits
            };
            let cut: String = shown.chars().take_while(fits).collect();
            *cell = cut + "…";
        }
    }

    /// Replaces the cells of the last column, row by row.
    pub(crate) fn set_last(&mut self, cells: impl IntoIterator<Item = String>) {
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            if let Some(last) = row.last_mut() {
                *last = cell;
            }
        }
    }

    /// Returns the number of terminal columns to the left of the last table column.
    pub(crate) fn width_of_others(&self) -> usize {
        let widths = self.widths();
        let others = widths.split_last().map_or(&[][..], |(_, others)| others);
        others.iter().map(|width| width + 2).sum()
    }

    /// Returns the width of all columns and the space between them.
    pub(crate) fn width(&self) -> usize {
        self.width_of_others() + self.last_width()
    }

    /// Returns the width, on a terminal, of the widest cell of the last column, including the
    /// column's name.
    pub(crate) fn last_width(&self) -> usize {
        let name = self.columns.last().map(|(name, _)| name.as_str());
        let cells = self.rows.iter().filter_map(|row| row.last());
        let cells = name.into_iter().chain(cells.map(String::as_str));
        let widths = cells.map(|cell| width(&printable(cell)));
        widths.max().unwrap_or(0)
    }

    /// Returns the width, on a terminal, of the widest cell of each column. A left-aligned last
    /// column counts with its name only.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let names = self.columns.iter();
        let mut widths: Vec<usize> = names.map(|(name, _)| width(&printable(name))).collect();
        for row in &self.rows {
            self.widen(&mut widths, row.iter().map(String::as_str));
        }
        widths
    }

    /// Makes the table show the words of its last column on several lines, if they do not fit one.
    pub(crate) fn folding_last(mut self) -> Self {
        self.is_folding_last = true;
        self
    }

    /// Returns the table with texts that are cut or folded so that it fits `columns`. Numbers are
    /// never cut, and no text is cut below [`MIN_CUT_COLUMNS`].
    fn fitted(&self, columns: usize) -> Self {
        let mut table = Self {
            columns: self.columns.clone(),
            rows: self.rows.clone(),
            tints: self.tints.clone(),
            is_folding_last: self.is_folding_last,
        };
        if table.is_folding_last {
            table.fold_last(columns);
        }
        let mut widths = table.widths();
        if let Some(last) = widths.last_mut() {
            *last = table.last_width();
        }
        let least: Vec<usize> = table
            .columns
            .iter()
            .map(|(name, _)| MIN_CUT_COLUMNS.max(width(&printable(name))))
            .collect();
        loop {
            let taken: usize = widths.iter().map(|width| width + 2).sum();
            let excess = taken.saturating_sub(2 + columns);
            let texts = (0..widths.len())
                .filter(|&at| table.columns[at].1 == ColumnAlign::Left && widths[at] > least[at]);
            let (1.., Some(widest)) = (excess, texts.max_by_key(|&at| widths[at])) else {
                return table;
            };
            let left = widths[widest].saturating_sub(excess).max(least[widest]);
            for cell in table.rows.iter_mut().filter_map(|row| row.get_mut(widest)) {
                *cell = cut(&printable(cell), left);
            }
            widths[widest] = left;
        }
    }

    /// Folds the words of the last column, so that the table fits `columns`.
    fn fold_last(&mut self, columns: usize) {
        let left = columns
            .saturating_sub(self.width_of_others())
            .max(MIN_CUT_COLUMNS);
        let (rows, tints) = (
            std::mem::take(&mut self.rows),
            std::mem::take(&mut self.tints),
        );
        for (mut row, tint) in rows.into_iter().zip(tints) {
            let words = row.pop().unwrap_or_default();
            let mut lines = fold_words(&printable(&words), left).into_iter();
            let others = row.len();
            row.push(lines.next().unwrap_or_default());
            self.tinted_row(row, tint);
            for line in lines {
                let mut row = vec![String::new(); others];
                row.push(line);
                self.tinted_row(row, tint);
            }
        }
    }

    /// Removes columns until the table fits `columns`, in the order of their `names`. Returns the
    /// names of the columns that were removed.
    pub(crate) fn drop_columns<'n>(&mut self, columns: usize, names: &[&'n str]) -> Vec<&'n str> {
        let mut dropped = Vec::new();
        for name in names {
            if self.width() <= columns {
                break;
            }
            let kept: Vec<bool> = self.columns.iter().map(|(own, _)| own != name).collect();
            if kept.contains(&false) {
                self.keep_columns(&kept);
                dropped.push(*name);
            }
        }
        dropped
    }

    /// Widens columns so that the cells of a row fit.
    fn widen<'c>(&self, widths: &mut [usize], row: impl Iterator<Item = &'c str>) {
        let last = self.columns.len() - 1;
        for (at, cell) in row.enumerate() {
            // Nothing is to the right of the last column, so its width does not matter if it is
            // left-aligned.
            if at < last || self.columns[at].1 == ColumnAlign::Right {
                widths[at] = widths[at].max(width(&printable(cell)));
            }
        }
    }

    /// Writes the line with the names of the columns.
    fn names(
        &self,
        widths: &[usize],
        color: bool,
        line: &mut TableLine,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let names = self.columns.iter().map(|(name, _)| name.as_str());
        let paint = if color { "\u{1b}[1m" } else { "" };
        line.write(names, widths, &self.columns, paint, out)
    }

    fn markdown_names(&self, out: &mut dyn Write) -> io::Result<()> {
        markdown_row(self.columns.iter().map(|(name, _)| name.as_str()), out)?;
        let aligns = self.columns.iter().map(|(_, align)| match align {
            ColumnAlign::Left => ":---",
            ColumnAlign::Right => "---:",
        });
        writeln!(out, "| {} |", aligns.collect::<Vec<_>>().join(" | "))
    }

    fn csv_names<'o>(
        &self,
        out: &'o mut dyn Write,
    ) -> Result<csv::Writer<EscapingWriter<&'o mut dyn Write>>, ReportError> {
        let mut writer =
            csv::Writer::from_writer(EscapingWriter::new(out, ControlReplacement::Replacement));
        writer.write_record(self.columns.iter().map(|(name, _)| name))?;
        Ok(writer)
    }
}

/// The purpose for which rows are passed to [`ReportTable::stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowPass {
    /// To measure the widths of the columns, except the last one.
    Widths,
    /// To write the rows. In text, the number is the remaining width for the last column.
    Rows(usize),
}

/// The cells of a row, one after the other in one text. The memory is reused for the next row.
#[derive(Debug, Default)]
pub(crate) struct RowCells {
    text: String,
    end: Vec<usize>,
}

impl RowCells {
    /// Begins a new row.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.end.clear();
    }

    /// Adds a cell.
    pub(crate) fn push(&mut self, cell: &str) {
        self.make(|text| text.push_str(cell));
    }

    /// Adds cells.
    pub(crate) fn extend<'c>(&mut self, cells: impl IntoIterator<Item = &'c str>) {
        cells.into_iter().for_each(|cell| self.push(cell));
    }

    /// Adds a cell. `make` appends the text of the cell to the text that it gets.
    pub(crate) fn make(&mut self, make: impl FnOnce(&mut String)) {
        make(&mut self.text);
        self.end.push(self.text.len());
    }

    /// Returns the cells.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.end.iter().map(move |&end| {
            let cell = &self.text[start..end];
            start = end;
            cell
        })
    }
}

/// A line of text that is being built.
#[derive(Default)]
struct TableLine(String);

impl TableLine {
    /// Writes cells with these widths, two blanks apart.
    fn write<'c>(
        &mut self,
        cells: impl Iterator<Item = &'c str>,
        widths: &[usize],
        columns: &[(String, ColumnAlign)],
        paint: &str,
        out: &mut (impl Write + ?Sized),
    ) -> io::Result<()> {
        let text = &mut self.0;
        text.clear();
        text.push_str(paint);
        let start = text.len();
        for (at, cell) in cells.enumerate() {
            let cell = printable(cell);
            let last = at + 1 == widths.len();
            let align = columns[at].1;
            if at > 0 {
                text.push_str("  ");
            }
            // Nothing is to the right of the last column, so no blanks are needed after it.
            let blanks = match last && align == ColumnAlign::Left {
                true => 0,
                false => widths[at].saturating_sub(width(&cell)),
            };
            if align == ColumnAlign::Right {
                text.extend(std::iter::repeat_n(' ', blanks));
            }
            text.push_str(&cell);
            if align == ColumnAlign::Left {
                text.extend(std::iter::repeat_n(' ', blanks));
            }
        }
        text.truncate(start + text[start..].trim_end().len());
        text.push_str(if paint.is_empty() {
            "\n"
        } else {
            "\u{1b}[0m\n"
        });
        out.write_all(text.as_bytes())
    }
}

/// Returns the width of a text on a terminal.
fn width(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.width(),
    }
}

fn markdown_row<'c>(
    cells: impl Iterator<Item = &'c str>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let cells = cells.map(markdown_cell);
    writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "))
}

/// Returns a text as a cell that Markdown shows unchanged.
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
        let mut odd = ReportTable::new(&[
            ("a\nb", ColumnAlign::Right),
            ("\u{1b}[31m", ColumnAlign::Left),
        ]);
        odd.row(vec!["1".into(), "2".into()]);
        assert_eq!(
            odd.render(&ReportStyle::default()).unwrap(),
            "a\\nb  \\u{1b}[31m\n   1  2\n"
        );
        assert_eq!(markdown_cell("f<T>(a|b)"), "f\\<T\\>(a\\|b)");
        let mut table = ReportTable::new(&[("n", ColumnAlign::Right), ("name", ColumnAlign::Left)]);
        table.row(vec!["1".into(), "a,\"b\"".into()]);
        let csv = ReportStyle {
            format: ReportFormat::Csv,
            ..ReportStyle::default()
        };
        assert_eq!(table.render(&csv).unwrap(), "n,name\n1,\"a,\"\"b\"\"\"\n");
        assert_eq!(
            table.render(&ReportStyle::default()).unwrap(),
            "n  name\n1  a,\"b\"\n"
        );
    }
}

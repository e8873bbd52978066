//! The report `sql`: the result of a statement.

use std::io::{BufReader, Read, Seek, Write};

use heapprof_analysis::statement::{ResultTable, SqlValue as Cell, UserStatement};
use serde::ser::{Serialize, SerializeMap, Serializer};
use tempfile::SpooledTempFile;

use crate::error::ReportError;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, RowCells};
use heapprof_text::push_whole;
use heapprof_text::{ControlReplacement, EscapingWriter};

/// Largest number of bytes of rows that a [`RowSpool`] keeps in memory. If there are more, all rows
/// are kept on disk.
const MAX_SPOOL_MEMORY_BYTES: usize = 16 << 20;

/// A result whose rows come one by one.
trait RowSource {
    fn columns(&self) -> &[String];

    fn each(
        &mut self,
        each: &mut dyn FnMut(&[Cell]) -> Result<(), ReportError>,
    ) -> Result<(), ReportError>;
}

impl RowSource for UserStatement<'_> {
    fn columns(&self) -> &[String] {
        Self::columns(self)
    }

    fn each(
        &mut self,
        each: &mut dyn FnMut(&[Cell]) -> Result<(), ReportError>,
    ) -> Result<(), ReportError> {
        Self::each(self, each)
    }
}

impl RowSource for &ResultTable {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn each(
        &mut self,
        each: &mut dyn FnMut(&[Cell]) -> Result<(), ReportError>,
    ) -> Result<(), ReportError> {
        self.rows.iter().try_for_each(|row| each(row))
    }
}

/// Writes a statement's result row by row. JSON is a list of objects.
pub fn result_table(
    statement: &mut UserStatement<'_>,
    style: &ReportStyle,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    write_rows(statement, style, out)
}

/// Writes a result that another engine returned, as [`result_table`] does.
pub fn write_result_table(
    answer: &ResultTable,
    format: ReportFormat,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let style = ReportStyle {
        format,
        ..ReportStyle::default()
    };
    let mut answer = answer;
    write_rows(&mut answer, &style, out)
}

fn write_rows(
    statement: &mut dyn RowSource,
    style: &ReportStyle,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let columns = statement.columns().to_vec();
    match style.format {
        ReportFormat::Json => json(statement, &distinct_names(&columns), out),
        // CSV does not align its columns.
        ReportFormat::Csv => {
            let mut table = ReportTable::default();
            columns
                .iter()
                .for_each(|name| table.column(name, ColumnAlign::Left));
            let mut cells = RowCells::default();
            table.stream(style, out, |_, each| {
                statement.each(&mut |row| {
                    cells.clear();
                    row.iter().for_each(|cell| cells.make(|to| push(cell, to)));
                    each(&cells)
                })
            })
        }
        // The alignment of the columns is known only at the end. The statement is not run twice,
        // because it might give other rows.
        ReportFormat::Text | ReportFormat::Markdown => {
            let mut spool = RowSpool::new();
            let mut numbers = vec![true; columns.len()];
            let mut cells = RowCells::default();
            statement.each(&mut |row| {
                cells.clear();
                for (cell, number) in row.iter().zip(&mut numbers) {
                    *number &= !matches!(cell, Cell::Text(_) | Cell::Blob(_));
                    cells.make(|text| push(cell, text));
                }
                spool.write(&cells)
            })?;
            let mut table = ReportTable::default();
            for (name, number) in columns.iter().zip(numbers) {
                table.column(
                    name,
                    if number {
                        ColumnAlign::Right
                    } else {
                        ColumnAlign::Left
                    },
                );
            }
            table.stream(style, out, |_, each| spool.each(columns.len(), each))
        }
    }
}

fn json(
    statement: &mut dyn RowSource,
    names: &[String],
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let out = &mut EscapingWriter::new(out, ControlReplacement::Json);
    // The separator is written with the first row, so that nothing is written for a statement that
    // fails at once.
    let mut separator = "[";
    statement.each(&mut |row| -> Result<(), ReportError> {
        out.write_all(separator.as_bytes())?;
        separator = ",";
        Ok(serde_json::to_writer(
            &mut *out,
            &JsonRowObject { names, row },
        )?)
    })?;
    let is_empty = separator == "[";
    out.write_all(if is_empty { b"[]\n" } else { b"]\n" })?;
    Ok(out.flush()?)
}

struct JsonRowObject<'a> {
    names: &'a [String],
    row: &'a [Cell],
}

impl Serialize for JsonRowObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.names.len()))?;
        for (name, cell) in self.names.iter().zip(self.row) {
            match cell {
                Cell::Null => object.serialize_entry(name, &())?,
                Cell::Int(number) => object.serialize_entry(name, number)?,
                Cell::Real(number) => object.serialize_entry(name, number)?,
                Cell::Text(text) => object.serialize_entry(name, text)?,
                Cell::Blob(_) => {
                    let mut text = String::new();
                    push(cell, &mut text);
                    object.serialize_entry(name, &text)?;
                }
            }
        }
        object.end()
    }
}

/// Rows that are written once and read after all widths are known. They are on disk if there are
/// many.
struct RowSpool {
    file: SpooledTempFile,
    buffer: Vec<u8>,
}

impl RowSpool {
    fn new() -> Self {
        Self {
            file: SpooledTempFile::new(MAX_SPOOL_MEMORY_BYTES),
            buffer: Vec::new(),
        }
    }

    fn write(&mut self, cells: &RowCells) -> Result<(), ReportError> {
        for cell in cells.iter() {
            self.buffer.extend_from_slice(&cell.len().to_le_bytes());
            self.buffer.extend_from_slice(cell.as_bytes());
        }
        if self.buffer.len() >= 1 << 16 {
            self.file.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn each(
        &mut self,
        columns: usize,
        each: &mut dyn FnMut(&RowCells) -> Result<(), ReportError>,
    ) -> Result<(), ReportError> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        self.file.rewind()?;
        let mut reader = BufReader::with_capacity(1 << 16, &mut self.file);
        let (mut cells, mut cell) = (RowCells::default(), Vec::new());
        let mut length = [0; size_of::<usize>()];
        loop {
            cells.clear();
            for column in 0..columns {
                match reader.read_exact(&mut length) {
                    Err(error)
                        if column == 0 && error.kind() == std::io::ErrorKind::UnexpectedEof =>
                    {
                        return Ok(());
                    }
                    read => read?,
                }
                cell.resize(usize::from_le_bytes(length), 0);
                reader.read_exact(&mut cell)?;
                cells.push(&String::from_utf8_lossy(&cell));
            }
            each(&cells)?;
        }
    }
}

/// Returns distinct names for the columns. A second `name` becomes `name_2`, because a JSON object
/// should have each name once.
fn distinct_names(columns: &[String]) -> Vec<String> {
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

fn push(cell: &Cell, text: &mut String) {
    match cell {
        Cell::Null => {}
        Cell::Int(number) => push_whole(i128::from(*number), text),
        Cell::Real(number) => text.push_str(&number.to_string()),
        Cell::Text(cell) => text.push_str(cell),
        Cell::Blob(bytes) => text.extend(bytes.iter().map(|b| format!("{b:02x}"))),
    }
}

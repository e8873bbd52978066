//! `sql`: the result of a statement.

use std::io::{BufReader, Read, Seek, Write};

use heapprof_analysis::{ResultTable, Statement, Value as Cell};
use serde::ser::{Serialize, SerializeMap, Serializer};
use tempfile::SpooledTempFile;

use crate::error::Error;
use crate::style::{Format, Style};
use crate::table::{Align, Cells, Table};
use heapprof_text::push_whole;
use heapprof_text::{Escaping, Stead};

/// Rows that take more bytes than this wait on disk until all widths are known.
const SPOOL: usize = 16 << 20;

/// A result whose rows come one by one.
trait Answer {
    fn columns(&self) -> &[String];

    fn each(&mut self, each: &mut dyn FnMut(&[Cell]) -> Result<(), Error>) -> Result<(), Error>;
}

impl Answer for Statement<'_> {
    fn columns(&self) -> &[String] {
        Self::columns(self)
    }

    fn each(&mut self, each: &mut dyn FnMut(&[Cell]) -> Result<(), Error>) -> Result<(), Error> {
        Self::each(self, each)
    }
}

impl Answer for &ResultTable {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn each(&mut self, each: &mut dyn FnMut(&[Cell]) -> Result<(), Error>) -> Result<(), Error> {
        self.rows.iter().try_for_each(|row| each(row))
    }
}

/// Writes a statement's result row by row; JSON is a list of objects.
pub fn result_table(
    statement: &mut Statement<'_>,
    style: &Style,
    out: &mut dyn Write,
) -> Result<(), Error> {
    written(statement, style, out)
}

/// Does the same with a result that another engine gave.
pub fn answered(answer: &ResultTable, format: Format, out: &mut dyn Write) -> Result<(), Error> {
    let style = Style {
        format,
        ..Style::default()
    };
    let mut answer = answer;
    written(&mut answer, &style, out)
}

fn written(statement: &mut dyn Answer, style: &Style, out: &mut dyn Write) -> Result<(), Error> {
    let columns = statement.columns().to_vec();
    match style.format {
        Format::Json => json(statement, &distinct(&columns), out),
        // CSV does not align its columns.
        Format::Csv => {
            let mut table = Table::default();
            columns
                .iter()
                .for_each(|name| table.column(name, Align::Left));
            let mut cells = Cells::default();
            table.stream(style, out, |_, each| {
                statement.each(&mut |row| {
                    cells.clear();
                    row.iter().for_each(|cell| cells.make(|to| push(cell, to)));
                    each(&cells)
                })
            })
        }
        // The alignment of the columns is known only at the end, and running the statement twice
        // might give other rows.
        Format::Text | Format::Markdown => {
            let mut spool = Spool::new();
            let mut numbers = vec![true; columns.len()];
            let mut cells = Cells::default();
            statement.each(&mut |row| {
                cells.clear();
                for (cell, number) in row.iter().zip(&mut numbers) {
                    *number &= !matches!(cell, Cell::Text(_) | Cell::Blob(_));
                    cells.make(|text| push(cell, text));
                }
                spool.write(&cells)
            })?;
            let mut table = Table::default();
            for (name, number) in columns.iter().zip(numbers) {
                table.column(name, if number { Align::Right } else { Align::Left });
            }
            table.stream(style, out, |_, each| spool.each(columns.len(), each))
        }
    }
}

fn json(statement: &mut dyn Answer, names: &[String], out: &mut dyn Write) -> Result<(), Error> {
    let out = &mut Escaping::new(out, Stead::Json);
    // Nothing is written for a statement that fails at once.
    let mut separator = "[";
    statement.each(&mut |row| -> Result<(), Error> {
        out.write_all(separator.as_bytes())?;
        separator = ",";
        Ok(serde_json::to_writer(&mut *out, &Object { names, row })?)
    })?;
    let is_empty = separator == "[";
    out.write_all(if is_empty { b"[]\n" } else { b"]\n" })?;
    Ok(out.flush()?)
}

struct Object<'a> {
    names: &'a [String],
    row: &'a [Cell],
}

impl Serialize for Object<'_> {
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

/// Rows that are made once and read twice. They are on disk if there are many.
struct Spool {
    file: SpooledTempFile,
    buffer: Vec<u8>,
}

impl Spool {
    fn new() -> Self {
        Self {
            file: SpooledTempFile::new(SPOOL),
            buffer: Vec::new(),
        }
    }

    fn write(&mut self, cells: &Cells) -> Result<(), Error> {
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
        each: &mut dyn FnMut(&Cells) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        self.file.rewind()?;
        let mut reader = BufReader::with_capacity(1 << 16, &mut self.file);
        let (mut cells, mut cell) = (Cells::default(), Vec::new());
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

/// The columns' names, made distinct. The second `name` is `name_2`, because an object has each
/// name once.
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

fn push(cell: &Cell, text: &mut String) {
    match cell {
        Cell::Null => {}
        Cell::Int(number) => push_whole(i128::from(*number), text),
        Cell::Real(number) => text.push_str(&number.to_string()),
        Cell::Text(cell) => text.push_str(cell),
        Cell::Blob(bytes) => text.extend(bytes.iter().map(|b| format!("{b:02x}"))),
    }
}

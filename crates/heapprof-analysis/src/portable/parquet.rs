//! Tables as files of Parquet.
//!
//! Format: Apache Parquet, by the crates `parquet` and `arrow`. Columns have their plain types (64
//! bits, double, UTF-8), and rows are sorted by the table's key. Pages are packed by zstd.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::ChunkReader;

use super::{Cells, Kind, TableForm};
use crate::error::Error;

/// Rows that are encoded together.
const GROUP: usize = 1 << 20;

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Sql(error.to_string())
}

fn schema(form: &TableForm) -> Arc<Schema> {
    let fields = form.columns.iter().map(|(name, kind)| {
        let (of, may_miss) = match kind {
            Kind::Int => (DataType::Int64, false),
            Kind::MaybeInt => (DataType::Int64, true),
            Kind::MaybeReal => (DataType::Float64, true),
            Kind::Text => (DataType::Utf8, false),
        };
        Field::new(*name, of, may_miss)
    });
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}

/// Writes a table as one file.
///
/// # Errors
/// The file can't be written.
pub fn write_parquet(
    form: &TableForm,
    columns: &[Cells],
    out: impl Write + Send,
) -> Result<(), Error> {
    let schema = schema(form);
    let level = ZstdLevel::try_new(3).map_err(failed)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(GROUP))
        .build();
    let mut writer =
        ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties)).map_err(failed)?;
    let arrays = columns.iter().map(|cells| -> ArrayRef {
        match cells {
            Cells::Int(cells) => Arc::new(Int64Array::from(cells.clone())),
            Cells::MaybeInt(cells) => Arc::new(Int64Array::from(cells.clone())),
            Cells::MaybeReal(cells) => Arc::new(Float64Array::from(cells.clone())),
            Cells::Text(cells) => Arc::new(StringArray::from_iter_values(cells)),
        }
    });
    let batch = RecordBatch::try_new(schema, arrays.collect()).map_err(failed)?;
    writer.write(&batch).map_err(failed)?;
    writer.close().map_err(failed)?;
    Ok(())
}

/// Reads a table from a file.
///
/// # Errors
/// The file is no Parquet, or no such table.
pub fn read_parquet(
    form: &TableForm,
    file: impl ChunkReader + 'static,
) -> Result<Vec<Cells>, Error> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(failed)?;
    let wrong = |what: String| Error::Sql(format!("is not the table {} : {what}", form.name));
    let found = builder.schema();
    for (field, wanted) in found.fields().iter().zip(schema(form).fields()) {
        if field.name() != wanted.name() || field.data_type() != wanted.data_type() {
            return Err(wrong(format!("it has the column {}", field.name())));
        }
    }
    if found.fields().len() != form.columns.len() {
        return Err(wrong(format!("it has {} columns", found.fields().len())));
    }
    let mut columns: Vec<Cells> = form
        .columns
        .iter()
        .map(|(_, kind)| Cells::none(*kind))
        .collect();
    for batch in builder.build().map_err(failed)? {
        let batch = batch.map_err(failed)?;
        for ((column, cells), (name, _)) in
            batch.columns().iter().zip(&mut columns).zip(form.columns)
        {
            let missing = || wrong(format!("a value of {name} is missing"));
            match cells {
                Cells::Int(cells) => {
                    if column.null_count() > 0 {
                        return Err(missing());
                    }
                    cells.extend(column.as_primitive::<Int64Type>().values());
                }
                Cells::MaybeInt(cells) => {
                    cells.extend(column.as_primitive::<Int64Type>().iter());
                }
                Cells::MaybeReal(cells) => {
                    cells.extend(column.as_primitive::<Float64Type>().iter());
                }
                Cells::Text(cells) => {
                    let texts = column.as_string::<i32>().iter();
                    let texts = texts.map(|text| text.map(str::to_string).ok_or_else(missing));
                    cells.extend(texts.collect::<Result<Vec<String>, Error>>()?);
                }
            }
        }
    }
    Ok(columns)
}

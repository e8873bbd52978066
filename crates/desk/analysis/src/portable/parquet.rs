//! The portable tables as Parquet files.
//!
//! Format: Apache Parquet, by the crates `parquet` and `arrow`. Columns have their plain types (64
//! bits, double, UTF-8), and rows are sorted by the table's key. Pages are compressed with zstd.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::ChunkReader;

use super::{ColumnKind, ColumnValues, TableForm};
use crate::error::AnalysisError;

/// Maximum number of rows in a row group.
const MAX_ROW_GROUP_ROWS: usize = 1 << 20;

fn parquet_error(error: impl std::fmt::Display) -> AnalysisError {
    AnalysisError::Sql(error.to_string())
}

fn schema(form: &TableForm) -> Arc<Schema> {
    let fields = form.columns.iter().map(|(name, kind)| {
        let (of, may_miss) = match kind {
            ColumnKind::Int => (DataType::Int64, false),
            ColumnKind::MaybeInt => (DataType::Int64, true),
            ColumnKind::MaybeReal => (DataType::Float64, true),
            ColumnKind::Text => (DataType::Utf8, false),
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
    columns: &[ColumnValues],
    out: impl Write + Send,
) -> Result<(), AnalysisError> {
    let schema = schema(form);
    let level = ZstdLevel::try_new(3).map_err(parquet_error)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(MAX_ROW_GROUP_ROWS))
        .build();
    let mut writer =
        ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties)).map_err(parquet_error)?;
    let arrays = columns.iter().map(|cells| -> ArrayRef {
        match cells {
            ColumnValues::Int(cells) => Arc::new(Int64Array::from(cells.clone())),
            ColumnValues::MaybeInt(cells) => Arc::new(Int64Array::from(cells.clone())),
            ColumnValues::MaybeReal(cells) => Arc::new(Float64Array::from(cells.clone())),
            ColumnValues::Text(cells) => Arc::new(StringArray::from_iter_values(cells)),
        }
    });
    let batch = RecordBatch::try_new(schema, arrays.collect()).map_err(parquet_error)?;
    writer.write(&batch).map_err(parquet_error)?;
    writer.close().map_err(parquet_error)?;
    Ok(())
}

/// Whether the bytes of every column lie within a file of `bytes` bytes. If not, the library would
/// panic.
fn are_in_file(metadata: &ParquetMetaData, bytes: u64) -> bool {
    let mut columns = metadata
        .row_groups()
        .iter()
        .flat_map(|group| group.columns());
    columns.all(|column| {
        let data = column.data_page_offset();
        let dictionary = column.dictionary_page_offset().unwrap_or(data);
        let sizes = [
            data,
            dictionary,
            column.compressed_size(),
            column.uncompressed_size(),
        ];
        let begin = data.min(dictionary).unsigned_abs();
        let end = begin.checked_add(column.compressed_size().unsigned_abs());
        sizes.iter().all(|&size| size >= 0) && end.is_some_and(|end| end <= bytes)
    })
}

/// Number of rows that even the smallest file may have.
const MIN_ROW_LIMIT: u64 = 1_000_000;
/// Number of additional rows that a file may have for each byte of its size. The tables that
/// heapprof writes have less than 1 row per byte.
const MAX_ROWS_PER_BYTE: u64 = 16;

/// Reads a table from a file.
///
/// # Errors
/// The file is no Parquet file, or it is another table.
///
/// # Panics
/// The library panics on some damaged pages.
pub fn read_parquet(
    form: &TableForm,
    file: impl ChunkReader + 'static,
) -> Result<Vec<ColumnValues>, AnalysisError> {
    let bytes = file.len();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(parquet_error)?;
    let wrong =
        |what: String| AnalysisError::Sql(format!("is not the table {}: {what}", form.name));
    // Repeated values take almost no space, so a small file may claim to have any number of rows.
    let rows = builder.metadata().file_metadata().num_rows().unsigned_abs();
    if rows > MIN_ROW_LIMIT.saturating_add(bytes.saturating_mul(MAX_ROWS_PER_BYTE)) {
        return Err(wrong(format!(
            "a file of {bytes} bytes cannot have {rows} rows"
        )));
    }
    if !are_in_file(builder.metadata(), bytes) {
        return Err(wrong("a column of it lies outside of the file".to_string()));
    }
    let found = builder.schema();
    for (field, wanted) in found.fields().iter().zip(schema(form).fields()) {
        if field.name() != wanted.name() || field.data_type() != wanted.data_type() {
            return Err(wrong(format!("it has the column {}", field.name())));
        }
    }
    if found.fields().len() != form.columns.len() {
        return Err(wrong(format!("it has {} columns", found.fields().len())));
    }
    let mut columns: Vec<ColumnValues> = form
        .columns
        .iter()
        .map(|(_, kind)| ColumnValues::empty(*kind))
        .collect();
    for batch in builder.build().map_err(parquet_error)? {
        let batch = batch.map_err(parquet_error)?;
        for ((column, cells), (name, _)) in
            batch.columns().iter().zip(&mut columns).zip(form.columns)
        {
            let missing = || wrong(format!("a value of {name} is missing"));
            match cells {
                ColumnValues::Int(cells) => {
                    if column.null_count() > 0 {
                        return Err(missing());
                    }
                    cells.extend(column.as_primitive::<Int64Type>().values());
                }
                ColumnValues::MaybeInt(cells) => {
                    cells.extend(column.as_primitive::<Int64Type>().iter());
                }
                ColumnValues::MaybeReal(cells) => {
                    cells.extend(column.as_primitive::<Float64Type>().iter());
                }
                ColumnValues::Text(cells) => {
                    let texts = column.as_string::<i32>().iter();
                    let texts = texts.map(|text| text.map(str::to_string).ok_or_else(missing));
                    cells.extend(texts.collect::<Result<Vec<String>, AnalysisError>>()?);
                }
            }
        }
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::sync::Arc;

    use heapprof_tests::harness::valid;

    use super::super::{PORTABLE_TABLES, PortableBatch};
    use super::*;

    fn file_of(form: &TableForm, columns: &[ColumnValues]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_parquet(form, columns, file.reopen().unwrap()).unwrap();
        file
    }

    #[test]
    fn tables_survive_their_files() {
        for path in valid() {
            let bytes = std::fs::read(&path).unwrap();
            let profile = Arc::new(heapprof_profile::decode(&bytes[..]).unwrap());
            let mut batch = PortableBatch::default();
            batch.add("p", &profile, &BTreeMap::new()).unwrap();
            for (form, columns) in batch.sorted_tables() {
                let file = file_of(form, &columns);
                let read = read_parquet(form, file.reopen().unwrap()).unwrap();
                assert_eq!(read, columns, "{} of {}", form.name, path.display());
            }
        }
    }

    /// Checks that damaged files and other tables cause errors and nothing worse.
    #[test]
    fn other_files_are_refused() {
        let form = PORTABLE_TABLES
            .iter()
            .find(|form| form.name == "sample_type")
            .unwrap();
        let text = |text: &str| ColumnValues::Text(vec![text.to_string()]);
        let columns = [
            ColumnValues::Int(vec![1]),
            text("inuse_space"),
            text("bytes"),
        ];
        let whole = std::fs::read(file_of(form, &columns)).unwrap();
        let read = |bytes: &[u8], form| {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().write_all(bytes).unwrap();
            read_parquet(form, file.reopen().unwrap())
        };
        assert!(read(&whole, form).is_ok());
        for other in PORTABLE_TABLES
            .iter()
            .filter(|other| other.name != form.name)
        {
            assert!(read(&whole, other).is_err(), "{}", other.name);
        }
        for end in 0..whole.len() {
            assert!(read(&whole[..end], form).is_err(), "{end} bytes");
        }
        for (at, by) in (0..whole.len()).flat_map(|at| [1, 0x55, 0x80, 0xff].map(|by| (at, by))) {
            let mut damaged = whole.clone();
            damaged[at] ^= by;
            // The library panics on some pages. Callers that read files of others must expect that.
            let _ = std::panic::catch_unwind(|| read(&damaged, form));
        }
        // A file of a few bytes claims to have many rows.
        let many = vec![7; 3_000_000];
        let repeated = [
            ColumnValues::Int(many.clone()),
            ColumnValues::Int(many.clone()),
            ColumnValues::Int(many),
        ];
        let mapping = PORTABLE_TABLES
            .iter()
            .find(|form| form.name == "profile_mapping")
            .unwrap();
        let error = read_parquet(mapping, file_of(mapping, &repeated).reopen().unwrap());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("rows"), "{error}");
    }
}

//! Stored profiles in Parquet files, read by the engine DataFusion.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::ObjectStore;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use tokio::runtime::Runtime;

use super::engine::{SqlAnswer, SqlEngine};
use super::{PORTABLE_TABLES, TableForm};
use crate::error::AnalysisError;
use crate::statement::SqlValue;

/// The engine DataFusion with the portable tables of several batches.
pub struct DataFusion {
    context: SessionContext,
    runtime: Runtime,
}

fn datafusion_error(error: impl std::fmt::Display) -> AnalysisError {
    AnalysisError::Sql(error.to_string())
}

impl DataFusion {
    /// Opens the portable tables. `files` returns the addresses of a table's files. `objects` is a
    /// store for files that are not on a disk, with the prefix of their addresses.
    ///
    /// # Errors
    /// A file is missing, or is no Parquet file.
    pub fn open(
        files: impl Fn(&TableForm) -> Vec<String>,
        objects: Option<(String, Arc<dyn ObjectStore>)>,
    ) -> Result<Self, AnalysisError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(datafusion_error)?;
        let context = SessionContext::new();
        if let Some((root, store)) = objects {
            let root = ObjectStoreUrl::parse(root).map_err(datafusion_error)?;
            context.register_object_store(root.as_ref(), store);
        }
        runtime.block_on(async {
            for form in &PORTABLE_TABLES {
                let options = ParquetReadOptions::default();
                let table = context.read_parquet(files(form), options).await;
                context
                    .register_table(form.name, table.map_err(datafusion_error)?.into_view())
                    .map_err(datafusion_error)?;
            }
            Ok::<_, AnalysisError>(())
        })?;
        Ok(Self { context, runtime })
    }
}

impl SqlEngine for DataFusion {
    fn table(&self, sql: &str) -> Result<SqlAnswer, AnalysisError> {
        let (names, batches) = self.runtime.block_on(async {
            let answer = self.context.sql(sql).await.map_err(datafusion_error)?;
            let fields = answer.schema().fields().iter();
            let names: Vec<String> = fields.map(|field| field.name().clone()).collect();
            let batches = answer.collect().await.map_err(datafusion_error)?;
            Ok::<_, AnalysisError>((names, batches))
        })?;
        let mut rows = Vec::new();
        for batch in batches {
            let first = rows.len();
            rows.resize_with(first + batch.num_rows(), Vec::new);
            for column in batch.columns() {
                for (row, value) in rows[first..].iter_mut().zip(values(column)?) {
                    row.push(value);
                }
            }
        }
        Ok((names, rows))
    }
}

/// Returns the values of a column.
fn values(column: &dyn Array) -> Result<Vec<SqlValue>, AnalysisError> {
    let or_null = |value: Option<SqlValue>| value.unwrap_or(SqlValue::Null);
    Ok(match column.data_type() {
        DataType::Int64 => {
            let column = column.as_primitive::<Int64Type>().iter();
            column
                .map(|value| or_null(value.map(SqlValue::Int)))
                .collect()
        }
        DataType::Float64 => {
            let column = column.as_primitive::<Float64Type>().iter();
            column
                .map(|value| or_null(value.map(SqlValue::Real)))
                .collect()
        }
        DataType::Utf8 => {
            let column = column.as_string::<i32>().iter();
            column
                .map(|text| or_null(text.map(|t| SqlValue::Text(t.to_string()))))
                .collect()
        }
        DataType::Utf8View => {
            let column = column.as_string_view().iter();
            column
                .map(|text| or_null(text.map(|t| SqlValue::Text(t.to_string()))))
                .collect()
        }
        other => {
            return Err(AnalysisError::Sql(format!(
                "a column of {other} is not known"
            )));
        }
    })
}

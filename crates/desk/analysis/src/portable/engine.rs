//! The trait of SQL engines, and functions that read the cells of their rows.

use foldhash::HashMap;

use crate::error::AnalysisError;
use crate::statement::SqlValue;

/// The names of the columns, and the rows.
pub type SqlAnswer = (Vec<String>, Vec<Vec<SqlValue>>);

/// An engine that has the portable tables.
pub trait SqlEngine {
    /// Runs a statement. All statements of this crate are of one kind: nested SELECTs with one JOIN
    /// each.
    ///
    /// # Errors
    /// The engine can't run the statement; the error says why.
    fn table(&self, sql: &str) -> Result<SqlAnswer, AnalysisError>;

    /// Returns the rows of a statement.
    ///
    /// # Errors
    /// The errors are the same as for [`table`](Self::table).
    fn rows(&self, sql: &str) -> Result<Vec<Vec<SqlValue>>, AnalysisError> {
        Ok(self.table(sql)?.1)
    }
}

/// Returns the name and the unit of each sample type, by the id of the type.
pub(super) fn sample_types(
    engine: &impl SqlEngine,
) -> Result<HashMap<i64, (String, String)>, AnalysisError> {
    let rows = engine.rows("SELECT id, type, unit FROM sample_type")?;
    let each = rows.iter().map(|row| {
        let names = (text_at(row, 1)?.to_string(), text_at(row, 2)?.to_string());
        Ok((int_at(row, 0)?, names))
    });
    each.collect()
}

/// Returns the whole number in column `at` of a row.
pub(super) fn int_at(row: &[SqlValue], at: usize) -> Result<i64, AnalysisError> {
    match row.get(at) {
        Some(SqlValue::Int(value)) => Ok(*value),
        other => Err(AnalysisError::Sql(format!(
            "expected a number, found {other:?}"
        ))),
    }
}

/// Returns the text in column `at` of a row.
pub(super) fn text_at(row: &[SqlValue], at: usize) -> Result<&str, AnalysisError> {
    match row.get(at) {
        Some(SqlValue::Text(value)) => Ok(value),
        other => Err(AnalysisError::Sql(format!(
            "expected a string, found {other:?}"
        ))),
    }
}

/// Returns the spread of a value, from column `samples` and the next column, which has the
/// variance.
pub(super) fn spread_at(row: &[SqlValue], samples: usize) -> Option<(i64, f64)> {
    let variance = samples + 1;
    let samples = match row.get(samples)? {
        SqlValue::Int(samples) => *samples,
        SqlValue::Real(samples) => *samples as i64,
        _ => return None,
    };
    match row.get(variance)? {
        SqlValue::Real(variance) => Some((samples, *variance)),
        SqlValue::Int(variance) => Some((samples, *variance as f64)),
        _ => None,
    }
}

//! What a SQL engine must be able to do, and how the cells of its rows are read.

use crate::error::Error;
use crate::statement::Value;

/// An engine that has the portable tables.
pub trait Engine {
    /// Runs a statement and returns its rows. All statements are of one kind: nested SELECTs with
    /// one JOIN each.
    ///
    /// # Errors
    /// The engine says why it can't.
    fn rows(&self, sql: &str) -> Result<Vec<Vec<Value>>, Error>;
}

/// A whole number of a row.
pub(super) fn int(row: &[Value], at: usize) -> Result<i64, Error> {
    match row.get(at) {
        Some(Value::Int(value)) => Ok(*value),
        other => Err(Error::Sql(format!(
            "{other:?} stands where a number should"
        ))),
    }
}

/// A text of a row.
pub(super) fn text(row: &[Value], at: usize) -> Result<&str, Error> {
    match row.get(at) {
        Some(Value::Text(value)) => Ok(value),
        other => Err(Error::Sql(format!("{other:?} stands where a text should"))),
    }
}

/// What is known of a value, in two columns.
pub(super) fn known(row: &[Value], at: usize) -> Option<(i64, f64)> {
    let samples = match row.get(at)? {
        Value::Int(samples) => *samples,
        Value::Real(samples) => *samples as i64,
        _ => return None,
    };
    match row.get(at + 1)? {
        Value::Real(variance) => Some((samples, *variance)),
        Value::Int(variance) => Some((samples, *variance as f64)),
        _ => None,
    }
}

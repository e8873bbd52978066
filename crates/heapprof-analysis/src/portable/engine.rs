//! What a SQL engine must be able to do, and how the cells of its rows are read.

use foldhash::HashMap;

use crate::error::Error;
use crate::statement::Value;

/// The names of columns, and rows.
pub type Answer = (Vec<String>, Vec<Vec<Value>>);

/// An engine that has the portable tables.
pub trait Engine {
    /// Runs a statement. Ours are all of one kind: nested SELECTs with one JOIN each.
    ///
    /// # Errors
    /// The engine says why it can't.
    fn table(&self, sql: &str) -> Result<Answer, Error>;

    /// The rows that a statement gives.
    ///
    /// # Errors
    /// As for [`table`](Self::table).
    fn rows(&self, sql: &str) -> Result<Vec<Vec<Value>>, Error> {
        Ok(self.table(sql)?.1)
    }
}

/// The sample types by their ids: name and unit.
pub(super) fn sample_types(engine: &impl Engine) -> Result<HashMap<i64, (String, String)>, Error> {
    let rows = engine.rows("SELECT id, type, unit FROM sample_type")?;
    let each = rows.iter().map(|row| {
        let names = (text(row, 1)?.to_string(), text(row, 2)?.to_string());
        Ok((int(row, 0)?, names))
    });
    each.collect()
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

//! A connection that reports read from, with a record of their statements.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Params, Row, StatementStatus};

use crate::error::AnalysisError;
use crate::question::ProfileQuestion;
use crate::relation;
use heapprof_text::similar_names;
use heapprof_totals::estimate::{SumSpread, ValueEstimate, ValueWithSpread};
use heapprof_totals::note::FilterNote;

/// A connection to SQLite from which a report reads its rows. The rows come from virtual tables,
/// which compute them for one question, or from the stored tables of a database.
pub struct AnalysisSession {
    pub(crate) connection: Connection,
    statements: RefCell<Vec<String>>,
    /// The texts of the statements that already ran, so that a statement in a loop is recorded only
    /// once.
    seen: RefCell<HashSet<String>>,
    /// The number of steps that SQLite's virtual machine took for the statements.
    steps: Cell<u64>,
    /// The longest time that a user's statement may run, if it is limited.
    pub(crate) time_limit: Option<Duration>,
    /// The question behind the virtual tables; `None` for a database.
    pub(crate) question: Option<Arc<ProfileQuestion>>,
}

impl AnalysisSession {
    /// Returns the names of functions whose short names may equal the short name of a shown
    /// function. Returns none for a database.
    pub(crate) fn similar_names<'n>(&self, shown: impl Iterator<Item = &'n str>) -> Vec<String> {
        let Some(question) = &self.question else {
            return Vec::new();
        };
        let all = question.table.function.iter();
        let all = all.map(|function| question.table.text(function.name));
        let found = similar_names(shown, all).into_iter();
        found.map(str::to_string).collect()
    }

    /// Opens a session over the virtual tables of a question.
    pub fn new(question: ProfileQuestion) -> Result<Self, AnalysisError> {
        let question = Arc::new(question);
        Ok(Self {
            connection: relation::connect(&question)?,
            statements: RefCell::default(),
            seen: RefCell::default(),
            steps: Cell::default(),
            time_limit: None,
            question: Some(question),
        })
    }

    /// Makes a session over the tables of a database, for statements of users.
    pub(crate) fn over_database(connection: Connection) -> Self {
        Self {
            connection,
            statements: RefCell::default(),
            seen: RefCell::default(),
            steps: Cell::default(),
            time_limit: None,
            question: None,
        }
    }

    /// Returns the question behind the virtual tables.
    ///
    /// # Errors
    /// The session is over a database, so it has no question.
    pub(crate) fn require_question(&self) -> Result<&Arc<ProfileQuestion>, AnalysisError> {
        self.question.as_ref().ok_or(AnalysisError::NoTypes)
    }

    /// Returns the statements that were run. Each is listed once, with the values of its first run
    /// filled in.
    pub fn statements(&self) -> Vec<String> {
        self.statements.borrow().clone()
    }

    /// Returns the number of steps that SQLite took for the statements of reports. Unlike time, it
    /// does not depend on how busy the machine is.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Returns the columns of a table `t` that [`read_estimate`] reads. Their names begin with
    /// `prefix`, which names the value.
    pub(crate) fn estimate_columns(t: &str, prefix: &str) -> String {
        let columns = ["low", "high", "samples"];
        let columns = columns.map(|column| format!("{t}.{prefix}{column}"));
        columns.join(", ")
    }

    /// Returns the columns of a table `t` that [`read_spread`] reads.
    pub(crate) fn spread_columns(t: &str, prefix: &str) -> String {
        let columns = ["samples", "variance"];
        let columns = columns.map(|column| format!("{t}.{prefix}{column}"));
        columns.join(", ")
    }

    /// Runs a statement and maps its rows.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, AnalysisError> {
        Ok(self.query(sql, params, map)?)
    }

    /// Runs a statement and maps its rows, like [`rows`](Self::rows). The error has SQLite's type,
    /// so that the `map` of another statement can return it.
    pub(crate) fn query<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        let mut found = Vec::new();
        self.walk(sql, params, |row| {
            found.push(map(row)?);
            Ok::<_, rusqlite::Error>(())
        })??;
        Ok(found)
    }

    /// Runs a statement and passes its rows to `each` one by one, because there may be too many to
    /// hold in memory.
    pub(crate) fn each<E: From<AnalysisError>>(
        &self,
        sql: &str,
        params: impl Params,
        each: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk(sql, params, each).map_err(AnalysisError::from)?
    }

    /// Runs a statement and passes each row to `each`. The outer error is SQLite's. The inner error
    /// is the first one that `each` returned.
    fn walk<E>(
        &self,
        sql: &str,
        params: impl Params,
        mut each: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> rusqlite::Result<Result<(), E>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        if !self.seen.borrow().contains(sql)
            && let Some(text) = rows.as_ref().and_then(|s| s.expanded_sql())
        {
            self.seen.borrow_mut().insert(sql.to_string());
            self.statements.borrow_mut().push(text);
        }
        let mut found = Ok(());
        while let Some(row) = rows.next()? {
            found = each(row);
            if found.is_err() {
                break;
            }
        }
        drop(rows);
        let steps = statement.reset_status(StatementStatus::VmStep);
        self.steps
            .set(self.steps.get() + u64::from(steps.unsigned_abs()));
        Ok(found)
    }

    /// Returns the notes of the question's filters.
    pub(crate) fn notes(&self) -> Vec<FilterNote> {
        self.question
            .as_ref()
            .map(|q| q.notes())
            .unwrap_or_default()
    }
}

/// The number of columns of [`AnalysisSession::estimate_columns`].
pub(crate) const ESTIMATE_COLUMN_COUNT: usize = 3;
/// The number of columns of [`AnalysisSession::spread_columns`].
pub(crate) const SPREAD_COLUMN_COUNT: usize = 2;

/// Reads an estimate from the columns that begin at `low`; `None` if the value is exact.
pub(crate) fn read_estimate(row: &Row<'_>, low: usize) -> rusqlite::Result<Option<ValueEstimate>> {
    let [high, samples] = [low + 1, low + 2];
    let Some(low) = row.get(low)? else {
        return Ok(None);
    };
    Ok(Some(ValueEstimate {
        low,
        high: row.get(high)?,
        samples: row.get::<_, i64>(samples)?.unsigned_abs(),
    }))
}

/// Reads the spread of a value from the columns that begin at `samples`; `None` if the value is
/// exact.
pub(crate) fn read_spread(row: &Row<'_>, samples: usize) -> rusqlite::Result<Option<SumSpread>> {
    let variance = samples + 1;
    let Some(samples) = row.get::<_, Option<i64>>(samples)? else {
        return Ok(None);
    };
    Ok(Some(SumSpread {
        samples: samples.unsigned_abs(),
        variance: row.get(variance)?,
    }))
}

/// Reads a value and its spread. The columns of the spread follow the column of the value.
pub(crate) fn read_value_with_spread(
    row: &Row<'_>,
    value: usize,
) -> rusqlite::Result<ValueWithSpread> {
    let [samples, variance] = [value + 1, value + 2];
    let samples: Option<i64> = row.get(samples)?;
    let variance: Option<f64> = row.get(variance)?;
    Ok(ValueWithSpread {
        value: row.get(value)?,
        spread: samples.zip(variance).map(|(samples, variance)| SumSpread {
            samples: samples.unsigned_abs(),
            variance,
        }),
    })
}

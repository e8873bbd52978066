//! The command `sql`: a read-only statement that the user wrote, over the tables of a question or a
//! database.

use std::time::{Duration, Instant};

use rusqlite::ErrorCode;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;

use crate::error::AnalysisError;
use crate::session::AnalysisSession;
use crate::store::views;

/// A value as SQLite returns it.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlValue {
    /// NULL.
    Null,
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl SqlValue {
    /// Returns the approximate number of bytes that the value takes.
    fn size(&self) -> usize {
        match self {
            SqlValue::Text(text) => text.len(),
            SqlValue::Blob(bytes) => bytes.len(),
            SqlValue::Null | SqlValue::Int(_) | SqlValue::Real(_) => 8,
        }
    }
}

/// A call of a Perl sub, as Devel::MProf records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredPerlCall<'a> {
    /// The name of the sub.
    pub function: &'a str,
    /// The number of pages of the process before the call.
    pub before: i64,
    /// The number of pages of the process after the call.
    pub after: i64,
}

/// Largest text or blob, in bytes, that a limited statement may make or read. The time limit is not
/// checked within an SQL function, and a search in a text takes time that grows with the square of
/// its length.
const MAX_LIMITED_VALUE_BYTES: i32 = 64 << 10;
/// Number of steps of SQLite's virtual machine after which the time limit is checked.
const STEPS_PER_TIME_CHECK: i32 = 1_000;

impl AnalysisSession {
    /// Limits the statements of this session: they end when `patience` has passed since this call,
    /// and they can't make texts longer than a user would read.
    ///
    /// # Errors
    /// SQLite refuses the limits.
    pub fn limit_statements(&mut self, patience: Duration) -> Result<(), AnalysisError> {
        self.make_views()?;
        // Everything except reading is refused, because a PRAGMA can limit the memory of the whole
        // process.
        let only_asks = |context: AuthContext<'_>| match context.action {
            AuthAction::Select
            | AuthAction::Read { .. }
            | AuthAction::Function { .. }
            | AuthAction::Recursive => Authorization::Allow,
            _ => Authorization::Deny,
        };
        self.connection.authorizer(Some(only_asks))?;
        let end = Instant::now() + patience;
        self.connection
            .set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_LIMITED_VALUE_BYTES)?;
        self.time_limit = Some(patience);
        let is_late = move || Instant::now() > end;
        Ok(self
            .connection
            .progress_handler(STEPS_PER_TIME_CHECK, Some(is_late))?)
    }

    /// Makes the views that statements of users read. A database has them already, but the tables
    /// of a question do not.
    fn make_views(&self) -> Result<(), AnalysisError> {
        if self.question.is_none() {
            return Ok(());
        }
        for view in views()? {
            let view = view.replacen("CREATE VIEW", "CREATE VIEW IF NOT EXISTS", 1);
            self.connection.execute_batch(&view)?;
        }
        Ok(())
    }

    /// Makes the table `f(id, function, before, after)` of these calls, for statements of users.
    /// Devel::MProf's own tool makes the same table from its file.
    ///
    /// # Errors
    /// There is not enough memory for the table.
    pub fn add_calls<'a>(
        &self,
        calls: impl Iterator<Item = MeasuredPerlCall<'a>>,
    ) -> Result<(), AnalysisError> {
        let table = "CREATE TEMP TABLE f(id INTEGER PRIMARY KEY, function TEXT NOT NULL, \
                     before INTEGER NOT NULL, after INTEGER NOT NULL)";
        let transaction = self.connection.unchecked_transaction()?;
        transaction.execute_batch(table)?;
        let insert = "INSERT INTO f(function, before, after) VALUES (?1, ?2, ?3)";
        let mut insert = transaction.prepare(insert)?;
        for call in calls {
            insert.execute((call.function, call.before, call.after))?;
        }
        drop(insert);
        Ok(transaction.commit()?)
    }
}

/// The columns and rows of a statement's result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultTable {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, with one value for each column.
    pub rows: Vec<Vec<SqlValue>>,
}

/// A read-only statement that the user wrote.
pub struct UserStatement<'s> {
    statement: rusqlite::Statement<'s>,
    columns: Vec<String>,
    /// The number of rows and the number of bytes that the statement may still return.
    left: (usize, usize),
    is_cut: bool,
    /// The longest time that the statement may run, if it is limited.
    time_limit: Option<Duration>,
}

impl<'s> UserStatement<'s> {
    /// Prepares a statement. Fails if it can't be run, has parameters or would write.
    pub fn new(session: &'s AnalysisSession, sql: &str) -> Result<Self, AnalysisError> {
        if session.time_limit.is_none() {
            session.make_views()?;
        }
        let statement = session
            .connection
            .prepare(sql)
            .map_err(|error| match error {
                rusqlite::Error::MultipleStatement => {
                    AnalysisError::Sql("more than one statement; give one at a time".to_string())
                }
                other => other.into(),
            })?;
        // The text has nothing but blanks and comments.
        if statement.expanded_sql().is_none_or(|sql| sql.is_empty()) {
            return Err(AnalysisError::Sql("is empty; write a SELECT".to_string()));
        }
        if !statement.readonly() {
            return Err(AnalysisError::Sql(
                "the statement would write; only reading is possible here (db load and db rm \
                 change a database)"
                    .to_string(),
            ));
        }
        let columns: Vec<String> = statement.column_names().map(|c| c.to_string()).collect();
        if statement.parameter_count() > 0 {
            return Err(AnalysisError::Sql(
                "the statement has parameters without values; write the values into it".to_string(),
            ));
        }
        Ok(Self {
            statement,
            columns,
            left: (usize::MAX, usize::MAX),
            is_cut: false,
            time_limit: session.time_limit,
        })
    }

    /// Ends the statement after this number of rows or this number of bytes of values.
    pub fn limit(&mut self, rows: usize, bytes: usize) {
        self.left = (rows, bytes);
    }

    /// Whether the statement had more rows than the limit allowed.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Runs the statement. `each` gets the rows one by one, with one value for each column.
    pub fn each<E: From<AnalysisError>>(
        &mut self,
        mut each: impl FnMut(&[SqlValue]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut values = vec![SqlValue::Null; self.columns.len()];
        let patience = self.time_limit;
        let failed = |error: rusqlite::Error| limit_error(patience, error);
        let mut rows = self.statement.query([]).map_err(failed)?;
        let (mut left, mut room) = self.left;
        while let Some(row) = rows.next().map_err(failed)? {
            if left == 0 || room == 0 {
                self.is_cut = true;
                break;
            }
            left -= 1;
            for (at, value) in values.iter_mut().enumerate() {
                *value = match row.get_ref(at).map_err(AnalysisError::from)? {
                    ValueRef::Null => SqlValue::Null,
                    ValueRef::Integer(number) => SqlValue::Int(number),
                    ValueRef::Real(number) => SqlValue::Real(number),
                    ValueRef::Text(text) => {
                        SqlValue::Text(String::from_utf8_lossy(text).into_owned())
                    }
                    ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_vec()),
                };
                room = room.saturating_sub(value.size());
            }
            each(&values)?;
        }
        Ok(())
    }
}

/// Returns the error of a statement, which names the limit if the statement reached one.
fn limit_error(patience: Option<Duration>, error: rusqlite::Error) -> AnalysisError {
    let Some(patience) = patience else {
        return error.into();
    };
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => AnalysisError::Sql(format!(
            "ran longer than {} s and was stopped; ask for less",
            patience.as_secs()
        )),
        Some(ErrorCode::TooBig) => AnalysisError::Sql(format!(
            "makes or reads a value of more than {} KiB; ask for less",
            MAX_LIMITED_VALUE_BYTES >> 10
        )),
        _ => error.into(),
    }
}

/// Runs one read-only statement, and returns its columns and rows.
pub fn run_statement(session: &AnalysisSession, sql: &str) -> Result<ResultTable, AnalysisError> {
    let mut statement = UserStatement::new(session, sql)?;
    let mut table = ResultTable {
        columns: statement.columns().to_vec(),
        rows: Vec::new(),
    };
    statement.each(|row| {
        table.rows.push(row.to_vec());
        Ok::<_, AnalysisError>(())
    })?;
    Ok(table)
}

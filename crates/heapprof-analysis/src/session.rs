//! A connection that reports read from, and a record of what they asked.

use std::cell::RefCell;
use std::sync::Arc;

use rusqlite::{Connection, Params, Row};

use crate::error::Error;
use crate::question::Question;
use crate::relation;

/// Where a report's rows come from: a question's virtual tables, or a database's real ones.
pub struct Session {
    pub(crate) connection: Connection,
    statements: RefCell<Vec<String>>,
    /// The column of `function_total` that tells its rows apart.
    pub(crate) total_key: &'static str,
    /// Where the virtual tables come from; `None` over a database.
    pub(crate) question: Option<Arc<Question>>,
}

impl Session {
    /// Over the virtual tables of a question.
    pub fn new(question: Question) -> Result<Self, Error> {
        let question = Arc::new(question);
        Ok(Self {
            connection: relation::connect(&question)?,
            statements: RefCell::default(),
            total_key: "entity",
            question: Some(question),
        })
    }

    /// Over the tables of a database.
    pub(crate) fn stored(connection: Connection) -> Self {
        Self {
            connection,
            statements: RefCell::default(),
            total_key: "function",
            question: None,
        }
    }

    /// The statements that were run, with their values filled in.
    pub fn statements(&self) -> Vec<String> {
        self.statements.borrow().clone()
    }

    /// Runs a statement and maps its rows.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = Vec::new();
        {
            let mut rows = statement.query(params)?;
            if let Some(text) = rows.as_ref().and_then(|s| s.expanded_sql()) {
                self.record(text);
            }
            while let Some(row) = rows.next()? {
                found.push(map(row)?);
            }
        }
        Ok(found)
    }

    /// Keeps the first statement of each shape; a loop over rows asks the same thing again and again.
    fn record(&self, text: String) {
        let mut statements = self.statements.borrow_mut();
        if statements.len() < 20 && !statements.contains(&text) {
            statements.push(text);
        }
    }

    /// The notes of the question's filters.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.question
            .as_ref()
            .map(|q| q.notes())
            .unwrap_or_default()
    }
}

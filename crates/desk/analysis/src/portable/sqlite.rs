//! The portable tables in SQLite: in memory, for stores that have no engine of their own.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};

use super::engine::{SqlAnswer, SqlEngine};
use super::{ColumnKind, ColumnValues, PORTABLE_TABLES, TableForm};
use crate::error::AnalysisError;
use crate::statement::SqlValue;

/// A database in memory that has the portable tables.
pub struct SqliteTables(Connection);

impl SqliteTables {
    /// Makes tables without rows.
    ///
    /// # Errors
    /// There is not enough memory for the tables.
    pub fn new() -> Result<Self, AnalysisError> {
        let connection = Connection::open_in_memory()?;
        for form in &PORTABLE_TABLES {
            let columns = form.columns.iter().map(|(name, kind)| {
                let kind = match kind {
                    ColumnKind::Int => "INTEGER NOT NULL",
                    ColumnKind::MaybeInt => "INTEGER",
                    ColumnKind::MaybeReal => "REAL",
                    ColumnKind::Text => "TEXT NOT NULL",
                };
                format!("\"{name}\" {kind}")
            });
            let columns: Vec<String> = columns.collect();
            let key: Vec<String> = form.key.iter().map(|key| format!("\"{key}\"")).collect();
            connection.execute_batch(&format!(
                "CREATE TABLE \"{}\" ({}, PRIMARY KEY ({})) WITHOUT ROWID",
                form.name,
                columns.join(", "),
                key.join(", ")
            ))?;
        }
        // The indexes are by profile, because questions name profiles.
        connection.execute_batch(
            "CREATE INDEX heap_sample_of ON heap_sample (profile); \
             CREATE INDEX heap_spread_of ON heap_spread (profile); \
             CREATE INDEX other_sample_of ON other_sample (profile);",
        )?;
        Ok(Self(connection))
    }

    /// Adds rows to a table, except rows that the table already has.
    ///
    /// # Errors
    /// There is not enough memory for the rows.
    pub fn add(&self, form: &TableForm, columns: &[ColumnValues]) -> Result<(), AnalysisError> {
        let places: Vec<String> = (1..=columns.len()).map(|n| format!("?{n}")).collect();
        let transaction = self.0.unchecked_transaction()?;
        {
            let mut insert = transaction.prepare(&format!(
                "INSERT OR IGNORE INTO \"{}\" VALUES ({})",
                form.name,
                places.join(", ")
            ))?;
            for row in 0..super::batch::length(columns) {
                let cells = columns.iter().map(|cells| match cells {
                    ColumnValues::Int(cells) => cells[row].into(),
                    ColumnValues::MaybeInt(cells) => cells[row].into(),
                    ColumnValues::MaybeReal(cells) => cells[row].into(),
                    ColumnValues::Text(cells) => rusqlite::types::Value::Text(cells[row].clone()),
                });
                insert.execute(params_from_iter(cells))?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl SqlEngine for SqliteTables {
    fn table(&self, sql: &str) -> Result<SqlAnswer, AnalysisError> {
        let mut statement = self.0.prepare(sql)?;
        let names: Vec<String> = statement.column_names().map(str::to_string).collect();
        let columns = names.len();
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let cells = (0..columns).map(|at| {
                Ok(match row.get_ref(at)? {
                    ValueRef::Null => SqlValue::Null,
                    ValueRef::Integer(value) => SqlValue::Int(value),
                    ValueRef::Real(value) => SqlValue::Real(value),
                    ValueRef::Text(text) => {
                        SqlValue::Text(String::from_utf8_lossy(text).into_owned())
                    }
                    ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_vec()),
                })
            });
            found.push(cells.collect::<rusqlite::Result<Vec<SqlValue>>>()?);
        }
        Ok((names, found))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use heapprof_profile::encode;
    use heapprof_tests::harness::valid;

    use super::super::{PortableBatch, SqlStore, read_profile, top_sql};
    use super::*;
    use crate::portable::PortableQuery;
    use crate::stored_moment::SeriesStore;
    use crate::top::top;
    use crate::{AnalysisSession, ProfileQuestion, Query, QuestionSource, TypeSelection};

    /// Checks that each sample profile gives the same reports after it was stored in the portable
    /// tables once or twice.
    #[test]
    fn profiles_survive_the_portable_tables() {
        for file in valid() {
            let bytes = std::fs::read(&file).unwrap();
            let profile = Arc::new(heapprof_profile::decode(&bytes[..]).unwrap());
            let mut batch = PortableBatch::default();
            let labels = BTreeMap::from([("host".to_string(), "a".to_string())]);
            batch.add("p", &profile, &labels).unwrap();
            batch.add("p", &profile, &labels).unwrap();
            let tables = SqliteTables::new().unwrap();
            for _ in 0..2 {
                for (form, columns) in batch.sorted_tables() {
                    tables.add(form, &columns).unwrap();
                }
            }
            let store = SqlStore(tables);
            let moments = store.moments().unwrap();
            let [moment] = &moments[..] else {
                panic!("{}: {moments:?}", file.display());
            };
            assert_eq!((&*moment.name, &moment.labels), ("p", &labels));
            let restored = read_profile(&store.0, moment.id, &moment.types).unwrap();
            let report = |profile: Arc<heapprof_profile::Profile>| {
                let source = QuestionSource {
                    name: "p".to_string(),
                    profile,
                    totals: None,
                };
                let question =
                    ProfileQuestion::new(vec![source], &Query::default(), TypeSelection::All);
                let session = AnalysisSession::new(question.unwrap()).unwrap();
                top(&session, 1, &Query::default(), true).unwrap()
            };
            let (read, stored) = (
                report(Arc::clone(&profile)),
                report(Arc::new(restored.clone())),
            );
            assert_eq!(stored.rows, read.rows, "{}", file.display());
            assert_eq!(restored.comment.len(), profile.comment.len());
            // The profile can be encoded, so all of its references are valid.
            encode(&restored, std::io::sink()).unwrap();
            // If no frames are dropped, the single statement gives the same rows.
            if profile.text(profile.drop_frames).is_empty() {
                let of = &read.header.sample_type;
                let query = PortableQuery {
                    sample_type: (&of.r#type, &of.unit),
                    limit: None,
                };
                let rows = store.0.rows(&top_sql(&query, &["p"])).unwrap();
                let rows: Vec<(String, i64, i64, String)> = rows
                    .into_iter()
                    .map(|row| match &row[..] {
                        [
                            SqlValue::Text(name),
                            SqlValue::Int(flat),
                            SqlValue::Int(cum),
                            SqlValue::Text(file),
                        ] => (name.clone(), *flat, *cum, file.clone()),
                        row => panic!("{row:?}"),
                    })
                    .collect();
                let shown = read.rows.iter().filter(|row| row.flat != 0 || row.cum != 0);
                let shown: Vec<(String, i64, i64, String)> = shown
                    .map(|row| {
                        let file = row.place.file.clone().unwrap_or_default();
                        (row.place.function.clone(), row.flat, row.cum, file)
                    })
                    .collect();
                assert_eq!(rows, shown, "{}", file.display());
            }
        }
    }
}

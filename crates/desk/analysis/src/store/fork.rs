//! Stores audits of forked children in the database. An audit has a name, and the rows of a
//! session's tables.

use rusqlite::types::Value;
use rusqlite::{TransactionBehavior, params_from_iter};

use super::ProfileStore;
use crate::error::AnalysisError;
use crate::relation::{FORK_CHILD, FORK_LOAD, Relation};
use crate::session::AnalysisSession;

/// The unshared memory of children by kind, function, file and line. Rows that are equal in these
/// four columns are added up: they belong to entities that differ in other columns.
const UNSHARED_SQL: &str = "(SELECT u.pid AS pid, u.kind AS kind, f.name AS function, \
                        f.filename AS filename, e.line AS line, sum(u.objects) AS objects, \
                        sum(u.bytes) AS bytes \
                        FROM fork_unshared u JOIN entity e ON e.id = u.entity \
                        JOIN function f ON f.id = e.function \
                        GROUP BY u.pid, u.kind, f.name, f.filename, e.line)";

/// A table of the database, its columns except the audit's name, and the table or query from which
/// these columns are copied.
struct AuditTable {
    table: &'static str,
    columns: Vec<&'static str>,
    from: &'static str,
}

impl AuditTable {
    /// Makes the table for a relation of a session. The number of the profile is left out, because
    /// only a session has it.
    fn from_relation(relation: &Relation) -> Self {
        let columns = relation.columns.iter();
        let names = columns.filter_map(|(column, _)| column.split(' ').next());
        Self {
            table: relation.name,
            columns: names.filter(|&name| name != "profile").collect(),
            from: relation.name,
        }
    }

    fn all_tables() -> [Self; 3] {
        [
            Self::from_relation(&FORK_CHILD),
            Self::from_relation(&FORK_LOAD),
            Self {
                table: "fork_unshared",
                columns: vec![
                    "pid", "kind", "function", "filename", "line", "objects", "bytes",
                ],
                from: UNSHARED_SQL,
            },
        ]
    }
}

impl ProfileStore {
    /// Stores an audit under a name.
    ///
    /// # Errors
    /// An audit with that name exists already.
    pub fn keep_audit(
        &mut self,
        name: &str,
        session: &AnalysisSession,
    ) -> Result<(), AnalysisError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let taken: bool = transaction.query_row(
            "SELECT EXISTS (SELECT 1 FROM fork_child WHERE audit = ?1)",
            [name],
            |row| row.get(0),
        )?;
        if taken {
            return Err(AnalysisError::NameTaken(name.to_string()));
        }
        for AuditTable {
            table,
            columns,
            from,
        } in AuditTable::all_tables()
        {
            let listed = columns.join(", ");
            let sql = format!("SELECT {listed} FROM {from}");
            let rows: Vec<Vec<Value>> = session.rows(&sql, [], |row| {
                (0..columns.len()).map(|i| row.get(i)).collect()
            })?;
            let places: Vec<String> = (1..=columns.len() + 1).map(|i| format!("?{i}")).collect();
            let mut insert = transaction.prepare(&format!(
                "INSERT INTO {table} (audit, {listed}) VALUES ({})",
                places.join(", ")
            ))?;
            for row in rows {
                let name = Value::Text(name.to_string());
                insert.execute(params_from_iter(std::iter::once(name).chain(row)))?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

//! Audits of forked children in the database: the rows of a session's tables, under a name.

use rusqlite::types::Value;
use rusqlite::{TransactionBehavior, params_from_iter};

use super::Store;
use crate::error::Error;
use crate::session::Session;

/// A table of the database, its columns besides the audit's name, and what they are read from.
struct Kept {
    table: &'static str,
    columns: &'static [&'static str],
    from: &'static str,
}

const KEPT: [Kept; 3] = [
    Kept {
        table: "fork_child",
        columns: &[
            "pid",
            "parent",
            "generation",
            "program",
            "title",
            "time_micros",
            "looked_micros",
            "age_micros",
            "ending",
            "rss",
            "pss",
            "private_dirty",
            "private_clean",
            "shared_dirty",
            "shared_clean",
            "swap",
            "huge",
            "new_space",
            "shared_space",
            "unshared_space",
            "own_space",
            "own_private_space",
            "inherited_space",
            "period",
            "lacks",
        ],
        from: "fork_child",
    },
    Kept {
        table: "fork_load",
        columns: &[
            "pid", "position", "name", "kind", "outcome", "micros", "site", "stats", "opens",
            "flat", "cum",
        ],
        from: "fork_load",
    },
    Kept {
        table: "fork_unshared",
        columns: &[
            "pid", "kind", "function", "filename", "line", "objects", "bytes",
        ],
        // Files may differ in what the names do not show.
        from: "(SELECT u.pid AS pid, u.kind AS kind, f.name AS function, f.filename AS filename, \
               e.line AS line, sum(u.objects) AS objects, sum(u.bytes) AS bytes \
               FROM fork_unshared u JOIN entity e ON e.id = u.entity \
               JOIN function f ON f.id = e.function \
               GROUP BY u.pid, u.kind, f.name, f.filename, e.line)",
    },
];

impl Store {
    /// Keeps an audit under a name.
    ///
    /// # Errors
    /// There may be one of that name.
    pub fn keep_audit(&mut self, name: &str, session: &Session) -> Result<(), Error> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let taken: bool = transaction.query_row(
            "SELECT EXISTS (SELECT 1 FROM fork_child WHERE audit = ?1)",
            [name],
            |row| row.get(0),
        )?;
        if taken {
            return Err(Error::NameTaken(name.to_string()));
        }
        for Kept {
            table,
            columns,
            from,
        } in KEPT
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

//! The database's schema, by migrations: append only, one step a version, all or nothing.
//!
//! Laws: a migration that was released is never changed or removed; what is stored stays readable by
//! plain SQLite of any recent version (no new syntax in views) and portable to other SQL engines (no
//! arrays, JSON or types of SQLite's own).

use rusqlite::{Connection, TransactionBehavior};

use crate::error::Error;

/// Marks a file as heapprof's: "heap" in ASCII.
const APPLICATION_ID: i64 = 0x6865_6170;

/// The statements that lead from one version to the next.
const MIGRATIONS: &[&str] = &[include_str!("schema.sql")];

/// The newest version this build reads and writes.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

fn pragma(connection: &Connection, name: &str) -> Result<i64, Error> {
    Ok(connection.pragma_query_value(None, name, |row| row.get(0))?)
}

/// Refuses what is not heapprof's, and what a newer heapprof wrote.
pub(super) fn check(connection: &Connection) -> Result<(), Error> {
    let found = pragma(connection, "user_version")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && pragma(connection, "application_id")? != APPLICATION_ID {
        return Err(Error::NotADatabase(
            "; it holds tables of something else".to_string(),
        ));
    }
    if found > SCHEMA_VERSION {
        return Err(Error::Newer {
            found,
            known: SCHEMA_VERSION,
        });
    }
    Ok(())
}

/// As [`check`], and refuses a file that no load has filled.
pub(super) fn check_filled(connection: &Connection) -> Result<(), Error> {
    check(connection)?;
    match pragma(connection, "user_version")? {
        0 => Err(Error::NotADatabase(
            "; it is empty, and heapprof load fills it".to_string(),
        )),
        _ => Ok(()),
    }
}

/// Brings a database to the newest version.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    check(connection)?;
    if pragma(connection, "user_version")? == SCHEMA_VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let from = pragma(&transaction, "user_version")?;
    for migration in MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()?;
    Ok(())
}

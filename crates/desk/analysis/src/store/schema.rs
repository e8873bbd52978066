//! The schema of the database, built by append-only migrations, one for each version. Either all of
//! them are applied or none.
//!
//! These rules hold. A migration that was released is never changed or removed. Stored data stays
//! readable by plain SQLite of any recent version, so views use no new syntax. The schema stays
//! portable to other SQL engines, so it has no arrays, no JSON and no types that only SQLite has.

use rusqlite::{Connection, TransactionBehavior};

use crate::error::AnalysisError;
use crate::relation::is_table;

/// Number that marks a database file as heapprof's: "heap" in ASCII.
const APPLICATION_ID: i64 = 0x6865_6170;

/// The migrations: the statements that change the schema from each version to the next.
const MIGRATIONS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("snapshot.sql"),
    include_str!("profile_part.sql"),
    include_str!("spread.sql"),
    include_str!("module.sql"),
    include_str!("wiretap.sql"),
    include_str!("fork.sql"),
    include_str!("watch.sql"),
    include_str!("narrow.sql"),
    include_str!("series.sql"),
    include_str!("file.sql"),
];

/// The first version whose tables have the spread of estimates.
const FIRST_SPREAD_VERSION: i64 = 4;

/// The first version that has tables for the wiretap.
const FIRST_WIRETAP_VERSION: i64 = 6;

/// The first version that has tables for watches.
const FIRST_WATCH_VERSION: i64 = 8;

/// The first version that has one row for the four values of a heap sample.
const FIRST_NARROW_VERSION: i64 = 9;

/// The first version that has labels of profiles.
const FIRST_LABELS_VERSION: i64 = 10;

/// The newest version that this build reads and writes.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

fn pragma(connection: &Connection, name: &str) -> Result<i64, AnalysisError> {
    Ok(connection.pragma_query_value(None, name, |row| row.get(0))?)
}

/// Refuses a database that does not belong to heapprof, or that a newer heapprof wrote.
pub(super) fn check(connection: &Connection) -> Result<(), AnalysisError> {
    // One transaction reads one state of the database, because another process may be making the
    // tables.
    let _at_once = connection.unchecked_transaction()?;
    let found = pragma(connection, "user_version")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && pragma(connection, "application_id")? != APPLICATION_ID {
        return Err(AnalysisError::NotADatabase(
            "; it holds tables of something else".to_string(),
        ));
    }
    if found > SCHEMA_VERSION {
        return Err(AnalysisError::Newer {
            found,
            known: SCHEMA_VERSION,
        });
    }
    compare(connection, found)
}

/// A row of `sqlite_schema`, without the position in the file.
#[derive(PartialEq, Eq, Hash)]
struct SchemaObject {
    kind: String,
    name: String,
    table: String,
    sql: Option<String>,
}

fn objects(connection: &Connection) -> Result<Vec<SchemaObject>, AnalysisError> {
    let mut statement =
        connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let objects = statement.query_map([], |row| {
        Ok(SchemaObject {
            kind: row.get(0)?,
            name: row.get(1)?,
            table: row.get(2)?,
            sql: row.get(3)?,
        })
    })?;
    Ok(objects.collect::<Result<_, _>>()?)
}

/// Refuses a database unless it has exactly the tables, indexes and views of version `found`. The
/// user may have added tables and plain indexes, because no statement of heapprof reads such
/// tables, and SQLite computes nothing for such indexes.
fn compare(connection: &Connection, found: i64) -> Result<(), AnalysisError> {
    let ours = Connection::open_in_memory()?;
    for migration in steps(0, found) {
        ours.execute_batch(migration)?;
    }
    let ours = objects(&ours)?;
    let theirs = objects(connection)?;
    let refused = |what: String| Err(AnalysisError::NotADatabase(format!("; {what}")));
    if let Some(lost) = ours.iter().find(|object| !theirs.contains(object)) {
        let SchemaObject { kind, name, .. } = lost;
        return refused(format!(
            "its {kind} {name} is not that of schema {found}; load the profiles into a new database"
        ));
    }
    let is_ours = |name: &str| ours.iter().any(|o| o.name.eq_ignore_ascii_case(name));
    for object in theirs.iter().filter(|object| !ours.contains(object)) {
        let SchemaObject { kind, name, .. } = object;
        let allowed = match kind.as_str() {
            "index" if !is_ours(&object.table) => true,
            "index" => is_plain_index(connection, name, &object.table)?,
            "table" => !is_ours(name) && !is_virtual(object),
            _ => false,
        };
        if !allowed {
            return refused(format!(
                "it has the {kind} {name}, which heapprof did not create and which would not be \
                 safe; DROP it, or load the profiles into a new one"
            ));
        }
    }
    Ok(())
}

/// Whether the rows of a table come from a module, and not from SQLite itself.
fn is_virtual(table: &SchemaObject) -> bool {
    let sql = table.sql.as_deref().unwrap_or_default();
    // SQLite itself writes the first words of this text.
    !sql.starts_with("CREATE TABLE")
}

/// Whether an index holds unchanged columns of all rows, and refuses no row.
fn is_plain_index(connection: &Connection, name: &str, table: &str) -> Result<bool, AnalysisError> {
    let mut list = connection.prepare(
        "SELECT count(*) FROM pragma_index_list(?2) WHERE name = ?1 AND \"unique\" = 0 AND \
         partial = 0",
    )?;
    let listed: i64 = list.query_row([name, table], |row| row.get(0))?;
    let mut columns =
        connection.prepare("SELECT count(*) FROM pragma_index_xinfo(?1) WHERE cid = -2")?;
    let computed: i64 = columns.query_row([name], |row| row.get(0))?;
    Ok(listed == 1 && computed == 0)
}

/// Returns the statements that make views over the tables of a question. Views with the name of
/// such a table are left out.
pub(crate) fn views() -> Result<Vec<String>, AnalysisError> {
    let ours = Connection::open_in_memory()?;
    for migration in MIGRATIONS {
        ours.execute_batch(migration)?;
    }
    let views = objects(&ours)?.into_iter().filter(|o| o.kind == "view");
    let views = views.filter(|view| !is_table(&view.name));
    Ok(views.filter_map(|view| view.sql).collect())
}

/// Returns the migrations that lead from one version to another.
fn steps(from: i64, to: i64) -> impl Iterator<Item = &'static &'static str> {
    let at = |version: i64| usize::try_from(version).unwrap_or(0);
    MIGRATIONS.iter().take(at(to)).skip(at(from))
}

/// Whether the tables have the spread of estimates. A database that is only read may be older.
pub(super) fn has_spread(connection: &Connection) -> Result<bool, AnalysisError> {
    Ok(pragma(connection, "user_version")? >= FIRST_SPREAD_VERSION)
}

/// Whether one row has the four values of a heap sample. A database that is only read may be older.
pub(super) fn is_narrow(connection: &Connection) -> Result<bool, AnalysisError> {
    Ok(pragma(connection, "user_version")? >= FIRST_NARROW_VERSION)
}

/// Whether profiles have labels. A database that is only read may be older.
pub(super) fn has_labels(connection: &Connection) -> Result<bool, AnalysisError> {
    Ok(pragma(connection, "user_version")? >= FIRST_LABELS_VERSION)
}

/// Whether there are tables of the wiretap. A database that is only read may be older.
pub(super) fn has_wiretap(connection: &Connection) -> Result<bool, AnalysisError> {
    Ok(pragma(connection, "user_version")? >= FIRST_WIRETAP_VERSION)
}

/// Whether there are tables of watches. A database that is only read may be older.
pub(super) fn has_watch(connection: &Connection) -> Result<bool, AnalysisError> {
    Ok(pragma(connection, "user_version")? >= FIRST_WATCH_VERSION)
}

/// Refuses the databases that [`check`] refuses, and an empty database.
pub(super) fn check_filled(connection: &Connection) -> Result<(), AnalysisError> {
    check(connection)?;
    match pragma(connection, "user_version")? {
        0 => Err(AnalysisError::NotADatabase(
            "; it is empty, and heapprof db load fills it".to_string(),
        )),
        _ => Ok(()),
    }
}

/// Migrates a database to the newest version.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), AnalysisError> {
    check(connection)?;
    if pragma(connection, "user_version")? == SCHEMA_VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have migrated the database in the meantime.
    let from = pragma(&transaction, "user_version")?;
    // No other process can write now, but the objects that were checked before may have been
    // changed.
    compare(&transaction, from)?;
    for migration in steps(from, SCHEMA_VERSION) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use heapprof_profile::{Profile, ProfileBuilder};

    use super::*;
    use crate::relation::documented_tables;
    use crate::store::ProfileStore;
    use crate::top::top;
    use crate::{AnalysisSession, ProfileQuestion, Query, TypeSelection};

    /// Checks that every documented column of a view is in the view.
    #[test]
    fn views_are_documented() {
        let views = views().unwrap();
        let said = documented_tables().filter(|(_, about, _)| about.starts_with("View: "));
        assert_eq!(said.count(), views.len());
        for (name, about, columns) in documented_tables() {
            if !about.starts_with("View: ") {
                continue;
            }
            let view = views
                .iter()
                .find(|sql| sql.starts_with(&format!("CREATE VIEW {name} ")));
            let view = view.unwrap_or_else(|| panic!("{name}"));
            for (column, _) in columns {
                let column = column.split(' ').next().unwrap();
                let written = view.contains(&format!(" AS {column}"))
                    || view.contains(&format!(" {column},"));
                assert!(written, "{name}: {column}");
            }
        }
    }

    fn sampled() -> Arc<Profile> {
        let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
        builder.add_folded("main;load", &[40_960]);
        let variance = 10.0 * 4096.0 * 4096.0;
        builder.profile.samples.set_spread(0, &[10], &[variance]);
        builder.profile.period_type = Some(builder.value_type("space", "bytes"));
        builder.profile.period = 4096;
        builder.finish().into()
    }

    /// Checks that a database of the first version can be read as it is, and gets the new columns
    /// when something is written to it.
    #[test]
    fn an_older_database_is_read_and_brought_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.execute_batch(
            "INSERT INTO profile VALUES (1, 'old', 0, 0, 'space', 'bytes', 4096, '', '', '', '', 1);
             INSERT INTO sample_type VALUES (1, 'inuse_space', 'bytes');
             INSERT INTO profile_total VALUES (1, 0, 1, 7, 7);
             INSERT INTO function VALUES (1, 'main', 'main', '', 0);
             INSERT INTO location VALUES (1, NULL, 16, 0);
             INSERT INTO line VALUES (1, 0, 1, 0, 0);
             INSERT INTO stack VALUES (1, 0, 1);
             INSERT INTO sample VALUES (1, 1, 1, 0, 7);
             INSERT INTO function_total VALUES (1, 1, 1, 7, 7);
             INSERT INTO sample_type VALUES (2, 'peak_space', 'bytes');
             INSERT INTO profile_total VALUES (1, 1, 2, 9, 9);
             INSERT INTO sample VALUES (1, 2, 1, 0, 9);",
        )
        .unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID)
            .unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        drop(old);
        let ask = |name| {
            let source = ProfileStore::open(&path).unwrap().restore(name).unwrap();
            let question =
                ProfileQuestion::new(vec![source], &Query::default(), TypeSelection::Requested)
                    .unwrap();
            top(
                &AnalysisSession::new(question).unwrap(),
                1,
                &Query::default(),
                false,
            )
            .unwrap()
        };
        let is_7 = || {
            let report = ask("old");
            assert_eq!((report.header.net, report.header.estimate), (7, None));
            assert_eq!(report.rows[0].estimates, [None; 2]);
            let restored = ProfileStore::open(&path).unwrap().restore("old").unwrap();
            assert_eq!(restored.profile.samples.values(0), [7, 9]);
            assert!(!restored.profile.samples.has_spread());
        };
        is_7();
        let mut store = ProfileStore::open_or_create(&path).unwrap();
        store.load("new", &sampled(), &mut |_, _| {}).unwrap();
        is_7();
        let connection = Connection::open(&path).unwrap();
        let mut values = connection
            .prepare(
                "SELECT s.type, s.value, t.flat, t.cum FROM sample s JOIN function_total t \
                      ON t.profile = s.profile AND t.type = s.type WHERE s.profile = 1 ORDER BY 1",
            )
            .unwrap();
        let values: Vec<[i64; 4]> = values
            .query_map([], |row| {
                Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?])
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(values, [[1, 7, 7, 7], [2, 9, 9, 9]]);
        // When the old function was stored, its module was not recorded. The module of the new one
        // is known.
        let mut modules = connection
            .prepare("SELECT module, is_library FROM function WHERE name = 'main' ORDER BY id")
            .unwrap();
        let modules: Vec<(Option<String>, Option<i64>)> = modules
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(modules, [(None, None), (Some(String::new()), Some(0))]);
        let estimate = ask("new").header.estimate.unwrap();
        assert_eq!((estimate.low, estimate.high), (22_249, 75_406));
        assert_eq!(ask("new").rows[0].estimates, [Some(estimate); 2]);
        let restored = store.restore("new").unwrap().profile;
        let spread = restored.samples.spread(0).unwrap();
        assert_eq!(
            (spread.sampled, spread.variance),
            (&[10][..], &[10.0 * 4096.0 * 4096.0][..])
        );
    }
}

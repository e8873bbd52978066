//! Tests that databases that are damaged, or made to do harm, are refused in one line and without
//! long work.

#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use heapprof_profile::ProfileBuilder;
use rusqlite::Connection;

use super::ProfileStore;
use crate::error::AnalysisError;
use crate::question::{ProfileQuestion, TypeSelection};
use crate::session::AnalysisSession;
use crate::top::top;
use heapprof_totals::query::Query;

/// A query with endless rows.
const ENDLESS_QUERY: &str =
    "(WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c)";

/// Makes a database with one profile `p` of `stacks` stacks.
fn make_database(folder: &Path, stacks: i64) -> PathBuf {
    let path = folder.join("heap.db");
    let _ = std::fs::remove_file(&path);
    let mut store = ProfileStore::open_or_create(&path).unwrap();
    store.load("p", &profile(stacks), &mut |_, _| {}).unwrap();
    path
}

fn profile(stacks: i64) -> Arc<heapprof_profile::Profile> {
    let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    for i in 0..stacks {
        let stack = format!("main;a{};b{};c{i}", i % 7, i % 1009);
        builder.add_folded(&stack, &[i + 1]);
    }
    Arc::new(builder.finish())
}

/// Does everything that a user does with a database, and returns the first error.
fn all_uses(path: &Path) -> Result<(), AnalysisError> {
    let store = ProfileStore::open(path)?;
    store.profiles()?;
    let question = ProfileQuestion::new(
        vec![store.restore("p")?],
        &Query::default(),
        TypeSelection::All,
    )?;
    top(
        &AnalysisSession::new(question)?,
        1,
        &Query::default(),
        false,
    )?;
    let session = ProfileStore::open(path)?.session_for_statements()?;
    session.rows("SELECT flat FROM function_report", [], |row| {
        row.get::<_, i64>(0)
    })?;
    ProfileStore::open_to_write(path)?.load("q", &profile(3), &mut |_, _| {})?;
    let mut store = ProfileStore::open_to_write(path)?;
    store.remove(&["q".to_string()])?;
    store.compact()
}

#[test]
fn what_is_not_ours_to_the_letter_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let trigger = |event: &str| {
        format!(
            "CREATE TRIGGER t {event} ON profile BEGIN SELECT count(*) FROM {ENDLESS_QUERY}; END"
        )
    };
    let writable = "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET";
    let table: &[(&str, String)] = &[
        ("it has the trigger t", trigger("AFTER INSERT")),
        ("it has the trigger t", trigger("AFTER DELETE")),
        (
            "its table profile is not that",
            format!(
                "PRAGMA legacy_alter_table = 1; ALTER TABLE profile RENAME TO profile_real; \
                 CREATE VIEW profile AS SELECT p.* FROM profile_real p, {ENDLESS_QUERY}"
            ),
        ),
        (
            "its table function is not that",
            "ALTER TABLE function ADD COLUMN evil GENERATED ALWAYS AS (zeroblob(1000000000))"
                .into(),
        ),
        (
            "its view function_report is not that",
            format!(
                "DROP VIEW function_report; CREATE VIEW function_report AS SELECT * FROM {ENDLESS_QUERY}"
            ),
        ),
        ("its table comment is not that", "DROP TABLE comment".into()),
        (
            "it has the view mine",
            "CREATE VIEW mine AS SELECT 1".into(),
        ),
        (
            "it has the table words",
            "CREATE VIRTUAL TABLE words USING fts5(x)".into(),
        ),
        (
            "it has the index i",
            "CREATE UNIQUE INDEX i ON stack (location)".into(),
        ),
        (
            "it has the index i",
            "CREATE INDEX i ON function (hex(name))".into(),
        ),
        (
            "it has the index i",
            "CREATE INDEX i ON function (name) WHERE id > 1".into(),
        ),
        (
            "the database is damaged",
            format!("{writable} sql = 'CREATE TABLE profile (a, b' WHERE name = 'profile'"),
        ),
        (
            "its table comment is not that",
            format!(
                "{writable} sql = 'CREATE TABLE comment (profile, position, text)' WHERE name = \
                 'comment'"
            ),
        ),
        ("written by a newer", "PRAGMA user_version = 9999".into()),
        (
            "is not a heapprof database; it has the",
            "PRAGMA user_version = -1".into(),
        ),
    ];
    for (expected, change) in table {
        let path = make_database(folder.path(), 3);
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(change).unwrap();
        drop(connection);
        let whole = std::fs::read(&path).unwrap();
        for refused in [
            ProfileStore::open(&path).map(drop),
            ProfileStore::open_or_create(&path).map(drop),
            ProfileStore::open_to_write(&path).map(drop),
        ] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(expected), "{change}: {error}");
        }
        assert!(
            std::fs::read(&path).unwrap() == whole,
            "{change}: it was written to"
        );
    }
}

/// Checks that users may add tables and indexes of their own, because SQLite is the query engine.
#[test]
fn users_may_have_tables_and_indexes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    for change in [
        "CREATE TABLE release (profile TEXT PRIMARY KEY, version TEXT UNIQUE); INSERT INTO \
         release VALUES ('p', '1.2')",
        "CREATE TABLE release (version TEXT); CREATE UNIQUE INDEX by_version ON release \
         (lower(version))",
        "CREATE INDEX by_name ON function (name, filename)",
        "ANALYZE",
    ] {
        let path = make_database(folder.path(), 3);
        Connection::open(&path)
            .unwrap()
            .execute_batch(change)
            .unwrap();
        all_uses(&path).unwrap_or_else(|error| panic!("{change}: {error}"));
    }
}

#[test]
fn damaged_values_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (change, expected) in [
        (
            "UPDATE profile SET name = x'00ff'",
            "column name holds a Blob",
        ),
        (
            "UPDATE function SET name = CAST(x'ff41' AS TEXT)",
            "damaged",
        ),
        (
            "UPDATE heap_sample SET inuse_space = 'much'",
            "column inuse_space holds a Text",
        ),
        ("UPDATE stack SET parent = id", "its own ancestor"),
        (
            "UPDATE stack SET parent = 1 + (SELECT max(id) FROM stack) - id",
            "its own ancestor",
        ),
        (
            "UPDATE function SET name = CAST(zeroblob(70000000) AS TEXT)",
            "longer than",
        ),
    ] {
        let path = make_database(folder.path(), 3);
        Connection::open(&path)
            .unwrap()
            .execute_batch(change)
            .unwrap();
        let error = all_uses(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{change}: {error}");
    }
}

/// Checks that endless rows are not read to the end: pages whose children are all the same page
/// have more rows than any program can count.
#[test]
fn rows_without_end_are_not_read_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    for table in ["stack", "location"] {
        let path = make_database(folder.path(), 12_000);
        let connection = Connection::open(&path).unwrap();
        let number = |sql: &str| -> usize {
            let number = connection.query_row(sql, [], |row| row.get::<_, u32>(0));
            number.unwrap() as usize
        };
        let size = number("PRAGMA page_size");
        let root = number(&format!(
            "SELECT rootpage FROM sqlite_schema WHERE name = '{table}'"
        ));
        drop(connection);
        let mut file = std::fs::read(&path).unwrap();
        let page = |file: &[u8], number: usize| file[(number - 1) * size..number * size].to_vec();
        let pointer =
            |page: &[u8], at: usize| u32::from_be_bytes(page[at..at + 4].try_into().unwrap());
        // Up to 12 children of the root are taken. Each of them, except the last one, becomes an
        // inner page with hundreds of cells, which all lead to the next of these children.
        let top = page(&file, root);
        assert_eq!(top[0], 5, "{table}: the root has no children");
        let cells = usize::from(u16::from_be_bytes([top[3], top[4]])).min(12);
        let child = |cell: usize| {
            let at = u16::from_be_bytes([top[12 + 2 * cell], top[13 + 2 * cell]]);
            pointer(&top, usize::from(at))
        };
        let children: Vec<u32> = (0..cells).map(child).collect();
        for pair in children.windows(2) {
            let mut between = vec![0; size];
            let count = 300;
            let start = size - 5 * count;
            between[0] = 5;
            between[3..5].copy_from_slice(&(count as u16).to_be_bytes());
            between[5..7].copy_from_slice(&(start as u16).to_be_bytes());
            between[8..12].copy_from_slice(&pair[1].to_be_bytes());
            for cell in 0..count {
                let at = start + 5 * cell;
                between[12 + 2 * cell..14 + 2 * cell].copy_from_slice(&(at as u16).to_be_bytes());
                between[at..at + 4].copy_from_slice(&pair[1].to_be_bytes());
                between[at + 4] = 1;
            }
            let start = (pair[0] as usize - 1) * size;
            file[start..start + size].copy_from_slice(&between);
        }
        std::fs::write(&path, file).unwrap();
        // A load reads all rows of the table. Restoring looks up its rows.
        let loaded =
            ProfileStore::open_to_write(&path)
                .unwrap()
                .load("q", &profile(3), &mut |_, _| {});
        let error = loaded.unwrap_err().to_string();
        assert!(
            error.contains("more work than its size justifies"),
            "{table}: {error}"
        );
        assert!(
            ProfileStore::open(&path).unwrap().restore("p").is_err(),
            "{table}"
        );
    }
}

/// Checks that the uses of a database take far fewer steps than are allowed.
#[test]
fn honest_work_is_a_small_part_of_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = make_database(folder.path(), 20_000);
    let bytes = std::fs::metadata(&path).unwrap().len();
    // Each of these calls allows the work for a file of this size once more.
    let spent = |store: &ProfileStore, allowed: u64| {
        super::guard::step_limit(allowed) + super::guard::step_limit(bytes)
            - store.budget.remaining_steps()
    };
    let store = ProfileStore::open(&path).unwrap();
    store.restore("p").unwrap();
    let reading = spent(&store, bytes);
    let again = profile(20_000);
    let mut store = ProfileStore::open_to_write(&path).unwrap();
    store.load("q", &again, &mut |_, _| {}).unwrap();
    let loading = spent(&store, bytes + super::estimated_size(&again));
    let mut store = ProfileStore::open_to_write(&path).unwrap();
    let both = std::fs::metadata(&path).unwrap().len();
    store.remove(&["q".to_string(), "p".to_string()]).unwrap();
    store.compact().unwrap();
    let removing = spent(&store, 2 * both - bytes);
    for (what, steps) in [
        ("reading", reading),
        ("loading", loading),
        ("removing", removing),
    ] {
        assert!(
            steps * 5 < super::guard::step_limit(bytes),
            "{what}: {steps} steps, {bytes} bytes"
        );
    }
}

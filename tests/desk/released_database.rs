//! A database that heapprof 0.2.0 wrote: every later heapprof reads it as it is, and brings its
//! schema up to date when it writes to it. (`store.rs` tests that newer databases are refused.)

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use heapprof_analysis::store::SCHEMA_VERSION;
use heapprof_tests::harness::{ok, sample_profiles};

/// The version of the schema that heapprof 0.2.0 wrote.
const STORED_VERSION: i64 = 11;

/// The profiles in the database, and the files from which they were loaded.
const STORED_PROFILES: &[(&str, &str)] = &[
    ("made.sampled", "valid/made.sampled.pb.gz"),
    ("made.labels", "valid/made.labels.pb.gz"),
    ("made.inlines", "valid/made.inlines.pb.gz"),
    ("made.recursion", "valid/made.recursion.pb.gz"),
    ("made.leaks", "valid/made.leaks.pb.gz"),
    ("made.unsymbolized", "valid/made.unsymbolized.pb.gz"),
    ("web1-00", "fleet/web1-00.pb.gz"),
    ("web1-01", "fleet/web1-01.pb.gz"),
];

/// Statements about all other tables, and their answers as CSV.
const STORED_ROWS: &[(&str, &str)] = &[
    (
        "SELECT key, value FROM profile_label JOIN profile ON profile.id = profile \
         WHERE name = 'web1-01' ORDER BY key",
        "host,web1\nservice,shop",
    ),
    (
        "SELECT count(*) AS children, sum(unshared_space) AS copied FROM fork_child",
        "2,1474560",
    ),
    (
        "SELECT DISTINCT name, kind, outcome FROM fork_load",
        "JSON/XS/Fast.pm,require,not found",
    ),
    ("SELECT count(*) AS n FROM fork_unshared", "2023"),
    (
        "SELECT name, host, command, interval_ms FROM watch",
        "sleep,shop1,sleep,100",
    ),
    (
        "SELECT name, ending FROM watch_process",
        "sleep,exit code 0",
    ),
    (
        "SELECT kind, text FROM watch_event ORDER BY number",
        "began,sleep\nended,exit code 0",
    ),
    ("SELECT count(*) AS n FROM watch_moment", "5"),
    (
        "SELECT code, sum(count) AS n FROM wiretap_code GROUP BY code ORDER BY code",
        "orders.cancel,3\norders.pay,1",
    ),
    ("SELECT count(*) AS n FROM wiretap_sender", "4"),
    ("SELECT why, count FROM wiretap_refused", "not understood,1"),
];

/// Unpacks the database into a folder.
fn unpacked(folder: &Path) -> PathBuf {
    let packed = sample_profiles().join("databases/heapprof-0.2.db.gz");
    let mut content = Vec::new();
    GzDecoder::new(std::fs::File::open(packed).unwrap())
        .read_to_end(&mut content)
        .unwrap();
    let path = folder.join("0.2.db");
    std::fs::write(&path, content).unwrap();
    path
}

/// Returns the version of the schema that the header of a database names.
fn version(db: &Path) -> i64 {
    let header = std::fs::read(db).unwrap();
    i64::from(u32::from_be_bytes(header[60..64].try_into().unwrap()))
}

/// Returns what heapprof prints about a database.
fn said(db: &Path, args: &[&str]) -> String {
    ok(&[&["--db", db.to_str().unwrap()], args].concat())
}

/// Checks that everything in the database is read as it was stored.
fn check_content(db: &Path) {
    let listed = said(db, &["db", "ls", "-f", "csv"]);
    for (name, file) in STORED_PROFILES {
        assert!(listed.contains(name), "{name}: {listed}");
        for report in [
            &["top", "-n", "0", "-f", "json"][..],
            &["tree", "-f", "json"],
            &["tags", "-f", "json"],
            &["traces", "-n", "0", "-f", "json"],
        ] {
            let direct = ok(&[report, &[file]].concat());
            let stored = said(db, &[report, &[name]].concat());
            assert_eq!(stored, direct, "{name}: {report:?}");
        }
    }
    for (statement, rows) in STORED_ROWS {
        let answer = said(db, &["sql", "-f", "csv", statement]);
        let (_, answer) = answer.split_once('\n').unwrap();
        assert_eq!(answer.trim_end(), *rows, "{statement}");
    }
}

#[test]
fn a_database_of_0_2_is_read_and_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let db = unpacked(folder.path());
    assert_eq!(version(&db), STORED_VERSION);
    check_content(&db);
    assert_eq!(version(&db), STORED_VERSION, "reading changes nothing");

    said(
        &db,
        &["db", "load", "--as", "new", "valid/made.sampled.pb.gz"],
    );
    assert_eq!(version(&db), SCHEMA_VERSION);
    check_content(&db);
    let (_, sampled) = STORED_PROFILES[0];
    assert_eq!(
        said(&db, &["top", "-f", "json", "new"]),
        ok(&["top", "-f", "json", sampled])
    );
    let diff = ["diff", "-n", "0", "-f", "json"];
    assert_eq!(
        said(&db, &[&diff[..], &["web1-00", "web1-01"]].concat()),
        ok(&[&diff[..], &["fleet/web1-00.pb.gz", "fleet/web1-01.pb.gz"]].concat())
    );
    let check = "SELECT integrity_check FROM pragma_integrity_check";
    assert!(said(&db, &["sql", "-f", "csv", check]).ends_with("ok\n"));

    for (name, _) in STORED_PROFILES {
        said(&db, &["db", "rm", name]);
    }
    let left = said(&db, &["sql", "-f", "csv", "SELECT name FROM profile"]);
    assert_eq!(left, "name\nnew\n");
}

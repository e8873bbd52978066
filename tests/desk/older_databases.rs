//! Databases that earlier heapprofs wrote: every later heapprof reads them as they are, and brings
//! their schema up to date when it writes to them. (`store.rs` tests that databases of a newer
//! heapprof are refused.)

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use heapprof_analysis::store::SCHEMA_VERSION;
use heapprof_tests::harness::{ok, sample_profiles};

/// A stored database, and what it contains.
struct OlderDatabase {
    /// The file in the folder of samples.
    file: &'static str,
    /// The version of its schema.
    version: i64,
    /// The files that were loaded. A profile has the name of its file.
    profiles: &'static [&'static str],
    /// Statements about everything else, and their answers as CSV.
    rows: &'static [(&'static str, &'static str)],
}

const OLDER_DATABASES: &[OlderDatabase] = &[
    OlderDatabase {
        file: "databases/heapprof-0.2.0.db.gz",
        version: 5,
        profiles: &[
            "valid/made.sampled.pb.gz",
            "valid/made.labels.pb.gz",
            "valid/made.inlines.pb.gz",
            "valid/made.recursion.pb.gz",
            "valid/made.leaks.pb.gz",
            "valid/made.unsymbolized.pb.gz",
            "valid/go.leaky.before.pb.gz",
            "fleet/web1-00.pb.gz",
        ],
        rows: &[("SELECT count(*) AS n FROM comment WHERE profile <= 8", "16")],
    },
    OlderDatabase {
        file: "databases/schema-11.db.gz",
        version: 11,
        profiles: &[
            "valid/made.sampled.pb.gz",
            "valid/made.labels.pb.gz",
            "valid/made.inlines.pb.gz",
            "valid/made.recursion.pb.gz",
            "valid/made.leaks.pb.gz",
            "valid/made.unsymbolized.pb.gz",
            "fleet/web1-00.pb.gz",
            "fleet/web1-01.pb.gz",
        ],
        rows: &[
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
        ],
    },
];

/// Unpacks a database into a folder.
fn unpacked(database: &OlderDatabase, folder: &Path) -> PathBuf {
    let packed = std::fs::File::open(sample_profiles().join(database.file)).unwrap();
    let mut content = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut content).unwrap();
    let path = folder.join(format!("{}.db", database.version));
    std::fs::write(&path, content).unwrap();
    path
}

/// Returns the version of the schema that the header of a database names.
fn version(db: &Path) -> i64 {
    let content = std::fs::read(db).unwrap();
    i64::from(u32::from_be_bytes(content[60..64].try_into().unwrap()))
}

/// Returns what heapprof prints about a database.
fn said(db: &Path, args: &[&str]) -> String {
    ok(&[&["--db", db.to_str().unwrap()], args].concat())
}

/// Returns the name under which a file was loaded.
fn name(file: &str) -> &str {
    let (_, name) = file.split_once('/').unwrap();
    name.strip_suffix(".pb.gz").unwrap()
}

/// Checks that everything in a database is read as it was stored.
fn check_content(db: &Path, stored: &OlderDatabase) {
    let listed = said(db, &["db", "ls", "-f", "csv"]);
    for file in stored.profiles {
        assert!(listed.contains(name(file)), "{file}: {listed}");
        for report in [
            &["top", "-n", "0", "-f", "json"][..],
            &["tree", "-f", "json"],
            &["tags", "-f", "json"],
            &["traces", "-n", "0", "-f", "json"],
        ] {
            assert_eq!(
                said(db, &[report, &[name(file)]].concat()),
                ok(&[report, &[file]].concat()),
                "{}: {file}: {report:?}",
                stored.file
            );
        }
    }
    for (statement, rows) in stored.rows {
        let answer = said(db, &["sql", "-f", "csv", statement]);
        let (_, answer) = answer.split_once('\n').unwrap();
        assert_eq!(answer.trim_end(), *rows, "{}: {statement}", stored.file);
    }
}

#[test]
fn older_databases_are_read_and_brought_up_to_date() {
    for stored in OLDER_DATABASES {
        let folder = tempfile::tempdir().unwrap();
        let db = unpacked(stored, folder.path());
        assert_eq!(version(&db), stored.version);
        check_content(&db, stored);
        assert_eq!(version(&db), stored.version, "reading changes nothing");

        let new = "valid/made.header.pb.gz";
        said(&db, &["db", "load", "--label", "service=shop", new]);
        assert_eq!(version(&db), SCHEMA_VERSION);
        check_content(&db, stored);
        assert_eq!(
            said(&db, &["top", "-f", "json", name(new)]),
            ok(&["top", "-f", "json", new])
        );
        let check = "SELECT integrity_check FROM pragma_integrity_check";
        assert!(said(&db, &["sql", "-f", "csv", check]).ends_with("ok\n"));

        for file in stored.profiles {
            said(&db, &["db", "rm", name(file)]);
        }
        let left = said(&db, &["sql", "-f", "csv", "SELECT name FROM profile"]);
        assert_eq!(left, "name\nmade.header\n");
    }
}

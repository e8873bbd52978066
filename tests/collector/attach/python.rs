//! Python's small objects in recordings that begin and end while Python runs.

use std::process::Command;

use heapprof_tests::built::have;
use heapprof_tests::harness::{preloaded, root};

use super::{Attach, Waiting, total};
use crate::python::{has_gil, pythons};

/// Least number of bytes that 40,000 objects of some 130 bytes have, even if few of them are
/// sampled.
const MANY: i64 = 3_000_000;
/// Largest number of bytes of the list that refers to the objects.
const FEW: i64 = 1_000_000;

#[test]
fn small_objects_come_and_go_with_whoever_is_attached() {
    if !have(&["python3"]) {
        return;
    }
    // A Python without the GIL rarely calls malloc before it is wrapped.
    for python in pythons().into_iter().filter(|python| has_gil(python)) {
        let mut command = Command::new(&python);
        command.arg(root().join("tests/python/waits.py"));
        let mut program = Waiting::start(command);
        // The second recording finds the wrappers in place, because the program sleeps meanwhile.
        for exact in [false, false, true, false] {
            let options: &[&str] = if exact {
                &["--exact"]
            } else {
                &["--period", "4KiB"]
            };
            let attach = Attach::begin(program.folder.path(), &program.pid(), options);
            program.work();
            let said = attach.leave();
            assert_eq!(said.code, 0, "{}", said.err);
            let total = program.total("inuse_space");
            let is_so = if exact { total < FEW } else { total > MANY };
            assert!(is_so, "{python:?}: exact {exact}: {total}");
        }
        // The program has its own allocators again.
        assert_eq!(program.end().code(), Some(0), "{python:?}");
    }
}

#[test]
fn small_objects_are_in_each_sample_that_a_program_begins() {
    if !have(&["python3"]) {
        return;
    }
    for python in pythons() {
        let folder = tempfile::tempdir().unwrap();
        let status = preloaded(&python)
            .arg(root().join("tests/python/starts.py"))
            .env("HEAPPROF_START", "no")
            .current_dir(folder.path())
            .status()
            .unwrap();
        assert!(status.success(), "{python:?}");
        let of = |name: &str| total(folder.path(), name, "inuse_space");
        let found = ["0.pb.gz", "1.pb.gz", "2.pb.gz"].map(of);
        // Without the GIL, all objects come from the allocator of small objects.
        let of_exact = if has_gil(&python) {
            found[1] < FEW
        } else {
            found[1] > MANY
        };
        let is_so = found[0] > MANY && of_exact && found[2] > MANY;
        assert!(is_so, "{python:?}: {found:?}");
    }
}

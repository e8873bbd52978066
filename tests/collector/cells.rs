//! Notebooks' cells: bodies of modules that differ in their files only, which are no files.

use std::path::Path;

use heapprof_tests::built::have;
use heapprof_tests::harness::{Run, command, root};

use crate::python::pythons;
use crate::scripts::{read, samples};

/// What bytearrays of bodies in files took, from a size on: the body's name, its file and the
/// bytes, in the order of the bytes.
fn bodies(python: &Path, least: i64) -> Vec<(String, String, i64)> {
    let folder = tempfile::tempdir().unwrap();
    let mut record = command(folder.path());
    record.args(["record", "--exact", "--no-symbolize", "-o", "p.pb.gz", "--"]);
    record.arg(python).arg(root().join("tests/python/cells.py"));
    let done = Run::from(record.output().unwrap());
    assert_eq!(done.code, 0, "{}: {}", python.display(), done.err);
    let mut all = Vec::new();
    for sample in samples(&read(&folder.path().join("p.pb.gz"))) {
        let is_made = |file: &str| {
            file.contains("/ipykernel_") || file.contains("ipython") || file == "/home/notebook.py"
        };
        let body = sample
            .frames
            .iter()
            .rev()
            .find(|(_, file, _)| is_made(file));
        if let Some((name, file, _)) = body
            && sample.allocated[1] >= least
        {
            all.push((sample.allocated[1], name.clone(), file.clone()));
        }
    }
    all.sort();
    all.into_iter()
        .map(|(bytes, name, file)| (name, file, bytes))
        .collect()
}

/// Code lies where other code lay, with the same name and the same line.
#[test]
fn bodies_in_different_files_are_told_apart() {
    if !have(&["python3"]) {
        return;
    }
    for python in pythons() {
        let what = python.display();
        let all = bodies(&python, 20_000);
        let small = all.iter().filter(|(.., bytes)| *bytes < 1_000_000);
        // Some of them make the list longer, too.
        let mut files: Vec<&str> = small.map(|(_, file, _)| &file[..]).collect();
        files.sort_unstable();
        let mut expected: Vec<String> = (0..200)
            .map(|i| format!("/tmp/ipykernel_8/{i}.py"))
            .collect();
        expected.sort_unstable();
        assert_eq!(files, expected, "{what}");
        let large = all.iter().filter(|(.., bytes)| *bytes >= 1_000_000);
        let megabytes: Vec<i64> = large.map(|(.., bytes)| bytes / 100_000).collect();
        assert_eq!(megabytes, [10, 11, 12, 13, 14, 15, 16], "{what}");
    }
}

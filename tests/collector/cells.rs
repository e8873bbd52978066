//! Notebook cells: module bodies that differ only in their file names, which name no real files.

use std::path::Path;

use heapprof_tests::built::have;
use heapprof_tests::harness::{Run, command, root};

use crate::python::{has_gil, pythons};
use crate::scripts::{read, samples};

/// Returns the bytearrays, of a size or more, that bodies in files allocated: the body's name, its
/// file and the bytes, sorted by the bytes.
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

/// New code may lie at the address of older code with the same name and line.
#[test]
fn bodies_in_different_files_are_told_apart() {
    if !have(&["python3"]) {
        return;
    }
    for python in pythons() {
        let what = python.display();
        let all = bodies(&python, 20_000);
        let small = all.iter().filter(|(.., bytes)| *bytes < 1_000_000);
        // Some bodies also grow the list.
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

/// A cell is named by the first line of its text. A cell whose text can't be found keeps its name,
/// and so do all cells if other users may change the text.
#[test]
fn cells_are_called_by_their_first_line() {
    if !have(&["python3"]) {
        return;
    }
    for python in pythons() {
        let has_gil = has_gil(&python);
        for (name, file, bytes) in bodies(&python, 20_000) {
            let what = format!("{} {file} {bytes}", python.display());
            let number = || file.rsplit(['/', '.']).nth(1).unwrap();
            let expected = match &file[..] {
                _ if !has_gil => "<module>".to_string(),
                "/tmp/ipykernel_7/11.py" => "cell: # load the orders".to_string(),
                "/t\u{e4}/ipykernel_7/12.py" => "cell: def load(n):".to_string(),
                file if file.starts_with("<ipython-input-2") => {
                    let line = "KEPT.append(bytearray(1100000))  # \u{e4}\u{20ac}\u{1f600} ";
                    let x = "x".repeat(60 - line.chars().count());
                    format!("cell: {line}{x}...")
                }
                file if file.starts_with("/tmp/ipykernel_8/") => {
                    let size = 20_000 + number().parse::<usize>().unwrap();
                    format!("cell: KEPT.append(bytearray({size}))")
                }
                _ => "<module>".to_string(),
            };
            assert_eq!(name, expected, "{what}");
        }
    }
}

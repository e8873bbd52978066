//! Tests line tables of each format, and compares lines of the standard library with Python's
//! results.

use std::process::Command;
use std::string::String;
use std::vec::Vec;

use super::*;

#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl Memory for Bytes<'_> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        let from = self
            .0
            .get(at as usize..)
            .and_then(|rest| rest.get(..to.len()));
        from.is_some_and(|from| {
            to.copy_from_slice(from);
            true
        })
    }
}

fn owner(first_line: u32) -> LineTableOwner {
    LineTableOwner {
        first_line,
        ..LineTableOwner::default()
    }
}

#[test]
fn tables_of_all_forms() {
    let reached = std::cell::Cell::new(LineTableProgress::default());
    let line = |form, table: &[u8], unit| {
        let place = (0, table.len() as u64);
        let owner = owner(10);
        let mut fresh = LineTableProgress::default();
        let found = line_of(Bytes(table), form, place, owner, unit, &mut fresh);
        // Going on from the place of the line before must give the same line.
        let mut again = reached.get();
        let by_parts = line_of(Bytes(table), form, place, owner, unit, &mut again);
        assert_eq!(by_parts, found, "{form:?} {unit}");
        reached.set(again);
        found
    };
    // def at 10; 4 bytes of line 11, 2 of line 13, and back to 12.
    let pairs = [0, 1, 4, 2, 2, 0xff];
    let of_pairs = |unit| line(LineTableFormat::Pairs, &pairs, unit);
    assert_eq!(
        [-1, 0, 1, 2, 3, 0, 2].map(of_pairs),
        [10, 11, 11, 13, 12, 11, 13].map(Some)
    );
    let ends = [4, 1, 2, 0x80, 2, 2];
    let of_ends = |unit| line(LineTableFormat::Ends, &ends, unit);
    assert_eq!(
        [0, 1, 2, 3, 4].map(of_ends),
        [Some(11), Some(11), None, Some(13), None]
    );
    // One unit on the next line, in short; two with no line; one 70 lines on, in long.
    let entries = [
        0x80 | 11 << 3,
        0,
        0,
        0x80 | 15 << 3 | 1,
        0x80 | 14 << 3,
        0x40 | (140 & 63),
        140 >> 6,
        0,
        0,
        0,
        0x80 | 13 << 3,
        3,
    ];
    let of_entries = |unit| line(LineTableFormat::Entries, &entries, unit);
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(of_entries),
        [Some(11), None, None, Some(81), Some(80), None]
    );
    assert_eq!(
        line(LineTableFormat::Entries, &[0x80 | 14 << 3, 0x7f], 0),
        None
    );
}

/// Tests a table at the address at which another function's table was before.
#[test]
fn a_table_at_the_place_of_another_is_read_from_its_begin() {
    let mut reached = LineTableProgress::default();
    let tables = [[4, 5, 2, 2, 2, 1], [4, 1, 2, 2, 2, 1]];
    let lines = tables.iter().zip(0..).map(|(table, version)| {
        let owner = LineTableOwner {
            version,
            ..owner(10)
        };
        line_of(
            Bytes(table),
            LineTableFormat::Ends,
            (0, 6),
            owner,
            3,
            &mut reached,
        )
    });
    assert_eq!(lines.collect::<Vec<_>>(), [Some(18), Some(14)]);
}

/// Returns the pythons to run: `python3` on the path, and those in HEAPPROF_PYTHONS, separated by
/// colons.
fn pythons() -> Vec<String> {
    let more = std::env::var("HEAPPROF_PYTHONS").unwrap_or_default();
    let more = more.split(':').filter(|name| !name.is_empty());
    std::iter::once("python3")
        .chain(more)
        .map(String::from)
        .collect()
}

/// Compares the lines of all instructions in `files` files of the standard library with Python's
/// results. Returns the number of instructions.
fn compare(python: &str, files: usize) -> usize {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../tests/python/lines.py"
    );
    let mut command = Command::new(python);
    let done = command.arg(script).arg(std::format!("{files}")).output();
    let done = match done {
        Err(_) if std::env::var_os("HEAPPROF_REQUIRE").is_none() => {
            // The tests of the collector report that Python is missing.
            return usize::MAX;
        }
        done => done.unwrap(),
    };
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{python}: {said}");
    let reported = String::from_utf8(done.stdout).unwrap();
    let (minor, codes) = reported.split_once('\n').unwrap();
    let minor: u8 = minor.parse().unwrap();
    let layout = crate::layout::LAYOUTS.iter().find(|l| l.minor == minor);
    let form = layout.unwrap().lines;
    let mut count = 0;
    for code in codes.lines() {
        let mut words = code.split(' ');
        let first = words.next().unwrap().parse().unwrap();
        let hex = words.next().unwrap().trim_start_matches('-');
        let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        let table: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let (mut unit, mut reached) = (0, LineTableProgress::default());
        for run in words.next().unwrap().split(',') {
            let (times, line) = run.split_once('x').unwrap();
            let expected = line.parse::<i64>().ok().filter(|&line| line >= 0);
            for _ in 0..times.parse().unwrap() {
                let table = (Bytes(&table), (0, table.len() as u64));
                let mut fresh = LineTableProgress::default();
                for reached in [&mut fresh, &mut reached] {
                    let found = line_of(table.0, form, table.1, owner(first), unit, reached);
                    assert_eq!(found.map(i64::from), expected, "{python}: {code}: {unit}");
                }
                (unit, count) = (unit + 1, count + 1);
            }
        }
    }
    count
}

#[test]
fn lines_are_python_s() {
    for python in pythons() {
        let count = compare(&python, 12);
        assert!(count > 2000, "{python}: {count}");
    }
}

#[test]
#[ignore = "takes a minute for each python; HEAPPROF_PYTHONS names more of them"]
fn lines_of_the_whole_standard_library_are_python_s() {
    for python in pythons() {
        let count = compare(&python, usize::MAX >> 1);
        assert!(count > 500_000, "{python}: {count}");
    }
}

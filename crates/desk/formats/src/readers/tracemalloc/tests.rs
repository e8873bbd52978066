//! Checks that snapshots give tracemalloc's own statistics, and that pickles with other
//! instructions are refused.

use std::collections::BTreeMap;

use crate::profile_text::{error, folder, read_bytes, samples};
use crate::{FormatReadOptions, ProfileFormat, ProfileReading, read};

fn snapshot(name: &str) -> Vec<u8> {
    std::fs::read(folder("sample-profiles/tracemalloc").join(name)).unwrap()
}

/// Computes the rows of `sample-profiles/tracemalloc/rows.py`.
fn rows(reading: &ProfileReading) -> Vec<String> {
    let profile = &reading.profile;
    let mut rows: BTreeMap<String, [i64; 2]> = BTreeMap::new();
    for i in 0..profile.samples.len() {
        let places = profile.samples.stack(i).iter().map(|location| {
            let line = &profile.lines(&profile.location[location.index()])[0];
            let function = &profile.function[line.function.index()];
            let place = format!("{}:{}", profile.text(function.filename), line.line);
            assert_eq!(profile.text(function.name), place);
            place
        });
        let places: Vec<String> = places.collect();
        let kinds = [
            format!("lineno COUNTS {}", places[0]),
            format!("traceback COUNTS {}", places.join(";")),
        ];
        for kind in kinds {
            let row = rows.entry(kind).or_default();
            for (sum, value) in row.iter_mut().zip(profile.samples.values(i)) {
                *sum += value;
            }
        }
    }
    let rows = rows
        .iter()
        .map(|(row, [blocks, bytes])| row.replace("COUNTS", &format!("{blocks} {bytes}")));
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn statistics_are_those_of_tracemalloc() {
    let golden = folder("tests/golden/foreign/ledger.tracemalloc.txt");
    let golden = std::fs::read_to_string(golden).unwrap();
    let mut files = 0;
    for file in golden.split("file ").filter(|file| !file.is_empty()) {
        let (name, expected) = file.split_once('\n').unwrap();
        let reading = read_bytes(&snapshot(name));
        assert_eq!(reading.format, ProfileFormat::Tracemalloc);
        assert_eq!(
            rows(&reading),
            expected.lines().collect::<Vec<_>>(),
            "{name}"
        );
        files += 1;
    }
    assert_eq!(files, 4);
}

#[test]
fn the_limit_of_frames_is_a_comment() {
    for (name, cut) in [
        (
            "ledger.pickle",
            "4 frames of a stack; 197 of 206 traces had more",
        ),
        ("ledger.python-3.6.pickle", "4 frames of a stack; 0 of "),
    ] {
        let profile = read_bytes(&snapshot(name)).commented();
        let comment = profile.text(profile.comment[0]);
        assert!(
            comment.starts_with(&format!("tracemalloc kept at most {cut}")),
            "{comment}"
        );
    }
}

/// Makes a snapshot as a pickle of protocol 2, with these traces in a list and the limit 1.
fn made(traces: &[u8]) -> Vec<u8> {
    let parts: [&[u8]; 3] = [
        b"\x80\x02ctracemalloc\nSnapshot\nq\x00)\x81q\x01}q\x02(X\x06\0\0\0tracesq\x03\
          ctracemalloc\n_Traces\nq\x04)\x81q\x05}q\x06X\x07\0\0\0_tracesq\x07]q\x08(",
        traces,
        b"esbX\x0f\0\0\0traceback_limitK\x01ub.",
    ];
    parts.concat()
}

/// A trace of 300 bytes at `a.py:7` in domain 0.
const TRACE: &[u8] = b"(K\x00M\x2c\x01X\x04\0\0\0a.pyq\x09K\x07\x86\x85K\x01tq\x0a";

#[test]
fn traces_are_added_up() {
    assert_eq!(
        samples(&read_bytes(&made(TRACE)).profile),
        ["a.py:7@a.py:7 1 300"]
    );
    // The same trace again, one trace without a line in a domain of C code, and one of 2^40 bytes.
    let more = [
        TRACE,
        b"h\x0a(K\x09K\x05h\x09K\x00\x86\x85K\x01t(K\x00\x8a\x06\0\0\0\0\0\x01)K\x00t",
    ];
    assert_eq!(
        samples(&read_bytes(&made(&more.concat())).profile),
        [
            "a.py:7@a.py:7 2 600",
            "a.py@a.py [domain=9] 1 5",
            "(no frames) 1 1099511627776"
        ]
    );
    assert!(read_bytes(&made(b"")).profile.samples.is_empty());
}

/// Checks the memory limit. Each line of a path needs a text with the whole path.
#[test]
fn many_lines_of_a_long_path_take_too_much_memory() {
    let path = [b'a'; 60_000];
    let mut frames = [
        b"(K\x00M\x2c\x01(X",
        &60_000_u32.to_le_bytes()[..],
        &path,
        b"q\x09K\x07\x86",
    ]
    .concat();
    for line in 1..3000_u16 {
        frames.extend([&b"h\x09M"[..], &line.to_le_bytes(), b"\x86"].concat());
    }
    frames.extend(b"tK\x01t");
    let options = FormatReadOptions::default().max_inflated(1 << 20);
    let error = read(&made(&frames)[..], &options).unwrap_err().to_string();
    assert!(error.contains("memory"), "{error}");
}

#[test]
fn nothing_is_run() {
    const BEGIN: &[u8] = b"\x80\x02ctracemalloc\nSnapshot\n";
    let table: [(&[u8], &str); 6] = [
        (
            b"\x80\x02ctracemalloc\nstart\n)R.",
            "byte 21: expected a class that a snapshot has, tracemalloc.Snapshot or \
             tracemalloc._Traces, found \"tracemalloc.start\"; heapprof does not execute pickles",
        ),
        (
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0btracemalloc\x85R.",
            "byte 15: expected a class that a snapshot has, tracemalloc.Snapshot or \
             tracemalloc._Traces, found \"os.system\"; heapprof does not execute pickles",
        ),
        (
            &[BEGIN, b")R."].concat(),
            "byte 26: expected an instruction that a tracemalloc snapshot has, found 'R'; heapprof \
             does not execute pickles",
        ),
        (
            &[BEGIN, b"\x92."].concat(),
            "byte 25: expected an instruction that a tracemalloc snapshot has, found 0x92; \
             heapprof does not execute pickles",
        ),
        (
            &[BEGIN, b"."].concat(),
            "byte 25: expected an attribute `traces` that holds a list of traces in the \
             tracemalloc snapshot, found something else",
        ),
        (
            &[BEGIN, b")\x81}b.more"].concat(),
            "byte 30: expected the end of the file, found more",
        ),
    ];
    for (pickle, expected) in table {
        assert_eq!(error(pickle), expected);
    }
}

#[test]
fn damage_is_said_in_one_line() {
    let start = made(b"").len() - b"esbX\x0f\0\0\0traceback_limitK\x01ub.".len();
    let at = |place: usize| format!("byte {}: ", start + place);
    let stack =
        |what: &str| format!("expected {what} on the stack of the pickle, found something else");
    let table: [(&[u8], String); 11] = [
        (b"\x86\x86\x86", at(1) + &stack("the items of a tuple")),
        (b"(\x87", at(2) + &stack("the items of a tuple")),
        (b"(t", String::new()),
        (b"q\x20", at(2) + "expected memo number 9, found 32"),
        (b"h\x20", at(2) + "expected a memo number below 9, found 32"),
        (b"b", at(1) + &stack("an object and its attributes")),
        (b"K\x01u", at(3) + &stack("a dictionary")),
        (b"K\x01b", at(3) + &stack("an object and its attributes")),
        (
            b"X\xff\xff\xff\xff",
            at(5) + "expected a string in the pickle, found 4294967295 bytes, more than 65536",
        ),
        (
            b"\x8a\x09",
            at(2) + "expected a number that fits in 64 bits, found 9 bytes, more than 8",
        ),
        (b"\x81", at(1) + &stack("a class of tracemalloc")),
    ];
    for (traces, expected) in table {
        let found = error(&made(traces));
        match expected.is_empty() {
            true => assert!(
                found.contains("expected a trace of a domain, a size"),
                "{found}"
            ),
            false => assert_eq!(found, expected),
        }
    }
    let whole = made(&[b"(K\x00\x8a\x08\0\0\0\0\0\0\0\xff", &b")K\x00t"[..]].concat());
    assert!(error(&whole).ends_with("the profile's values are not plausible"));
    let whole = snapshot("ledger.pickle");
    for at in 40..whole.len() {
        let found = error(&whole[..at]);
        assert!(
            found.ends_with("the end of the file; copy or download it again"),
            "{found}"
        );
    }
    let other = b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x01a.";
    assert_eq!(
        error(other),
        "is not in a format that heapprof reads: it is a Python pickle; the only pickles that \
         heapprof reads are snapshots of tracemalloc: snapshot.dump(FILE); it does not execute \
         pickles"
    );
}

/// Checks that files with some bytes changed are read or refused.
#[test]
fn changed_bytes_are_no_panic() {
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let files = [
        snapshot("ledger.pickle"),
        snapshot("ledger.protocol-2.pickle"),
        made(TRACE),
    ];
    let options = FormatReadOptions::default().max_inflated(64 << 20);
    let mut read_anyway = 0;
    for round in 0..3000 {
        let mut file = files[round % files.len()].clone();
        for _ in 0..1 + random(3) {
            let place = random(file.len());
            file[place] = [0, 0xff, b't', b'(', 0x86, b'h', random(256) as u8][random(7)];
        }
        read_anyway += usize::from(read(&file[..], &options).is_ok());
    }
    assert!(read_anyway > 30, "{read_anyway}");
}

/// Checks the memory for a pickle that has one stack of many frames, in many domains.
#[test]
fn a_stack_in_many_domains_takes_bounded_memory() {
    let mut traces = b"(K\x00K\x01(X\x01\0\0\0aK\x01\x86q\x09".to_vec();
    traces.extend(b"h\x09".repeat(5000));
    traces.extend(b"tq\x0aK\x00t");
    for domain in 1..3000u16 {
        let [low, high] = domain.to_le_bytes();
        traces.extend([b'(', b'M', low, high, b'K', 1, b'h', 10, b'K', 0, b't']);
    }
    let found = error(&made(&traces));
    assert!(found.contains("frames in the stacks that 4"), "{found}");
}

//! Checks that captures of memray give the same sums as memray, and that damage is reported in one
//! line.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile_text::{error, folder, read_bytes, samples, types};
use crate::{FormatReadOptions, ProfileFormat, ProfileReading, read};

fn capture(name: &str) -> Vec<u8> {
    std::fs::read(folder("sample-profiles/memray").join(name)).unwrap()
}

/// Computes the rows of `sample-profiles/memray/rows.py`: blocks, bytes, and bytes including
/// callees, by kind and line.
fn rows(reading: &ProfileReading) -> BTreeMap<String, [i64; 3]> {
    let profile = &reading.profile;
    let mut rows: BTreeMap<String, [i64; 3]> = BTreeMap::new();
    let kinds = types(profile);
    for i in 0..profile.samples.len() {
        let places: Vec<String> = profile
            .samples
            .stack(i)
            .iter()
            .map(|location| {
                let line = &profile.lines(&profile.location[location.index()])[0];
                let function = &profile.function[line.function.index()];
                let (name, file) = (function.name, function.filename);
                format!(
                    "{} {}:{}",
                    profile.text(name),
                    profile.text(file),
                    line.line
                )
            })
            .collect();
        for (kind, values) in kinds.chunks(2).zip(profile.samples.values(i).chunks(2)) {
            let kind = kind[0].split('_').next().unwrap();
            for own in [&places[0], "all"] {
                let row = rows.entry(format!("{kind} {own}")).or_default();
                row[0] += values[0];
                row[1] += values[1];
            }
            for place in places.iter().collect::<BTreeSet<_>>() {
                rows.entry(format!("{kind} {place}")).or_default()[2] += values[1];
            }
        }
    }
    rows.retain(|place, row| {
        (place.ends_with(" all") || place.contains(" pantry.py:")) && *row != [0; 3]
    });
    rows
}

#[test]
fn sums_are_those_of_memray() {
    let golden = folder("tests/golden/foreign/pantry.memray.txt");
    let golden = std::fs::read_to_string(golden).unwrap();
    let mut files = 0;
    for file in golden.split("file ").filter(|file| !file.is_empty()) {
        let (name, expected) = file.split_once('\n').unwrap();
        let reading = read_bytes(&capture(name));
        assert_eq!(reading.format, ProfileFormat::Memray);
        let mut found = rows(&reading);
        for row in expected.lines() {
            let words: Vec<&str> = row.splitn(5, ' ').collect();
            let key = format!("{} {}", words[0], words[4]);
            let found = found
                .remove(&key)
                .unwrap_or_else(|| panic!("{name}: {row}"));
            let [blocks, bytes, all] = found.map(|value| value.to_string());
            if words[1] != "-" {
                assert_eq!(blocks, words[1], "{name}: {row}");
            }
            assert_eq!([&bytes[..], &all], words[2..4], "{name}: {row}");
        }
        assert!(found.is_empty(), "{name}: {found:?}");
        files += 1;
    }
    assert_eq!(files, 10);
}

/// Checks that the counts in a file with sums equal the counts of a list. memray's own reader does
/// not read these counts.
#[test]
fn both_kinds_of_files_say_the_same() {
    // The memory that the start of a thread takes changes from run to run.
    let same_in_both =
        |row: &String| row.contains(" pantry.py:") && !row.ends_with(" pantry.py:52");
    for (list, sums) in [
        ("pantry.bin", "pantry.aggregated.bin"),
        ("pantry.version-11.bin", "pantry.version-11.aggregated.bin"),
    ] {
        let mut list = rows(&read_bytes(&capture(list)));
        let mut sums = rows(&read_bytes(&capture(sums)));
        list.retain(|row, _| same_in_both(row) && !row.starts_with("alloc"));
        sums.retain(|row, _| same_in_both(row));
        assert_eq!(list, sums);
    }
}

#[test]
fn labels_and_comments_say_how_it_was_recorded() {
    let all = |name: &str| {
        let profile = read_bytes(&capture(name)).commented();
        let comments = profile.comment.iter().map(|&comment| profile.text(comment));
        let comments: Vec<String> = comments.map(str::to_string).collect();
        (comments.join("\n"), samples(&profile).join("\n"))
    };
    let (comments, samples) = all("pantry.bin");
    assert!(
        comments.contains("command: /srv/venv/bin/memray run"),
        "{comments}"
    );
    assert!(comments.contains("\npython: 3.11\n"), "{comments}");
    assert!(
        comments.contains("Python's own blocks are not recorded"),
        "{comments}"
    );
    assert!(comments.contains("peak resident set: "), "{comments}");
    assert!(
        samples.contains("cook@pantry.py:31 [allocator=mmap] [thread=cook-1]"),
        "{samples}"
    );
    let (comments, samples) = all("pantry.python.bin");
    assert!(
        comments.contains("Python's own blocks are recorded"),
        "{comments}"
    );
    assert!(samples.contains("[allocator=pymalloc_malloc]"), "{samples}");
    assert!(
        all("pantry.native.bin")
            .0
            .contains("native stacks are left out")
    );
    assert!(
        all("pantry.aggregated.bin")
            .0
            .contains("--aggregate leaves out")
    );
    let (comments, _) = all("pantry.killed.bin");
    assert!(comments.contains("the program was killed"), "{comments}");
    let profile = read_bytes(&capture("pantry.bin")).profile;
    assert_eq!(profile.text(profile.default_sample_type), "peak_space");
    assert!(profile.time_nanos > 0 && profile.duration_nanos > 0);
}

/// Makes a capture in the form of `memray run --no-compress`: its header, and these records.
fn made(is_aggregated: bool, records: &[u8]) -> Vec<u8> {
    let mut file = b"memray\0\x0d\0\0\0\xf0\x07\x0b\x03\0".to_vec();
    file.push(u8::from(is_aggregated));
    file.extend([0; 32]);
    file.extend(b"memray run app.py\0");
    file.extend([7, 0, 0, 0]);
    file.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    file.extend([0; 8]);
    file.extend(b"\x01\0\0/usr/lib\0/a\0\0/b\0\0");
    file.extend(records);
    file
}

/// Records of a function `f` at line 3, and of a thread that calls it and allocates 300 bytes.
const LIST: &[u8] =
    b"\x0e\x05f\0a.py\0\x06\x02\x80\x00\x0c\x01\0\0\0\0\0\0\0\x41\x05\0\xfe\x80\x10\xac\x02\x10\x01";

#[test]
fn a_list_is_read_record_by_record() {
    let reading = read_bytes(&made(false, LIST));
    assert_eq!(
        samples(&reading.profile),
        ["f@a.py:3 [allocator=malloc] [thread=0x1] 1 300 1 300 1 300"]
    );
    // A function that is not described anywhere, and frees by the address that was used last.
    let mut records = LIST[13..LIST.len() - 2].to_vec();
    records.extend(b"\x85\x83\x20\x01");
    let reading = read_bytes(&made(false, &records));
    assert_eq!(
        samples(&reading.profile),
        [
            "(unknown function) [allocator=malloc] [thread=0x1] 1 300 1 300 0 0",
            "(unknown function) [allocator=pymalloc_calloc] [thread=0x1] 1 32 0 0 1 32"
        ]
    );
}

#[test]
fn damage_is_said_in_one_line() {
    let head = made(false, b"").len();
    let at = |place: usize| format!("byte {}: ", head + place);
    let table: [(&[u8], String); 9] = [
        (
            b"\x0f",
            at(0) + "expected a memray record, found kind 15; copy or download it again",
        ),
        (
            b"\xfe\x80\x10\x05\x01",
            at(4) + "expected a thread record before its events, found none",
        ),
        (
            b"\x41\x05\0\x01",
            at(3) + "expected a thread record before its events, found none",
        ),
        (b"\x1f\x01", at(1) + "expected at most 0 returns, found 16"),
        (
            b"\x0c\x01\0\0\0\0\0\0\0\xf8\x02\x63\x01\x01",
            at(12) + "expected an allocator, found 99",
        ),
        (
            b"\x0c\x01\0\0\0\0\0\0\0\xfe\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01",
            at(21)
                + "the size of a block does not fit in 64 bits; the profile's values are not plausible",
        ),
        (
            b"\x41\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01",
            at(11) + "expected a code object, found a number of more than ten bytes",
        ),
        (
            b"\x0e\x05f\0a.py\0\x06\xff\xff\xff\xff\x0f\x01",
            at(15)
                + "expected the table of a function's lines, found 4294967295 bytes, more than 16777216",
        ),
        (b"\x08\x01", String::new()),
    ];
    for (records, expected) in table {
        let file = made(false, records);
        match expected.is_empty() {
            // A record that is cut is the last one of a program that was killed.
            true => assert!(read_bytes(&file).profile.samples.is_empty()),
            false => assert_eq!(error(&file), expected),
        }
    }
    let head = made(true, b"").len();
    let table: [(&[u8], &str); 4] = [
        (
            b"\x06",
            "expected a record, or the end mark, found the end of the file; copy or download it again",
        ),
        (
            b"\x03\x01\x01\x0f",
            "expected a known frame, and a stack number of at most 0, found frame 1 and stack 1",
        ),
        (
            b"\x04\x07\x01\x02\x01\x0f",
            "expected the next number of a frame, found 7",
        ),
        (
            b"\x10\x0f",
            "expected a memray record, found kind 16; copy or download it again",
        ),
    ];
    for (records, expected) in table {
        let found = error(&made(true, records));
        let place: usize = found[5..].split(':').next().unwrap().parse().unwrap();
        assert!((head..=head + records.len()).contains(&place), "{found}");
        assert_eq!(found.split_once(": ").unwrap().1, expected);
    }
}

#[test]
fn other_versions_are_named() {
    for version in [6u8, 9, 14] {
        let mut file = made(false, LIST);
        file[7] = version;
        assert_eq!(
            error(&file),
            format!(
                "is a memray capture of version {version}, but heapprof reads versions 10 to 13, \
                 of memray 1.7 to 1.20; the memray that wrote it reads it: memray stats FILE"
            )
        );
    }
    let options = FormatReadOptions::default().part(crate::PartSelector::parse("2"));
    let error = read(&made(false, LIST)[..], &options).unwrap_err();
    assert!(
        error.to_string().starts_with("is a single profile (memray"),
        "{error}"
    );
}

#[test]
fn a_cut_file_is_no_panic() {
    let list = capture("pantry.killed.bin");
    let end = list.iter().rposition(|&byte| byte != 0).unwrap();
    for at in (8..end).step_by(97) {
        match read(&list[..at], &FormatReadOptions::default()) {
            Ok(reading) => {
                let comments = reading.commented();
                let texts = comments.comment.iter().map(|&text| comments.text(text));
                assert!(
                    texts.into_iter().any(|text| text.contains("end mark")),
                    "{at}"
                );
            }
            Err(error) => assert!(error.to_string().contains("header") || at < 2048, "{error}"),
        }
    }
    for name in ["pantry.bin", "pantry.aggregated.bin"] {
        let file = capture(name);
        for at in (8..file.len()).step_by(file.len() / 90) {
            let error = error(&file[..at]);
            assert!(error.ends_with("copy or download it again"), "{error}");
        }
        // After the last byte, lz4 data has no checksum that could show the damage.
        let damaged = [&file[..], b"more"].concat();
        assert!(error(&damaged).starts_with("the lz4 data is damaged"));
    }
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
    let mut files = vec![made(false, LIST)];
    for name in [
        "pantry.bin",
        "pantry.aggregated.bin",
        "pantry.version-10.bin",
        "pantry.native.bin",
    ] {
        let file = capture(name);
        let mut plain = Vec::new();
        let stream = crate::unpack::plain_stream(Vec::new(), &file[..]);
        std::io::Read::read_to_end(&mut stream.unwrap(), &mut plain).unwrap();
        files.extend([file, plain]);
    }
    let options = FormatReadOptions::default().max_inflated(64 << 20);
    let mut read_anyway = 0;
    for round in 0..600 {
        let mut file = files[round % files.len()].clone();
        let start = random(file.len());
        for _ in 0..1 + random(4) {
            let place = (start + random(40)) % file.len();
            file[place] = [0, 0xff, 0x80, random(256) as u8][random(4)];
        }
        read_anyway += usize::from(read(&file[..], &options).is_ok());
    }
    assert!(read_anyway > 30, "{read_anyway}");
}

/// Checks the memory for a capture in which each call is within the one before it, and each call
/// allocates.
#[test]
fn deep_stacks_take_bounded_memory() {
    let deep = |depth: usize| {
        let mut records = b"\x0c\x01\0\0\0\0\0\0\0".to_vec();
        for i in 0..depth {
            records.extend([0x40, 1, 0, 0xfe, 2, 1]);
            records[9 + 6 * i + 1] = (i % 100) as u8;
        }
        records.push(1);
        made(false, &records)
    };
    let reading = read_bytes(&deep(1000));
    assert_eq!(reading.profile.samples.frames(), 1000 * 1001 / 2);
    let found = error(&deep(20_000));
    assert!(found.contains("frames in the stacks that 120"), "{found}");
}

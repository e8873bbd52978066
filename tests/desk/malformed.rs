//! Profiles that must be refused, each kind with one line that names the defect, and exit code 2.
//!
//! `HEAPPROF_BLESS=1` writes the files and docs/malformed-profiles.md anew; the texts below must
//! still hold.

use heapprof_tests::harness::{bless, expect_file, root, run, sample_profiles};
use heapprof_tests::wire::{Parts, gzip, len, num, packed, varint};

struct Case {
    /// The file, in sample-profiles/malformed or foreign.
    file: &'static str,
    bytes: Vec<u8>,
    /// The text that the error must contain.
    says: &'static str,
    /// More arguments.
    args: &'static [&'static str],
}

fn case(file: &'static str, bytes: impl Into<Vec<u8>>, says: &'static str) -> Case {
    Case {
        file,
        bytes: bytes.into(),
        says,
        args: &[],
    }
}

/// Returns a profile in which one part differs from the usual one.
fn with(change: impl FnOnce(&mut Parts)) -> Vec<u8> {
    let mut parts = Parts::default();
    change(&mut parts);
    gzip(&parts.bytes())
}

fn cases() -> Vec<Case> {
    let whole = Parts::default().bytes();
    let gz = gzip(&whole);
    let cut = |bytes: &[u8], at: usize| bytes[..at].to_vec();
    let mut damaged = gz.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    let mut checksum = gz.clone();
    let end = checksum.len() - 8;
    checksum[end] ^= 1;
    let sample = |body: Vec<u8>| with(|p| p.sample = len(2, body));
    let location = |body: Vec<u8>| with(|p| p.location = len(4, body));
    let bomb: Vec<u8> = {
        let mut parts = Parts::default();
        parts.strings.extend(len(6, vec![b'a'; 3 << 20]));
        gzip(&parts.bytes())
    };
    let huge = Parts {
        sample: [i64::MAX, i64::MAX]
            .iter()
            .flat_map(|&v| len(2, [packed(1, &[1]), packed(2, &[1, v])].concat()))
            .collect(),
        ..Parts::default()
    };
    let spread = |sampled: Vec<u8>, variance: Vec<u8>| {
        sample([packed(1, &[1]), packed(2, &[3, 96]), sampled, variance].concat())
    };
    let variances = |v: &[f64]| {
        let bytes: Vec<u8> = v.iter().flat_map(|v| v.to_le_bytes()).collect();
        len(1002, bytes)
    };
    let odd = |variance: f64| spread(packed(1001, &[1, 1]), variances(&[1.0, variance]));
    vec![
        case("empty.pb.gz", "", "is empty"),
        case("empty-inside-gzip.pb.gz", gzip(b""), "is empty"),
        case("gzip-header-cut.pb.gz", cut(&gz, 7), "cut short"),
        case("gzip-data-cut.pb.gz", cut(&gz, gz.len() / 2), "cut short"),
        case(
            "gzip-trailer-cut.pb.gz",
            cut(&gz, gz.len() - 3),
            "cut short",
        ),
        case(
            "gzip-data-damaged.pb.gz",
            damaged,
            "the gzip data is damaged",
        ),
        case(
            "gzip-checksum-wrong.pb.gz",
            checksum,
            "the gzip data is damaged",
        ),
        case(
            "gzip-trailing-junk.pb.gz",
            [&gz[..], b"junk"].concat(),
            "something that is not gzip follows",
        ),
        case("gzip-twice.pb.gz", gzip(&gz), "is gzipped twice"),
        Case {
            file: "gzip-bomb.pb.gz",
            bytes: bomb,
            says: "inflates to more than 1048576 bytes",
            args: &["--max-inflated", "1MiB"],
        },
        case("cut-in-tag.pb", [&whole[..], &[0x80]].concat(), "cut short"),
        case("cut-in-sample.pb", cut(&whole, 16), "claims"),
        case(
            "cut-in-string-table.pb",
            cut(&whole, whole.len() - 3),
            "claims",
        ),
        case(
            "length-absurd.pb",
            [len(1, num(1, 1)), vec![0x12], varint(1 << 60)].concat(),
            "claims 1152921504606846976 bytes",
        ),
        case(
            "length-beyond-message.pb.gz",
            sample([vec![0x0a], varint(99), vec![1]].concat()),
            "claims 99 bytes",
        ),
        case(
            "varint-too-long.pb.gz",
            sample([vec![0x08], vec![0xff; 11]].concat()),
            "more than ten bytes",
        ),
        case(
            "field-number-zero.pb",
            [&whole[..], &[0x00, 0x01]].concat(),
            "field number 0",
        ),
        case("wire-type-group.pb.gz", sample(vec![0x0b]), "wire type 3"),
        case(
            "wire-type-unassigned.pb",
            [&whole[..], &[0x0f]].concat(),
            "wire type 7",
        ),
        case(
            "wrong-type-for-number.pb.gz",
            with(|p| p.strings.extend(len(9, "x"))),
            "expected a number",
        ),
        case(
            "wrong-type-for-message.pb.gz",
            with(|p| p.sample = num(2, 5)),
            "expected bytes",
        ),
        case(
            "wrong-type-in-function.pb.gz",
            with(|p| p.function = len(5, [num(1, 1), len(2, "x")].concat())),
            "malformed function #1",
        ),
        case(
            "no-sample-types.pb.gz",
            with(|p| p.types = Vec::new()),
            "has no sample types",
        ),
        case(
            "sample-types-too-many.pb.gz",
            with(|p| p.types = p.types.repeat(600)),
            "is beyond the 1024 that a profile may have",
        ),
        case(
            "values-too-few.pb.gz",
            sample([packed(1, &[1]), packed(2, &[3])].concat()),
            "has 1 values, the profile has 2 sample types",
        ),
        case(
            "values-too-many.pb.gz",
            sample([packed(1, &[1]), packed(2, &[3, 4, 5])].concat()),
            "has 3 values",
        ),
        case(
            "values-uneven.pb.gz",
            with(|p| {
                p.sample
                    .extend(len(2, [packed(1, &[1]), packed(2, &[3])].concat()))
            }),
            "the samples before it have 2",
        ),
        case(
            "spread-too-short.pb.gz",
            spread(packed(1001, &[1]), variances(&[1.0])),
            "has 1 counts of samples and 1 variances for 2 values",
        ),
        case(
            "spread-half.pb.gz",
            spread(packed(1001, &[1, 1]), Vec::new()),
            "has 2 counts of samples and 0 variances for 2 values",
        ),
        case(
            "spread-uneven.pb.gz",
            spread(packed(1001, &[1, 1]), len(1002, [0; 12])),
            "malformed sample #1",
        ),
        case(
            "spread-of-other-type.pb.gz",
            spread(packed(1001, &[1, 1]), num(1002, 1)),
            "field 1002 is encoded as a number, expected 64-bit words",
        ),
        case(
            "spread-negative.pb.gz",
            odd(-1.0),
            "has the impossible variance -1",
        ),
        case(
            "spread-infinite.pb.gz",
            odd(f64::INFINITY),
            "has the impossible variance inf",
        ),
        case(
            "spread-not-a-number.pb.gz",
            odd(f64::NAN),
            "has the impossible variance NaN",
        ),
        case(
            "spread-beyond-64-bits.pb.gz",
            spread(packed(1001, &[1, -1]), variances(&[1.0, 1.0])),
            "has a value of 18446744073709551615 samples",
        ),
        case(
            "location-missing.pb.gz",
            sample([packed(1, &[77]), packed(2, &[3, 96])].concat()),
            "malformed sample #1: has location 77, which is not in the file",
        ),
        case(
            "location-zero-in-sample.pb.gz",
            sample([packed(1, &[0]), packed(2, &[3, 96])].concat()),
            "has location 0",
        ),
        case("location-id-zero.pb.gz", location(num(3, 16)), "has id 0"),
        case(
            "location-id-twice.pb.gz",
            with(|p| p.location = p.location.repeat(2)),
            "has id 1, which an earlier one has",
        ),
        case(
            "function-missing.pb.gz",
            location([num(1, 1), len(4, num(1, 9))].concat()),
            "has a line in function 9",
        ),
        case(
            "function-none-in-line.pb.gz",
            location([num(1, 1), len(4, num(2, 9))].concat()),
            "has a line without a function",
        ),
        case(
            "function-id-zero.pb.gz",
            with(|p| p.function = len(5, num(2, 5))),
            "malformed function #1",
        ),
        case(
            "function-id-twice.pb.gz",
            with(|p| p.function = p.function.repeat(2)),
            "malformed function #2",
        ),
        case(
            "mapping-id-zero.pb.gz",
            with(|p| p.mapping = len(3, num(2, 5))),
            "malformed mapping #1",
        ),
        case(
            "mapping-id-twice.pb.gz",
            with(|p| p.mapping = p.mapping.repeat(2)),
            "malformed mapping #2",
        ),
        case(
            "text-out-of-range.pb.gz",
            with(|p| p.function = len(5, [num(1, 1), num(2, 99)].concat())),
            "its name is string 99 of a string table of 7",
        ),
        case(
            "text-negative.pb.gz",
            with(|p| p.function = len(5, [num(1, 1), num(2, -1)].concat())),
            "its name is string -1",
        ),
        case(
            "text-of-label-out-of-range.pb.gz",
            sample([packed(1, &[1]), packed(2, &[3, 96]), len(3, num(1, 50))].concat()),
            "malformed label of sample #1",
        ),
        case(
            "text-zero-not-empty.pb.gz",
            with(|p| p.strings = len(6, "x")),
            "string_table[0]",
        ),
        case(
            "texts-missing.pb.gz",
            with(|p| p.strings = Vec::new()),
            "of a string table of 0",
        ),
        case(
            "two-profiles-in-one.pb",
            whole.repeat(2),
            "several profiles one after the other",
        ),
        case(
            "total-beyond-64-bits.pb.gz",
            gzip(&huge.bytes()),
            "does not fit in 64 bits",
        ),
    ]
}

fn foreign() -> Vec<Case> {
    vec![
        case(
            "readme.txt",
            "A heap profile of the server, taken on Monday.\n",
            "is text that begins with",
        ),
        case(
            "page.html",
            "<!DOCTYPE html>\n<title>404</title>\n",
            "is a web page or XML",
        ),
        case(
            "data.json",
            "{\"traceEvents\": []}\n",
            "is a trace in Chrome's format; open it in speedscope",
        ),
        case(
            "archive.zip",
            &b"PK\x03\x04\x14\x00\x00\x00"[..],
            "is a zip archive",
        ),
        case(
            "program.elf",
            &b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00"[..],
            "is a program or library",
        ),
        case(
            "profile.zst",
            &b"\x28\xb5\x2f\xfd\x04\x00\x01\x00\x00"[..],
            "the zstd data is damaged",
        ),
        case(
            "profile.xz",
            &b"\xfd7zXZ\x00\x00\x04"[..],
            "is xz-compressed",
        ),
        case(
            "perf.data",
            &b"PERFILE2\x68\x00\x00\x00\x00\x00\x00\x00"[..],
            "perf script -i FILE > out.txt",
        ),
        case("profile.bz2", &b"BZh91AY&SY"[..], "is bzip2-compressed"),
        case(
            "database.db",
            &b"SQLite format 3\x00\x10\x00\x01\x01"[..],
            "is a SQLite database",
        ),
        case(
            "text-in-gzip.txt.gz",
            gzip(b"See the profile that is beside this file.\n"),
            "is text inside its gzip",
        ),
    ]
}

/// Runs a case, and returns its error, which must be one line, with exit code 2 and nothing on
/// stdout.
fn refused(folder: &str, case: &Case) -> String {
    let file = format!("{folder}/{}", case.file);
    let args: Vec<&str> = [case.args, &["top", &file][..]].concat();
    let run = run(&sample_profiles(), &args);
    assert_eq!(run.code, 2, "{file}: {}", run.err);
    assert_eq!(run.out, "", "{file}");
    assert_eq!(run.err.lines().count(), 1, "{file}: {}", run.err);
    assert!(run.err.contains(case.says), "{file}: {}", run.err);
    let start = format!("heapprof: {file}: ");
    let rest = run
        .err
        .strip_prefix(&start)
        .unwrap_or_else(|| panic!("{}", run.err));
    rest.trim_end().to_string()
}

#[test]
fn each_is_refused_with_its_message() {
    let mut page = String::from(
        "# Profiles that are refused\n\nEach kind of damage has one line that names the defect, \
         the object and, where it is known, the\nbyte; the exit code is 2 and nothing is written. \
         The files are in `sample-profiles/malformed` and\n`sample-profiles/foreign`; \
         `tests/desk/malformed.rs` makes them and checks this page.\n\n| file | message of \
         `heapprof top` |\n| :--- | :--- |\n",
    );
    for (folder, cases) in [("malformed", cases()), ("foreign", foreign())] {
        assert!(cases.len() >= 10);
        let path = sample_profiles().join(folder);
        let mut known: Vec<&str> = Vec::new();
        for case in &cases {
            if bless() {
                std::fs::create_dir_all(&path).unwrap();
                std::fs::write(path.join(case.file), &case.bytes).unwrap();
            }
            assert_eq!(
                std::fs::read(path.join(case.file)).unwrap(),
                case.bytes,
                "{}",
                case.file
            );
            let message = refused(folder, case);
            let message = message.replace('|', "\\|");
            page.push_str(&format!("| {} | {message} |\n", case.file));
            known.push(case.file);
        }
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            // The subfolders have formats that heapprof reads.
            if entry.path().is_dir() {
                continue;
            }
            let name = entry.file_name().into_string().unwrap();
            assert!(
                known.contains(&name.as_str()),
                "{name} is no case of tests/desk/malformed.rs"
            );
        }
    }
    page.push_str("| a folder | is a folder, not a profile; give a file in it |\n");
    expect_file(&root().join("docs/malformed-profiles.md"), &page);
}

#[test]
fn a_folder_and_a_missing_file() {
    let folder = run(&sample_profiles(), &["top", "valid"]);
    assert_eq!(
        (folder.code, folder.err.as_str()),
        (
            2,
            "heapprof: valid: is a folder, not a profile; give a file in it\n"
        )
    );
    let missing = run(&sample_profiles(), &["top", "nowhere.pb.gz"]);
    assert_eq!(missing.code, 2);
    assert!(
        missing.err.contains("nowhere.pb.gz: there is no such file"),
        "{}",
        missing.err
    );
}

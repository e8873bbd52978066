//! Files of other tools are read as the tool itself, or pprof, reads the same file.
//!
//! The goldens in `tests/golden/formats` are the samples as converted by the real pprof.
//! `HEAPPROF_BLESS=1 HEAPPROF_PPROF=/path/to/pprof cargo test -p heapprof-tests formats` rewrites
//! them.

use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_formats::{FormatReadOptions, ProfileFormat, ProfileReading, read};
use heapprof_profile::{Profile, decode};

use heapprof_tests::harness::{Run, bless, command, name, root, run, sample_profiles};
use heapprof_tests::wire::gzip;

/// Returns the samples of a format.
pub(crate) fn samples(format: &str) -> Vec<PathBuf> {
    let folder = sample_profiles().join("foreign").join(format);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

pub(crate) fn reading(path: &Path) -> ProfileReading {
    let file = std::fs::File::open(path).unwrap();
    read(file, &FormatReadOptions::default().as_pprof(true))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn pprof() -> Option<PathBuf> {
    std::env::var_os("HEAPPROF_PPROF").map(PathBuf::from)
}

/// Returns the profile that pprof writes when it reads a file.
fn pprof_proto(pprof: &Path, file: &Path) -> Result<Vec<u8>, String> {
    let out = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(pprof)
        .args(["-symbolize=none", "-proto", "-output"])
        .arg(out.path())
        .arg(file)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(std::fs::read(out.path()).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Panics if the profiles differ, and prints the differences.
fn assert_same(ours: &Profile, theirs: &Profile, what: &str) {
    if ours == theirs {
        return;
    }
    let texts = |profile: &Profile| {
        let p = profile;
        let mut parts = vec![format!("period {}", p.period)];
        parts.extend(p.location.iter().map(|l| format!("{l:?}")));
        parts.extend(p.mapping.iter().map(|m| {
            format!(
                "{} {:x} {:x} {:x} {} {}",
                m.id,
                m.memory_start,
                m.memory_limit,
                m.file_offset,
                p.text(m.filename),
                p.text(m.build_id)
            )
        }));
        parts.extend((0..p.samples.len()).map(|i| {
            let labels = p.label_sets.get(p.samples.label_set(i));
            let labels: Vec<i64> = labels.iter().map(|l| l.num).collect();
            let (values, stack) = (p.samples.values(i), p.samples.stack(i));
            format!("{values:?} {labels:?} {stack:?}")
        }));
        parts.push(p.text(p.drop_frames).to_string());
        parts
    };
    let (ours, theirs) = (texts(ours), texts(theirs));
    for (a, b) in ours.iter().zip(&theirs) {
        assert_eq!(a, b, "{what}");
    }
    panic!("{what}: {} parts, {} expected", ours.len(), theirs.len());
}

/// Returns the profile that pprof made from a sample, from the golden.
fn golden(file: &Path) -> Profile {
    let golden = root().join(format!("tests/golden/formats/{}.pb.gz", name(file)));
    if bless()
        && let Some(pprof) = pprof()
    {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        std::fs::write(&golden, pprof_proto(&pprof, file).unwrap()).unwrap();
    }
    decode(std::fs::File::open(&golden).unwrap()).unwrap()
}

/// Samples whose frames Go named in comments, which pprof does not read.
const NAMED_BY_GO: [&str; 2] = ["workers.goroutine.txt", "workers.mutex.txt"];

#[test]
fn text_is_read_as_pprof_reads_it() {
    for (format, expected, least) in [
        ("gperftools", ProfileFormat::Gperftools, 6),
        ("java-heapz", ProfileFormat::JavaHeapz, 1),
        ("gperftools-cpu", ProfileFormat::GperftoolsCpu, 3),
        ("contention", ProfileFormat::Contention, 2),
        ("threadz", ProfileFormat::Threadz, 1),
        ("go-count", ProfileFormat::GoCount, 1),
    ] {
        let mut files = samples(format);
        files.retain(|file| !NAMED_BY_GO.contains(&&name(file)[..]));
        assert!(files.len() >= least, "{files:?}");
        for file in files {
            let reading = reading(&file);
            assert_eq!(reading.format, expected);
            assert_same(&reading.profile, &golden(&file), &name(&file));
        }
    }
}

/// jemalloc 3 and 4 write tcmalloc's first line.
#[test]
fn the_old_header_of_jemalloc_is_tcmallocs() {
    let file = sample_profiles().join("foreign/jemalloc/made.old-header.heap");
    let reading = reading(&file);
    assert_eq!(reading.format, ProfileFormat::Gperftools);
    assert_same(&reading.profile, &golden(&file), &name(&file));
}

/// pprof reads no names from this text. The values, and the addresses that Go named, are the same.
#[test]
fn go_text_has_the_values_that_pprof_reads() {
    let addresses = |profile: &Profile, i: usize| -> Vec<u64> {
        let stack = profile.samples.stack(i).iter();
        stack.map(|l| profile.location[l.index()].address).collect()
    };
    for (file, least) in [
        ("go-text/ledger.heap.txt", 2),
        ("go-count/workers.goroutine.txt", 1),
        ("contention/workers.mutex.txt", 3),
    ] {
        let file = sample_profiles().join("foreign").join(file);
        let (ours, theirs) = (reading(&file).profile, golden(&file));
        assert_eq!(ours.samples.len(), theirs.samples.len());
        for i in 0..ours.samples.len() {
            assert_eq!(ours.samples.values(i), theirs.samples.values(i));
            let mut all = addresses(&theirs, i).into_iter();
            let named = addresses(&ours, i);
            assert!(named.len() >= least);
            assert!(named.iter().all(|a| all.any(|b| b == *a)), "{named:x?}");
        }
    }
}

/// Go wrote both files at the same moment. Names, files, lines and numbers equal those of the
/// protobuf.
#[test]
fn go_text_is_what_its_protobuf_says() {
    let folder = sample_profiles().join("foreign/go-text");
    // The text shortens the names of generic functions.
    let shape = regex::Regex::new(r"\[go\.shape[^ ]*\]+").unwrap();
    let types = [
        "alloc_objects",
        "alloc_space",
        "inuse_objects",
        "inuse_space",
    ];
    for (sample_type, granularity) in types.iter().flat_map(|t| [(t, "functions"), (t, "lines")]) {
        let rows = |file: &str| {
            let args = [
                "top",
                "--all-code",
                "-f",
                "csv",
                "-n",
                "0",
                "--sample-type",
                sample_type,
                "-g",
                granularity,
                file,
            ];
            let run = run(&folder, &args);
            assert_eq!(run.code, 0, "{}", run.err);
            shape.replace_all(&run.out, "[...]").into_owned()
        };
        let (text, protobuf) = (rows("ledger.heap.txt"), rows("ledger.heap.pb.gz"));
        assert!(text.lines().count() > 10, "{text}");
        assert_eq!(text, protobuf);
    }
}

/// HEAPPROF_ORACLE_TEXTS names more files outside the repository, as paths separated by colons.
#[test]
#[ignore = "needs the real pprof"]
fn more_gperftools_text_is_read_as_pprof_reads_it() {
    let pprof = pprof().expect("HEAPPROF_PPROF names the real pprof");
    let files = std::env::var("HEAPPROF_ORACLE_TEXTS").unwrap_or_default();
    for file in files.split(':').filter(|f| !f.is_empty()).map(Path::new) {
        let theirs = decode(&pprof_proto(&pprof, file).unwrap()[..]).unwrap();
        assert_same(&reading(file).profile, &theirs, &name(file));
    }
}

/// Returns a random text with everything that the format leaves open.
fn random_text(next: &mut impl FnMut(u64) -> u64) -> String {
    let blanks = |n: u64| " ".repeat(n as usize);
    let mut text = String::new();
    let kinds = [
        "@ heapprofile",
        "@ heap_v2/524288",
        "@heapz_v2/4096",
        "@ heap_v2",
        "@ heap_v2/1",
        "@ growth",
        "@ growthz",
        "@ fragmentation",
    ];
    let kind = kinds[next(8) as usize];
    let (count, bytes) = (next(3), next(3));
    let (all_count, all_bytes) = (next(3), next(3));
    text += &format!("heap profile: {count}: {bytes} [{all_count}: {all_bytes}] {kind}\n");
    let address = |next: &mut dyn FnMut(u64) -> u64| match next(8) {
        0 => next(4),
        1 => 0x7f00_0000_0000 + next(0x4000),
        2 => u64::MAX - next(3),
        _ => 0x40_0000 + next(0x6000),
    };
    for _ in 0..next(12) {
        let size = 1 + next(4000);
        let (n, all) = (next(5), next(5));
        let sign = ["", "-"][usize::from(next(6) == 0 && n > 0)];
        let mut line = format!(
            "{}{sign}{n}:{}{sign}{} [{}{all}: {}] @",
            blanks(next(4)),
            blanks(next(4)),
            n * size,
            blanks(next(3)),
            all * (size + 8),
        );
        for _ in 0..next(5) {
            line += &format!(" 0x{:x}", address(next));
        }
        text += &line;
        text += ["\n", "\r\n", "\n\n# a comment\n"][next(3) as usize];
    }
    if next(4) == 0 {
        return text;
    }
    text += ["MAPPED_LIBRARIES:\n", "--- Memory map: ---\n"][next(2) as usize];
    for _ in 0..next(8) {
        let start = match next(3) {
            0 => 0x7f00_0000_0000 + 0x1000 * next(4),
            _ => 0x40_0000 + 0x1000 * next(6),
        };
        let limit = start + 0x1000 * (1 + next(3));
        let offset = 0x1000 * next(4);
        let files = [
            "/bin/app",
            "/lib/a.so",
            "/lib/b.so.6",
            "[vdso]",
            "",
            "/anon_hugepage",
            "/bin/$v",
        ];
        let file = files[next(7) as usize];
        text += &match next(6) {
            0 => format!("{start:x}-{limit:x} r-xp {offset:08x} 08:01 7 {file}\n"),
            1 => format!("{start:x}-{limit:x} r-xp {offset:08x} 00:00 0   {file} (deleted)\n"),
            2 => format!(
                "  0x{start:x}-0x{limit:x} {file} (@{offset:x}) ab{:x}\n",
                next(2)
            ),
            3 => format!("{start:x} {limit:x}: r-xp {file}\n"),
            4 => format!("{start:x}-{limit:x} rw-p 0 00:00 0 {file}\n"),
            _ => "v=x.so\n".to_string(),
        };
    }
    text
}

/// Run with `HEAPPROF_PPROF=/path/to/pprof cargo test -p heapprof-tests formats -- --ignored`.
#[test]
#[ignore = "needs the real pprof"]
fn random_texts_are_read_as_pprof_reads_them() {
    let pprof = pprof().expect("HEAPPROF_PPROF names the real pprof");
    let mut state = 0x6865_6170u64;
    let mut next = |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % n
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut read_by_both = 0;
    for round in 0..1000 {
        let text = random_text(&mut next);
        std::fs::write(file.path(), &text).unwrap();
        let theirs = pprof_proto(&pprof, file.path());
        let ours = read(
            text.as_bytes(),
            &FormatReadOptions::default().as_pprof(true),
        );
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => {
                let mut theirs = decode(&theirs[..]).unwrap();
                // pprof's command line, not its reader, adds a mapping to profiles that have none.
                if ours.profile.mapping.is_empty() {
                    theirs.mapping.clear();
                    theirs.location.iter_mut().for_each(|l| l.mapping = None);
                }
                assert_same(&ours.profile, &theirs, &format!("round {round}:\n{text}"));
                read_by_both += 1;
            }
            (Err(_), Err(_)) => {}
            (ours, theirs) => panic!(
                "round {round}: {:?}\n{:?}\n{text}",
                ours.err(),
                theirs.err()
            ),
        }
    }
    assert!(read_by_both > 500, "{read_by_both}");
}

/// Returns a zstd frame of stored blocks: RFC 8878, with a window of 1 MiB and no checksum.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut frame = b"\x28\xb5\x2f\xfd\x00\x50".to_vec();
    let blocks: Vec<&[u8]> = bytes.chunks(100_000).collect();
    for (i, block) in blocks.iter().enumerate() {
        let last = u32::from(i + 1 == blocks.len());
        let header = (block.len() as u32) << 3 | last;
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.extend_from_slice(block);
    }
    frame
}

#[test]
fn packed_files_and_streams_are_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sample = sample_profiles().join("foreign/gperftools/shelf.heap");
    let plain = std::fs::read(sample).unwrap();
    // The file has several members or frames, one of which is to be skipped.
    let (half, rest) = plain.split_at(5000);
    let skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec();
    for (file, bytes) in [
        ("plain", plain.clone()),
        ("one.gz", gzip(&plain)),
        ("two.gz", [gzip(half), gzip(rest)].concat()),
        ("one.zst", zstd(&plain)),
        ("two.zst", [zstd(half), skippable, zstd(rest)].concat()),
        (
            "crlf",
            plain
                .iter()
                .flat_map(|&b| {
                    if b == b'\n' {
                        vec![b'\r', b'\n']
                    } else {
                        vec![b]
                    }
                })
                .collect(),
        ),
    ] {
        std::fs::write(folder.join(file), &bytes).unwrap();
    }
    let csv = |file: &str| run(folder, &["top", "-f", "csv", "-g", "addresses", file]);
    let expected = csv("plain");
    assert_eq!(expected.code, 0, "{}", expected.err);
    assert!(expected.out.lines().count() > 10);
    for file in ["one.gz", "two.gz", "one.zst", "two.zst", "crlf"] {
        let found = csv(file);
        assert_eq!(
            (found.code, &found.out),
            (0, &expected.out),
            "{file}: {}",
            found.err
        );
    }
    // The profile comes from stdin, as from a pipe.
    let stdin = std::fs::File::open(folder.join("one.gz")).unwrap();
    let piped: Run = command(folder)
        .args(["top", "-f", "csv", "-g", "addresses", "-"])
        .stdin(stdin)
        .output()
        .unwrap()
        .into();
    assert_eq!(piped.out, expected.out);
}

#[test]
fn limits_and_damage_of_the_packing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let line = "     1:       96 [     1:       96] @ 0x401000 0x402000\n";
    let text = format!(
        "heap profile: 1: 96 [1: 96] @ heapprofile\n{}",
        line.repeat(50_000)
    );
    let mut cut = gzip(text.as_bytes());
    cut.truncate(cut.len() - 20);
    let mut damaged = zstd(text.as_bytes());
    damaged.truncate(150_000);
    for (file, bytes) in [
        ("a.heap", text.clone().into_bytes()),
        ("a.heap.gz", gzip(text.as_bytes())),
        ("a.heap.zst", zstd(text.as_bytes())),
        ("cut.gz", cut),
        ("cut.zst", damaged),
    ] {
        std::fs::write(folder.join(file), bytes).unwrap();
    }
    for file in ["a.heap", "a.heap.gz", "a.heap.zst"] {
        let limited = run(folder, &["--max-inflated", "1MiB", "top", file]);
        let expected = format!(
            "heapprof: {file}: inflates to more than 1048576 bytes; if that size is expected, \
             raise the limit with --max-inflated\n"
        );
        assert_eq!((limited.code, limited.err), (2, expected));
        let whole = run(folder, &["top", file]);
        assert_eq!(whole.code, 0, "{}", whole.err);
    }
    for (file, says) in [
        ("cut.gz", "cut.gz: the gzip data is cut short, at byte "),
        ("cut.zst", "cut.zst: the zstd data is damaged ("),
    ] {
        let refused = run(folder, &["top", file]);
        assert_eq!(refused.code, 2);
        assert!(
            refused.err.contains(says) && refused.err.lines().count() == 1,
            "{}",
            refused.err
        );
    }
}

#[test]
fn what_is_read_can_be_stored_compared_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let samples = sample_profiles().join("foreign");
    let jemalloc = samples.join("jemalloc/shelf.accum.heap");
    let go = samples.join("go-text/ledger.heap.txt");
    let (jemalloc, go) = (jemalloc.to_str().unwrap(), go.to_str().unwrap());
    let done = |args: &[&str]| {
        let run = run(folder, args);
        assert_eq!(run.code, 0, "{args:?}: {}", run.err);
        run.out
    };
    done(&["load", "--as", "dump", jemalloc]);
    done(&["convert", go, "--to", "pprof", "-o", "ledger.pb.gz"]);
    let rows = |name: &str| done(&["top", "-f", "csv", "-n", "0", "-g", "addresses", name]);
    assert_eq!(rows("dump"), rows(jemalloc));
    assert_eq!(rows("ledger.pb.gz"), rows(go));
    // A profile keeps the comment that names its origin.
    for (name, format, rule) in [
        (
            "dump",
            "format: jemalloc, jemalloc heap dump",
            "unsampling: heap_v2, ",
        ),
        (
            "ledger.pb.gz",
            "format: go-text, Go's heap profile as text",
            "unsampling: heap, ",
        ),
    ] {
        let info = done(&["info", name]);
        assert!(info.contains(format) && info.contains(rule), "{info}");
    }
    let diff = done(&["diff", go, "ledger.pb.gz"]);
    assert!(
        diff.contains("No change is larger than the sampling error"),
        "{diff}"
    );
}

/// A compressed log is so small that the part that is inspected is the whole file.
#[test]
fn a_report_behind_a_packed_log_is_found() {
    let mut log = "request 1 served in 3 ms\n".repeat(8000);
    log += "Direct leak of 32 byte(s) in 2 object(s) allocated from:\n#0 0x20 in main\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.log.gz");
    let packed = gzip(log.as_bytes());
    assert!(packed.len() < 64 << 10);
    std::fs::write(&file, packed).unwrap();
    let found = run(folder.path(), &["top", "server.log.gz"]);
    assert!(
        found.code == 0 && found.out.contains("main"),
        "{}{}",
        found.out,
        found.err
    );
}

//! Frames without symbols in two runs: they are the same place, wherever the program was loaded.

use heapprof_profile::{LabelSetIndex, Mapping, MappingIndex, Profile, ProfileBuilder};

use heapprof_tests::fixtures::{json, write};
use heapprof_tests::harness::run;

/// Adds a mapping of 12 KiB of a file at `start`.
fn mapping(
    builder: &mut ProfileBuilder,
    start: u64,
    filename: &str,
    build_id: &str,
) -> MappingIndex {
    let filename = builder.text(filename);
    let build_id = builder.text(build_id);
    builder.mapping(Mapping {
        memory_start: start,
        memory_limit: start + 0x3000,
        filename,
        build_id,
        id: 0,
        file_offset: 0,
        has_functions: false,
        has_filenames: false,
        has_line_numbers: false,
        has_inline_frames: false,
    })
}

/// Returns the profile of a stripped program: `shop`, loaded at `start`, with `bytes` in use.
fn stripped(start: u64, bytes: i64) -> Profile {
    let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    let mapping = mapping(&mut builder, start, "/usr/bin/shop", "c0ffee");
    let address = start + 0x1165;
    let leaf = builder.location(Some(mapping), address, false, &[]);
    let mut profile = builder.finish();
    let samples = &mut profile.samples;
    samples.push([leaf], &[bytes], LabelSetIndex(0));
    profile
}

/// The address 0 stands for no address and is in no file.
#[test]
fn a_diff_moves_no_address_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, start, bytes) in [("a.pb.gz", 0x400000, 100), ("b.pb.gz", 0x500000, 300)] {
        let mut profile = stripped(start, bytes);
        profile.location[0].address = 0;
        write(folder, name, &profile);
    }
    let diff = json(
        folder,
        &[
            "diff",
            "a.pb.gz",
            "b.pb.gz",
            "-f",
            "json",
            "-g",
            "addresses",
        ],
    );
    let rows = diff["rows"].as_array().unwrap();
    assert_eq!(
        (rows.len(), &rows[0]["function"]),
        (1, &"[shop]".into()),
        "{rows:?}"
    );
}

/// A diff finds the same place in two runs of a program without symbols, which is loaded at another
/// address in each run.
#[test]
fn a_diff_knows_the_same_place_of_two_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "a.pb.gz", &stripped(0x55c4_7870_d000, 100));
    write(folder, "b.pb.gz", &stripped(0x5629_c878_d000, 300));
    assert_eq!(run(folder, &["load", "a.pb.gz", "b.pb.gz"]).code, 0);
    for (before, after) in [("a.pb.gz", "b.pb.gz"), ("a", "b.pb.gz"), ("a", "b")] {
        for granularity in ["functions", "addresses"] {
            let diff = json(
                folder,
                &["diff", before, after, "-f", "json", "-g", granularity],
            );
            let rows = diff["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 1, "{before} {after}: {rows:?}");
            assert_eq!(rows[0]["delta"], 200, "{before} {after}");
            assert_eq!(rows[0]["function"], "0x55c47870e165 [shop]");
        }
    }
    let folded = run(folder, &["flame", "--base", "a", "b", "--format", "folded"]);
    assert_eq!(folded.out, "0x55c47870e165 [shop] 100 300\n");
}

/// Addresses in a file that is mapped twice, and in memory without a file, are not moved, so a
/// profile does not differ from itself.
#[test]
fn nothing_differs_from_itself() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for filename in ["/lib/x.so", "//anon", "/memfd:jit (deleted)"] {
        let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
        let mut locations = Vec::new();
        for (start, addresses) in [(0x10000, &[0x11000][..]), (0x20000, &[0x21000, 0x21500])] {
            let mapping = mapping(&mut builder, start, filename, "");
            for &address in addresses {
                locations.push(builder.location(Some(mapping), address, false, &[]));
            }
        }
        let mut profile = builder.finish();
        for (location, bytes) in locations.into_iter().zip([100, 40, 7]) {
            profile.samples.push([location], &[bytes], LabelSetIndex(0));
        }
        write(folder, "twice.pb.gz", &profile);
        let diff = run(folder, &["diff", "twice.pb.gz", "twice.pb.gz"]);
        assert!(diff.out.contains("\nNothing changed.\n"), "{}", diff.out);
    }
}

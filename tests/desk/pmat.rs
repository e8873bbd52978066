//! Files of Devel::MAT: heapprof counts the same values as Devel::MAT, and reports any damage.

use std::io::Read;

use flate2::read::GzDecoder;
use heapprof_formats::{FormatReadOptions, read};
use heapprof_tests::harness::sample_profiles;

fn file() -> Vec<u8> {
    let path = sample_profiles().join("foreign/pmat/shelf.pmat.gz");
    let mut bytes = Vec::new();
    let mut file = GzDecoder::new(std::fs::File::open(path).unwrap());
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The expected numbers are those of `pmat-counts` for the file, with kinds joined as heapprof
/// does.
#[test]
fn values_are_those_that_devel_mat_counts() {
    let profile = read(&file()[..], &FormatReadOptions::default())
        .unwrap()
        .profile;
    let expected = [
        ("ARRAY", 485 + 212),
        ("CODE", 616),
        ("GLOB", 1022),
        ("HASH", 214),
        ("INVLIST", 58),
        ("IO", 8),
        ("REF", 1217),
        ("REGEXP", 105),
        ("SCALAR", 7354 - 1972),
        ("STASH", 63),
        ("UNDEF", 1972),
    ];
    for (name, count) in expected {
        let samples = 0..profile.samples.len();
        let of_type = samples.filter(|&i| {
            let labels = profile.label_sets.get(profile.samples.label_set(i));
            let text = |id| profile.strings.get(id);
            labels
                .iter()
                .any(|label| text(label.key) == "type" && text(label.str) == name)
        });
        let found: i64 = of_type.map(|i| profile.samples.values(i)[0]).sum();
        assert_eq!(found, count, "{name}");
    }
    let all = 0..profile.samples.len();
    assert_eq!(
        all.map(|i| profile.samples.values(i)[0]).sum::<i64>(),
        11_357
    );
}

/// Every truncation is reported in one line.
#[test]
fn a_cut_file_says_where_it_ends() {
    let whole = file();
    // The list of temporary values at the end is new in the format, so it may be missing.
    let last = whole.len() - 16;
    for at in (4..last).step_by(whole.len() / 300) {
        let error = read(&whole[..at], &FormatReadOptions::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("ends at byte {at}")),
            "{at}: {error}"
        );
        assert_eq!(error.lines().count(), 1, "{at}");
    }
}

/// A changed byte or word gives another profile or an error, but no panic.
#[test]
fn damage_is_no_panic() {
    let whole = file();
    let mut state = 11u64;
    let mut draw = |most: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % most
    };
    let mut refused = 0;
    for round in 0..120 {
        let mut mutant = whole.clone();
        for _ in 0..=draw(3) {
            let at = match round % 3 {
                // The head has the lengths of all parts.
                0 => draw(200),
                _ => draw(whole.len() - 8),
            };
            match draw(3) {
                0 => mutant[at] = draw(256) as u8,
                1 => mutant[at..at + 8].fill(0xff),
                _ => mutant[at..at + 8].copy_from_slice(&(draw(1 << 31) as u64).to_le_bytes()),
            }
        }
        refused += usize::from(read(&mutant[..], &FormatReadOptions::default()).is_err());
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn other_machines_and_versions_are_named() {
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = file();
        change(&mut bytes);
        read(&bytes[..], &FormatReadOptions::default())
            .unwrap_err()
            .to_string()
    };
    let big = error(&|bytes| bytes[4] |= 1);
    assert!(big.contains("not 64-bit little-endian"), "{big}");
    let newer = error(&|bytes| bytes[7] = 9);
    assert!(newer.contains("version 0.9 of the format"), "{newer}");
}

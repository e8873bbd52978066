//! Files in formats of other tools can be read again with the same sums per stack, and the tools
//! read them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_formats::{
    FormatReadOptions, GperftoolsForm, read, write_firefox, write_gperftools, write_speedscope,
};
use heapprof_profile::{LocationIndex, Profile, Unit};
use serde_json::Value;

use crate::formats::{reading, samples};
use heapprof_tests::built::have;
use heapprof_tests::harness::{name, run, sample_profiles, valid};

/// Returns the samples, ours and those of other tools, without the largest ones.
pub(crate) fn profiles() -> Vec<(PathBuf, Profile)> {
    let formats = [
        "massif",
        "dhat",
        "heaptrack",
        "leaksanitizer",
        "perf-script",
        "speedscope",
        "gperftools",
        "folded",
    ];
    let foreign = formats.iter().flat_map(|format| samples(format));
    let small = |file: &PathBuf| file.metadata().unwrap().len() < 40_000;
    valid()
        .into_iter()
        .chain(foreign)
        .filter(small)
        .map(|file| {
            let profile = reading(&file).profile;
            (file, profile)
        })
        .collect()
}

/// Returns the names of a location's functions, outermost first, or its address if it has none.
fn names(profile: &Profile, location: LocationIndex) -> Vec<String> {
    let location = &profile.location[location.index()];
    let lines = profile.lines(location).iter().rev();
    let names: Vec<String> = lines
        .map(|line| {
            profile
                .text(profile.function[line.function.index()].name)
                .to_string()
        })
        .collect();
    match names.is_empty() {
        false => names,
        true => {
            let file = location
                .mapping
                .map(|m| profile.text(profile.mapping[m.index()].filename));
            let file = file
                .and_then(|f| f.rsplit('/').next())
                .filter(|f| !f.is_empty());
            vec![match (location.address, file) {
                (0, None) => "<unknown>".to_string(),
                (0, Some(file)) => format!("[{file}]"),
                (address, None) => format!("{address:#x}"),
                (address, Some(file)) => format!("{address:#x} [{file}]"),
            }]
        }
    }
}

/// Returns the sums of a sample type by stack, root first, without sums of 0.
pub(crate) fn sums(profile: &Profile, sample_type: usize) -> BTreeMap<Vec<String>, i64> {
    let mut sums = BTreeMap::new();
    for i in 0..profile.samples.len() {
        let stack = profile.samples.stack(i).iter().rev();
        let stack = stack
            .flat_map(|&location| names(profile, location))
            .collect();
        *sums.entry(stack).or_insert(0) += profile.samples.values(i)[sample_type];
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

/// Returns the factor from a unit to bytes or nanoseconds, which the formats use.
pub(crate) fn factor(unit: &str) -> i64 {
    Unit::parse(unit).map_or(1, |unit| unit.factor)
}

pub(crate) fn type_names(profile: &Profile) -> Vec<(String, String)> {
    let types = profile.sample_type.iter();
    types
        .map(|t| {
            (
                profile.text(t.r#type).to_string(),
                profile.text(t.unit).to_string(),
            )
        })
        .collect()
}

#[test]
fn speedscope_comes_back() {
    for (file, profile) in profiles() {
        for lines in [false, true] {
            let mut bytes = Vec::new();
            write_speedscope(&profile, "a profile", lines, &mut bytes).unwrap();
            let json: Value = serde_json::from_slice(&bytes).unwrap();
            let frames = json["shared"]["frames"].as_array().unwrap().len() as u64;
            for (at, written) in json["profiles"].as_array().unwrap().iter().enumerate() {
                let list = |key: &str| written[key].as_array().unwrap();
                assert_eq!(list("samples").len(), list("weights").len());
                let numbers = list("samples")
                    .iter()
                    .flat_map(|stack| stack.as_array().unwrap());
                assert!(numbers.map(|n| n.as_u64().unwrap()).all(|n| n < frames));
                let sum: i64 = list("weights").iter().map(|w| w.as_i64().unwrap()).sum();
                assert_eq!(written["endValue"], sum);
                let known = ["none", "bytes", "nanoseconds"];
                assert!(
                    known.contains(&written["unit"].as_str().unwrap()),
                    "{}: {at}",
                    name(&file)
                );
            }
            let again = read(&bytes[..], &FormatReadOptions::default())
                .unwrap()
                .profile;
            assert_eq!(
                again.default_sample_type_index(),
                profile.default_sample_type_index()
            );
            for (at, (kind, unit)) in type_names(&profile).into_iter().enumerate() {
                let factor = factor(&unit);
                let expected: BTreeMap<_, _> = sums(&profile, at)
                    .into_iter()
                    .map(|(s, v)| (s, v * factor))
                    .collect();
                assert_eq!(type_names(&again)[at].0, kind);
                assert_eq!(sums(&again, at), expected, "{}: {kind}", name(&file));
            }
        }
    }
}

/// Whether gperftools text can represent a profile.
fn has_space(profile: &Profile) -> bool {
    type_names(profile)
        .iter()
        .any(|(kind, _)| ["inuse_space", "alloc_space", "space"].contains(&kind.as_str()))
}

#[test]
fn gperftools_text_comes_back() {
    let mut written = 0;
    for (file, profile) in profiles() {
        let mut bytes = Vec::new();
        let result = write_gperftools(&profile, GperftoolsForm::Plain, &mut bytes);
        if !has_space(&profile) {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("the profile has neither, but"), "{error}");
            continue;
        }
        result.unwrap();
        written += 1;
        let again = read(&bytes[..], &FormatReadOptions::default())
            .unwrap()
            .profile;
        let position = |profile: &Profile, names: &[&str]| {
            type_names(profile)
                .iter()
                .position(|(kind, _)| names.contains(&kind.as_str()))
        };
        // Samples whose values are 0 are left out. The others keep their order, and each location
        // has a different address.
        let mut kinds = Vec::new();
        for names in [
            ["inuse_space", "space"],
            ["inuse_objects", "objects"],
            ["alloc_space", "-"],
            ["alloc_objects", "-"],
        ] {
            if let (Some(ours), Some(theirs)) =
                (position(&profile, &names), position(&again, &names))
            {
                kinds.push((ours, theirs));
            }
        }
        let spaces = ["inuse_space", "space", "alloc_space"];
        assert!(
            kinds
                .iter()
                .any(|&(at, _)| spaces.contains(&type_names(&profile)[at].0.as_str()))
                || position(&profile, &["alloc_space"]).is_some()
        );
        let is_kept = |i: &usize| {
            let values = profile.samples.values(*i);
            type_names(&profile)
                .iter()
                .zip(values)
                .any(|((kind, _), value)| {
                    let known = [
                        "inuse_space",
                        "inuse_objects",
                        "alloc_space",
                        "alloc_objects",
                        "space",
                        "objects",
                    ];
                    known.contains(&kind.as_str()) && *value != 0
                })
        };
        let kept: Vec<usize> = (0..profile.samples.len()).filter(is_kept).collect();
        assert_eq!(kept.len(), again.samples.len(), "{}", name(&file));
        let mut address: BTreeMap<u32, u64> = BTreeMap::new();
        for (theirs, &ours) in kept.iter().enumerate() {
            let (stack, read) = (profile.samples.stack(ours), again.samples.stack(theirs));
            assert_eq!(stack.len(), read.len());
            for (location, read) in stack.iter().zip(read) {
                let found = again.location[read.index()].address;
                assert_eq!(
                    *address.entry(location.0).or_insert(found),
                    found,
                    "{}",
                    name(&file)
                );
            }
            for &(at, read) in &kinds {
                let factor = factor(&type_names(&profile)[at].1);
                assert_eq!(
                    again.samples.values(theirs)[read],
                    profile.samples.values(ours)[at] * factor
                );
            }
        }
        let distinct: std::collections::BTreeSet<u64> = address.values().copied().collect();
        assert_eq!(distinct.len(), address.len(), "{}", name(&file));
    }
    assert!(written > 20, "{written}");
}

#[test]
fn symbolized_text_comes_back_with_names() {
    for (file, profile) in profiles()
        .into_iter()
        .filter(|(_, profile)| has_space(profile))
    {
        let named = profile.location.iter().all(|location| {
            let functions = profile
                .lines(location)
                .iter()
                .map(|line| profile.function[line.function.index()].name);
            let texts: Vec<&str> = functions.map(|name| profile.text(name)).collect();
            // The names fit in one line, and do not contain the format's separators.
            !texts.is_empty()
                && texts.iter().all(|t| {
                    !t.is_empty()
                        && *t == t.trim()
                        && !t.contains(['\n', '\r', '<'])
                        && !t.contains("--")
                })
        });
        if !named {
            continue;
        }
        let mut bytes = Vec::new();
        write_gperftools(&profile, GperftoolsForm::Symbolized, &mut bytes).unwrap();
        let again = read(&bytes[..], &FormatReadOptions::default())
            .unwrap()
            .profile;
        for (kind, other) in [("inuse_space", "space"), ("alloc_space", "alloc_space")] {
            let find = |profile: &Profile| {
                type_names(profile)
                    .iter()
                    .position(|(name, _)| name == kind || name == other)
            };
            if let (Some(ours), Some(theirs)) = (find(&profile), find(&again)) {
                let factor = factor(&type_names(&profile)[ours].1);
                let expected: BTreeMap<_, _> = sums(&profile, ours)
                    .into_iter()
                    .map(|(s, v)| (s, v * factor))
                    .collect();
                assert_eq!(sums(&again, theirs), expected, "{}", name(&file));
            }
        }
    }
}

#[test]
fn numbers_keep_their_digits() {
    let mut builder = heapprof_profile::ProfileBuilder::new(&[
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ]);
    builder.add_folded("main;f", &[1, 9_007_199_254_740_993]);
    let profile = builder.finish();
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    };
    for text in [
        written(&|bytes| write_speedscope(&profile, "", false, bytes).unwrap()),
        written(&|bytes| write_firefox(&profile, "", bytes).unwrap()),
        written(&|bytes| {
            assert_eq!(
                write_gperftools(&profile, GperftoolsForm::Plain, bytes).unwrap(),
                None
            )
        }),
    ] {
        assert!(text.contains("9007199254740993"), "{text}");
    }
}

/// Returns the addresses and the values of each stack.
fn stacks(profile: &Profile) -> Vec<(Vec<u64>, Vec<i64>)> {
    let address = |l: &LocationIndex| profile.location[l.index()].address;
    let stack = |i| profile.samples.stack(i).iter().map(address).collect();
    let samples = 0..profile.samples.len();
    samples
        .map(|i| (stack(i), profile.samples.values(i).to_vec()))
        .collect()
}

/// An address outside all mappings gets a mapping over all addresses, which must not displace the
/// other mappings.
#[test]
fn gperftools_text_keeps_its_addresses() {
    let stray = "heap profile: 3: 9 [3: 9] @ heapprofile\n2: 8 [2: 8] @ 0x401000 0x402000\n1: 1 \
                 [1: 1] @ 0x1001 0x401000\n\nMAPPED_LIBRARIES:\n00400000-00403000 r-xp 00000000 \
                 08:02 1 /bin/app\n7f01000-7f02000 r-xp 00000000 00:00 0\n";
    let mut texts = vec![stray.as_bytes().to_vec()];
    let files = samples("gperftools");
    texts.extend(files.iter().map(|file| std::fs::read(file).unwrap()));
    assert!(texts.len() > 5);
    for text in texts {
        let profile = read(&text[..], &FormatReadOptions::default())
            .unwrap()
            .profile;
        let mut bytes = Vec::new();
        write_gperftools(&profile, GperftoolsForm::Plain, &mut bytes).unwrap();
        let again = read(&bytes[..], &FormatReadOptions::default())
            .unwrap()
            .profile;
        let kept: Vec<_> = stacks(&profile)
            .into_iter()
            .filter(|(_, values)| values.iter().any(|&v| v != 0))
            .collect();
        let found = stacks(&again);
        assert_eq!(found.len(), kept.len());
        for ((found, found_values), (stack, values)) in found.iter().zip(&kept) {
            assert_eq!((found_values, found.len()), (values, stack.len()));
            for (found, &address) in found.iter().zip(stack) {
                // Return addresses of 0 and 1 are no places in code.
                let is_kept = *found == address || address.wrapping_add(1) < 2;
                assert!(is_kept, "{}", String::from_utf8_lossy(&bytes));
            }
        }
        let files = |profile: &Profile| {
            let maps = profile.mapping.iter();
            let mut maps: Vec<_> = maps
                .map(|m| {
                    (
                        m.memory_start,
                        m.memory_limit,
                        profile.text(m.filename).to_string(),
                    )
                })
                .collect();
            maps.sort();
            maps
        };
        assert_eq!(files(&again), files(&profile));
    }
}

#[test]
fn odd_names_and_negative_sums_come_back() {
    let mut builder = heapprof_profile::ProfileBuilder::new(&[
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ]);
    builder.add_folded("0x401000@/bin/a\u{1}b;f\u{7f}g\u{1}h", &[-3, -300]);
    builder.add_folded("0x402000@/bin/a\u{1}b", &[-3, 300]);
    let profile = builder.finish();
    let mut bytes = Vec::new();
    write_speedscope(&profile, "\u{7f}", false, &mut bytes).unwrap();
    let again = read(&bytes[..], &FormatReadOptions::default())
        .unwrap()
        .profile;
    assert_eq!(sums(&again, 1), sums(&profile, 1));
    for form in [GperftoolsForm::Plain, GperftoolsForm::Symbolized] {
        bytes.clear();
        write_gperftools(&profile, form, &mut bytes).unwrap();
        let again = read(&bytes[..], &FormatReadOptions::default())
            .unwrap()
            .profile;
        assert!(again.samples.values(0).ends_with(&[-3, -300]));
        assert!(again.samples.values(1).ends_with(&[-3, 300]));
    }
}

#[test]
fn what_does_not_fit_is_said_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let profile = |kind: (&str, &str), value: i64| {
        let mut builder = heapprof_profile::ProfileBuilder::new(&[kind]);
        builder.add_folded("main;f", &[value]);
        builder.finish()
    };
    let time = profile(("cpu", "nanoseconds"), 1);
    let large = profile(("inuse_space", "kilobytes"), i64::MAX / 2);
    let negative = profile(("inuse_space", "bytes"), -1);
    for (form, profile, says) in [
        ("gperftools", &time, "the profile has neither"),
        ("symbolized", &time, "the profile has neither"),
        ("gperftools", &large, "more than 2^63 bytes"),
        ("speedscope", &large, "does not fit in 64 bits"),
        ("firefox", &large, "does not fit in 64 bits"),
        ("callgrind", &negative, "negative"),
    ] {
        let file = std::fs::File::create(folder.path().join("in.pb.gz")).unwrap();
        heapprof_profile::encode(profile, file).unwrap();
        let run = run(
            folder.path(),
            &["convert", "--to", form, "in.pb.gz", "-o", "out"],
        );
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{form}");
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        assert!(run.err.starts_with("heapprof: in.pb.gz: "), "{}", run.err);
        assert!(run.err.contains(says), "{}", run.err);
        assert!(!folder.path().join("out").exists());
    }
}

/// Returns flat bytes by function, as google-pprof or jeprof prints them.
fn perl_pprof(tool: &str, file: &Path) -> Option<BTreeMap<String, i64>> {
    let output = Command::new(tool)
        .args(["--text", "--show_bytes"])
        .arg(file)
        .output();
    let Ok(output) = output else {
        have(&[tool]);
        return None;
    };
    let row =
        regex::Regex::new(r"^\s*(\d+)\s+\S+%\s+\S+%\s+\d+\s+\S+%\s+(.*?)( \(inline\))?$").unwrap();
    let mut flats = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(found) = row.captures(line) {
            let flat: i64 = found[1].parse().unwrap();
            if flat != 0 {
                *flats.entry(found[2].to_string()).or_insert(0) += flat;
            }
        }
    }
    Some(flats)
}

#[test]
fn old_tools_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.heap");
    let out = out.to_str().unwrap();
    for sample in ["heaptrack/pantry.zst", "dhat/pantry.json"] {
        let sample = sample_profiles().join("foreign").join(sample);
        let converted = run(
            folder.path(),
            &[
                "convert",
                "--to",
                "symbolized",
                sample.to_str().unwrap(),
                "-o",
                out,
            ],
        );
        assert_eq!((converted.code, converted.err.as_str()), (0, ""));
        for tool in ["google-pprof", "jeprof"] {
            let Some(found) = perl_pprof(tool, Path::new(out)) else {
                continue;
            };
            let expected: BTreeMap<String, i64> =
                [("jar".to_string(), 160), ("label".to_string(), 113)].into();
            assert_eq!(found, expected, "{tool} {}", sample.display());
        }
    }
}

/// Run with `HEAPPROF_PPROF=/path/to/pprof cargo test -p heapprof-tests writers -- --ignored`.
#[test]
#[ignore = "needs the real pprof"]
fn pprof_reads_it() {
    let pprof = std::env::var_os("HEAPPROF_PPROF").expect("HEAPPROF_PPROF names the real pprof");
    let folder = tempfile::tempdir().unwrap();
    let (text, proto) = (
        folder.path().join("out.heap"),
        folder.path().join("out.pb.gz"),
    );
    let mut read_by_both = 0;
    for (file, profile) in profiles()
        .into_iter()
        .filter(|(_, profile)| has_space(profile))
    {
        let mut bytes = Vec::new();
        write_gperftools(&profile, GperftoolsForm::Plain, &mut bytes).unwrap();
        std::fs::write(&text, &bytes).unwrap();
        let status = Command::new(&pprof)
            .args(["-symbolize=none", "-proto", "-output"])
            .args([&proto, &text])
            .output()
            .unwrap();
        assert!(
            status.status.success(),
            "{}: {}",
            name(&file),
            String::from_utf8_lossy(&status.stderr)
        );
        let theirs = heapprof_profile::decode(std::fs::File::open(&proto).unwrap()).unwrap();
        let ours = read(&bytes[..], &FormatReadOptions::default())
            .unwrap()
            .profile;
        let values = |profile: &Profile| -> Vec<Vec<i64>> {
            (0..profile.samples.len())
                .map(|i| profile.samples.values(i).to_vec())
                .collect()
        };
        assert_eq!(values(&ours), values(&theirs), "{}", name(&file));
        read_by_both += 1;
    }
    assert!(read_by_both > 20, "{read_by_both}");
}

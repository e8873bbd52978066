//! Checks that the sums per function of a tracer's file equal those that the tracer's own tool
//! prints.
//!
//! The tools' output is kept in `tests/golden/foreign`. If a tool is installed, it is run and must
//! print the same. `HEAPPROF_BLESS=1` rewrites the output.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use heapprof_analysis::{
    AnalysisSession, ProfileQuestion, Query, QuestionSource, TypeSelection, top::top,
};
use heapprof_formats::{FormatReadOptions, PartSelector, ProfileFormat, formats, read};
use heapprof_profile::Profile;

use crate::formats::{reading, samples};
use heapprof_tests::built::have;
use heapprof_tests::harness::{expect_file, name, root, run, sample_profiles};

/// Returns the output of a tool for a sample, from the golden.
fn printed(tool: &str, args: &[&str], file: &Path) -> String {
    let golden = root().join(format!("tests/golden/foreign/{}.{tool}.txt", name(file)));
    let folder = file.parent().unwrap();
    match Command::new(tool)
        .args(args)
        .arg(name(file))
        .current_dir(folder)
        .output()
    {
        Ok(output) if output.status.success() => {
            expect_file(&golden, &String::from_utf8(output.stdout).unwrap());
        }
        Ok(output) => panic!("{tool}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => {
            // Without the tool, only its golden is compared.
            have(&[tool]);
        }
    }
    std::fs::read_to_string(golden).unwrap()
}

fn part(path: &Path, part: PartSelector) -> Profile {
    let options = FormatReadOptions::default().part(Some(part));
    let reading = read(std::fs::File::open(path).unwrap(), &options);
    reading
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .profile
}

/// Returns flat values by function, as in `top`. An unknown function is named by its address.
fn flats(profile: &Profile, sample_type: &str) -> (BTreeMap<String, i64>, i64) {
    let query = Query {
        sample_type: Some(sample_type.to_string()),
        ..Query::default()
    };
    let source = QuestionSource::new("sample", profile.clone());
    let question = ProfileQuestion::new(vec![source], &query, TypeSelection::Requested).unwrap();
    let session = AnalysisSession::new(question).unwrap();
    let top = top(&session, 1, &query, false).unwrap();
    let mut flats = BTreeMap::new();
    for row in top.rows.iter().filter(|row| row.flat != 0) {
        let function = match row.place.function.split_once(" [") {
            Some((address, _)) if address.starts_with("0x") => address,
            _ => &row.place.function,
        };
        *flats.entry(function.to_string()).or_insert(0) += row.flat;
    }
    (flats, top.header.net)
}

/// Parses a number with commas, also in the form `381,343B`.
fn number(text: &str) -> i64 {
    text.trim_end_matches('B')
        .replace(',', "")
        .parse()
        .unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn massif_as_ms_print_adds_it_up() {
    let files = samples("massif");
    let files: Vec<_> = files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "massif"))
        .collect();
    assert_eq!(files.len(), 3);
    let mut trees = 0;
    for file in files {
        let text = printed("ms_print", &["--threshold=0"], file);
        let mut snapshot = None;
        let mut expected: BTreeMap<String, i64> = BTreeMap::new();
        let mut has_tree = false;
        let mut check = |profile: &Option<Profile>,
                         expected: &mut BTreeMap<String, i64>,
                         has_tree: &mut bool| {
            if let Some(profile) = profile
                && *has_tree
            {
                let (mut found, _) = flats(profile, "inuse_space");
                for pseudo in ["(below massif's threshold)", "(not in massif's tree)"] {
                    found.remove(pseudo);
                }
                assert_eq!(&found, expected, "{}", name(file));
                trees += 1;
            }
            expected.clear();
            *has_tree = false;
        };
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let Some(node) = line.strip_prefix("->") {
                // The line has the form `42.81% (5,462B) 0x1091BC: label (pantry.c:15)`.
                let (_, node) = node.split_once('(').unwrap();
                let (bytes, frame) = node.split_once(") ").unwrap();
                let Some((address, place)) = frame.split_once(": ") else {
                    continue;
                };
                let function = place.rsplit_once(" (").unwrap().0;
                let function = match function {
                    "???" => address.to_lowercase(),
                    function => function.to_string(),
                };
                has_tree = true;
                if number(bytes) != 0 {
                    *expected.entry(function).or_insert(0) += number(bytes);
                }
            } else if words.len() == 6
                && words
                    .iter()
                    .all(|w| w.chars().all(|c| c.is_ascii_digit() || c == ','))
            {
                // The columns are n, time, total, useful, extra and stacks.
                check(&snapshot, &mut expected, &mut has_tree);
                let profile = part(file, PartSelector::Number(number(words[0]) as u64));
                let total = flats(&profile, "total_space");
                assert_eq!(total.1, number(words[2]), "{line}");
                assert_eq!(flats(&profile, "inuse_space").1, number(words[3]), "{line}");
                let of = |name: &str| total.0.get(name).copied().unwrap_or(0);
                assert_eq!(of("(heap administration)"), number(words[4]), "{line}");
                assert_eq!(of("(stacks)"), number(words[5]), "{line}");
                snapshot = Some(profile);
            }
        }
        check(&snapshot, &mut expected, &mut has_tree);
        // The peak is read unless another snapshot is requested.
        let peak = text.lines().find(|line| line.contains("(peak)")).unwrap();
        let number = peak
            .split(" (peak)")
            .next()
            .unwrap()
            .rsplit(['[', ' '])
            .next()
            .unwrap();
        assert!(reading(file).profile == part(file, PartSelector::Number(number.parse().unwrap())));
        assert!(reading(file).profile == part(file, PartSelector::Peak));
    }
    assert!(trees > 10, "{trees}");
}

/// Parses a size as heaptrack prints it, such as `32.11K`. Also returns the possible rounding
/// error.
fn size(text: &str) -> (f64, f64) {
    let (digits, unit) = text.split_at(text.len() - 1);
    let unit = match unit {
        "B" => return (digits.parse().unwrap(), 0.0),
        "K" => 1e3,
        "M" => 1e6,
        other => panic!("{other}"),
    };
    (digits.parse::<f64>().unwrap() * unit, 0.005 * unit)
}

#[test]
fn heaptrack_as_heaptrack_print_adds_it_up() {
    let args = "-t 0 -p 1 -a 1 -T 0 -l 1 -n 10000 -s 1 --disable-builtin-suppressions \
                --disable-embedded-suppressions -f";
    let args: Vec<&str> = args.split(' ').collect();
    let mut functions = 0;
    for file in samples("heaptrack") {
        let text = printed("heaptrack_print", &args, &file);
        let mut profile = reading(&file).profile;
        // heaptrack_print knows no wrappers.
        let allocators = r"(memalign|(m|c|re)alloc)|operator new(\[\])?";
        profile.drop_frames = profile.strings.intern(allocators);
        let types = ["alloc_objects", "peak_space", "inuse_space"];
        // heaptrack_print adds up the unnamed places of a file, and shows the address of one of
        // them.
        let named = |function: &str| match function.starts_with("0x") {
            true => "unnamed".to_string(),
            false => function.to_string(),
        };
        let found = types.map(|t| {
            let (by_address, total) = flats(&profile, t);
            let mut flats = BTreeMap::new();
            for (function, value) in by_address {
                *flats.entry(named(&function)).or_insert(0) += value;
            }
            (flats, total)
        });
        // These are exact counts of calls, and rounded sizes at the peak and at the end. Each sum
        // has its possible rounding error.
        let mut expected: [BTreeMap<String, (f64, f64)>; 3] = Default::default();
        let mut add = |which: usize, function: &str, (size, rounding): (f64, f64)| {
            let sum = expected[which].entry(named(function)).or_insert((0.0, 0.0));
            *sum = (sum.0 + size, sum.1 + rounding);
        };
        let mut totals = Vec::new();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            let words: Vec<&str> = pair[0].split_whitespace().collect();
            match words[..] {
                [
                    calls,
                    "calls",
                    "to",
                    "allocation",
                    "functions",
                    "with",
                    ..,
                    "from",
                ] => {
                    add(0, pair[1], (calls.parse().unwrap(), 0.0));
                }
                [bytes, "peak", "memory", "consumed", "over", .., "from"] => {
                    add(1, pair[1], size(bytes))
                }
                [bytes, "leaked", "over", .., "from"] => add(2, pair[1], size(bytes)),
                ["calls", "to", "allocation", "functions:", calls, _] => {
                    totals.push((0, (calls.parse().unwrap(), 0.0)))
                }
                ["peak", "heap", "memory", "consumption:", bytes] => totals.push((1, size(bytes))),
                _ => {}
            }
        }
        let leaked = lines
            .last()
            .unwrap()
            .strip_prefix("total memory leaked: ")
            .unwrap();
        totals.push((2, size(leaked)));
        assert_eq!(totals.len(), 3);
        let near = |value: i64, (expected, rounding): (f64, f64), what: &str| {
            let off = (value as f64 - expected).abs();
            assert!(
                off <= rounding + 1e-6,
                "{}: {what}: {value}, not {expected}",
                name(&file)
            );
        };
        for (which, total) in totals {
            near(found[which].1, total, types[which]);
        }
        for (which, expected) in expected.into_iter().enumerate() {
            assert_eq!(
                found[which].0.len(),
                expected.values().filter(|sum| sum.0 != 0.0).count()
            );
            for (function, sum) in expected {
                near(
                    found[which].0.get(&function).copied().unwrap_or(0),
                    sum,
                    &function,
                );
                functions += 1;
            }
        }
    }
    assert!(functions > 30, "{functions}");
}

/// Sample types with their totals.
type Totals = &'static [(&'static str, i64)];

/// The totals must equal those of Valgrind's summary of a run and of a leak report, in bytes and
/// blocks.
#[test]
fn totals_as_the_tools_said_them() {
    let table: &[(&str, &str, Totals)] = &[
        (
            "dhat",
            "pantry.json",
            &[
                ("alloc_space", 844_317),
                ("alloc_objects", 5_049),
                ("peak_space", 351_181),
                ("peak_objects", 4_015),
                ("inuse_space", 273),
                ("inuse_objects", 20),
            ],
        ),
        (
            "leaksanitizer",
            "pantry.txt",
            &[("inuse_space", 273), ("inuse_objects", 20)],
        ),
        (
            "leaksanitizer",
            "pantry.unsymbolized.txt",
            &[("inuse_space", 273), ("inuse_objects", 20)],
        ),
        ("massif", "pantry.xtree.ms", &[("inuse_space", 273)]),
        // google-pprof prints `Total: 230 samples` and `Total: 0.420 seconds`.
        ("gperftools-cpu", "mill.prof", &[("samples", 230)]),
        (
            "contention",
            "made.contentionz.txt",
            &[("delay", 420_100_000)],
        ),
        (
            "bpftrace",
            "pantry.txt",
            &[("bytes", 112_077), ("count", 5_021)],
        ),
        (
            "bpftrace",
            "pantry.prints.txt",
            &[("samples", 112_077), ("samples_count", 5_021)],
        ),
        (
            "mprof",
            "orchard.out",
            &[("growth", 288 * 4096), ("calls", 1_830)],
        ),
    ];
    for (format, file, totals) in table {
        let profile = reading(&sample_profiles().join("foreign").join(format).join(file)).profile;
        for (sample_type, total) in *totals {
            assert_eq!(
                flats(&profile, sample_type).1,
                *total,
                "{file}: {sample_type}"
            );
        }
    }
}

/// Three tools must agree about the leaks of the same program.
#[test]
fn tools_agree_about_a_program() {
    let sample = |path: &str| reading(&sample_profiles().join("foreign").join(path)).profile;
    let expected: BTreeMap<String, i64> =
        [("jar".to_string(), 160), ("label".to_string(), 113)].into();
    for path in [
        "dhat/pantry.json",
        "heaptrack/pantry.zst",
        "leaksanitizer/pantry.txt",
        "massif/pantry.xtree.ms",
    ] {
        assert_eq!(flats(&sample(path), "inuse_space").0, expected, "{path}");
    }
}

#[test]
fn each_sample_is_recognized() {
    let mut seen = 0;
    for format in formats().filter(|format| *format != ProfileFormat::Pprof) {
        let files = samples(format.name());
        assert!(
            !files.is_empty(),
            "{}: a format without a sample",
            format.name()
        );
        // Old forms of jemalloc and Go are read as gperftools and pprof; `formats.rs` tests them.
        let mixed = matches!(format, ProfileFormat::Jemalloc | ProfileFormat::GoText);
        let is_it = |file: &std::path::PathBuf| reading(file).format == format;
        let (known, others): (Vec<_>, Vec<_>) = files.into_iter().partition(is_it);
        assert!(
            !known.is_empty() && (mixed || others.is_empty()),
            "{others:?}"
        );
        seen += known.len();
        let page = root().join(format!("docs/formats/{}.md", format.name()));
        assert!(page.is_file(), "{}", page.display());
    }
    assert!(seen >= 20, "{seen}");
}

#[test]
fn parts_are_named_on_the_command_line() {
    let file = sample_profiles().join("foreign/massif/pantry.massif");
    let file = file.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let total = |name: &str| {
        let run = run(folder.path(), &["top", "-f", "json", name]);
        assert_eq!(run.code, 0, "{}", run.err);
        let top: serde_json::Value = serde_json::from_str(&run.out).unwrap();
        top["total"].as_i64().unwrap()
    };
    assert_eq!(total(file), 351_181);
    assert_eq!(total(&format!("{file}#peak")), 351_181);
    assert_eq!(total(&format!("{file}#6")), 61_861);
    assert_eq!(total(&format!("{file}#last")), 55_197);
    // Each part can be stored. A file whose own name looks like a part takes precedence over the
    // part.
    let part = format!("{file}#6");
    for args in [
        &["load", part.as_str(), "--as", "early"][..],
        &["load", part.as_str()],
    ] {
        let run = run(folder.path(), args);
        assert_eq!(run.code, 0, "{}", run.err);
    }
    assert_eq!(total("early"), 61_861);
    assert_eq!(total("pantry.massif#6"), 61_861);
    std::fs::copy(file, folder.path().join("odd#6")).unwrap();
    assert_eq!(total("odd#6"), 351_181);
    assert_eq!(total("odd#6#6"), 61_861);
    for (args, says) in [
        (
            vec!["top", "odd#6#99"],
            "odd#6#99: has no snapshot 99; it has 0 to 11, and peak and last",
        ),
        (vec!["top", "early#2"], "has no profile"),
        (
            vec!["top", "--values", "a/b", "odd#6"],
            "odd#6: already states what its values are",
        ),
        (
            vec!["top", "--values", "bytes", "odd#6"],
            "write a type and its unit, such as inuse_space/bytes",
        ),
    ] {
        let run = run(folder.path(), &args);
        assert_eq!((run.code, run.err.lines().count()), (2, 1), "{}", run.err);
        assert!(run.err.contains(says), "{}", run.err);
    }
}

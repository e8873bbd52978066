//! Many moments of many processes: labels, selectors, growth, and pruning.

use std::path::Path;
use std::sync::Arc;

use heapprof_analysis::{
    Query,
    growth::GrowthVerdict,
    moment_labels::labels_of,
    series::{MomentSelector, choose_moments, series_growth},
    store::ProfileStore,
    stored_moment::SeriesStore,
};
use heapprof_profile::{Profile, ProfileBuilder, encode};
use heapprof_tests::harness::{Run, run};
use serde_json::Value;

const FOUR: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];
const MINUTE: i64 = 60_000_000_000;
/// The time at which the processes begin, in nanoseconds since 1970.
const BEGIN: i64 = 1_795_132_800_000_000_000;

/// Returns the profile of a process at one moment, as our collector writes it.
fn moment(host: &str, pid: u32, since: i64, begin: i64, stacks: &[(&str, [i64; 4])]) -> Profile {
    let mut builder = ProfileBuilder::new(&FOUR);
    for (stack, values) in stacks {
        builder.add_folded(stack, values);
    }
    for comment in [
        "collector: heapprof 0.2.0".to_string(),
        "program: shop".to_string(),
        format!("pid: {pid}"),
        format!("host: {host}"),
    ] {
        let comment = builder.text(&comment);
        builder.profile.comment.push(comment);
    }
    builder.profile.time_nanos = begin + since;
    builder.profile.duration_nanos = since;
    builder.finish()
}

fn write(folder: &Path, name: &str, profile: &Profile) {
    encode(profile, std::fs::File::create(folder.join(name)).unwrap()).unwrap();
}

fn json(run: &Run) -> Value {
    assert_eq!(run.code, 0, "{}", run.err);
    serde_json::from_str(&run.out).unwrap()
}

/// Returns the flat values of a report's rows, by function.
fn flat(report: &Value) -> Vec<(String, i64)> {
    let rows = report["rows"].as_array().unwrap().iter();
    let mut rows: Vec<(String, i64)> = rows
        .map(|row| {
            let name = row["function"].as_str().unwrap().to_string();
            (name, row["flat"].as_i64().unwrap())
        })
        .filter(|row| row.1 != 0)
        .collect();
    rows.sort();
    rows
}

/// Writes three moments each of two hosts: `web1` leaks, and `web2` is restarted after the first
/// moment.
fn two_hosts(folder: &Path) {
    for (at, leak) in [(0, 100), (1, 300), (2, 500)] {
        let stacks = [
            ("main;leak", [leak, 10 * leak, leak, 10 * leak]),
            ("main;keep", [1, 40, 1, 40]),
        ];
        let since = MINUTE * (1 + 10 * at);
        write(
            folder,
            &format!("a{at}.pb.gz"),
            &moment("web1", 7, since, BEGIN, &stacks),
        );
        let (pid, begin, since) = match at {
            0 => (8, BEGIN, MINUTE),
            at => (9, BEGIN + 5 * MINUTE, MINUTE * (10 * at - 4)),
        };
        let stacks = [("main;keep", [1 + at, 50 + at, 1, 50])];
        write(
            folder,
            &format!("b{at}.pb.gz"),
            &moment("web2", pid, since, begin, &stacks),
        );
    }
    let files: Vec<String> = (0..3)
        .flat_map(|n| [format!("a{n}.pb.gz"), format!("b{n}.pb.gz")])
        .collect();
    let mut load = vec!["load"];
    load.extend(files.iter().map(String::as_str));
    assert_eq!(run(folder, &load).code, 0);
}

#[test]
fn a_selector_is_the_sum_of_what_it_chooses() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    two_hosts(folder);
    let top = |args: &[&str]| {
        let args = [&["top", "-n", "0", "-f", "json"], args].concat();
        flat(&json(&run(folder, &args)))
    };
    // Memory in use is that of both hosts at the end.
    assert_eq!(top(&["service=shop"]), top(&["a2.pb.gz", "b2.pb.gz"]));
    assert_eq!(top(&["host~^web"]), top(&["a2", "b2"]));
    assert_eq!(top(&["host=web1,last=1"]), top(&["a2.pb.gz"]));
    assert_eq!(top(&["pid=8"]), top(&["b0.pb.gz"]));
    assert_eq!(
        top(&["service=shop", "--over-time", "max"]),
        top(&["a2", "b2"])
    );
    let mean = top(&["service=shop", "--over-time", "mean"]);
    assert_eq!(mean, [("keep".to_string(), 90), ("leak".to_string(), 3000)]);
    // Filters and other rows work as for a file.
    assert_eq!(
        top(&["service=shop", "--focus", "leak", "-g", "lines"]),
        top(&["a2", "b2", "--focus", "leak", "-g", "lines"])
    );
    // Allocated memory is web1's last minus its first value, and all of web2's second process.
    let allocated = top(&["service=shop", "-t", "alloc_space"]);
    assert_eq!(
        allocated,
        [("keep".to_string(), 52), ("leak".to_string(), 4000)]
    );
    let time = "until=2026-11-20T00:02:00Z";
    let first = top(&[time, "-t", "alloc_objects"]);
    assert_eq!(
        first,
        top(&["a0", "b0", "-t", "alloc_objects"]),
        "one moment of each"
    );
    let flame = |name: &str| run(folder, &["flame", "-f", "folded", name]).out;
    assert_eq!(flame("host=web1"), flame("a2.pb.gz"));
    let leaks = |name: &str| json(&run(folder, &["leaks", "-f", "json", name]))["rows"].clone();
    assert_eq!(leaks("host=web1"), leaks("a2.pb.gz"));
    let diff = run(
        folder,
        &[
            "diff",
            "-f",
            "json",
            "until=2026-11-20T00:02:00Z",
            "service=shop",
        ],
    );
    let of_files = run(
        folder,
        &[
            "diff", "-f", "json", "--before", "a0", "--before", "b0", "--after", "a2", "--after",
            "b2",
        ],
    );
    assert_eq!(json(&diff)["rows"], json(&of_files)["rows"]);
    assert!(
        diff.err.contains("2 profiles of 2 processes"),
        "{}",
        diff.err
    );
}

#[test]
fn series_are_listed_with_their_labels() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    two_hosts(folder);
    write(folder, "bare.pb.gz", &heapprof_tests::samples::recursion());
    let more = [
        "load",
        "--label",
        "service=cart",
        "--label",
        "zone=a",
        "--time",
        "@1795140000",
        "bare.pb.gz",
    ];
    assert_eq!(run(folder, &more).code, 0);
    let rows = json(&run(folder, &["series", "-f", "json"]));
    let rows: Vec<String> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            format!(
                "{} {} {} {}",
                row["labels"], row["moments"], row["processes"], row["totals"]
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            r#"{"host":"web1","service":"shop"} 3 1 [1040,3040,5040]"#,
            r#"{"host":"web2","service":"shop"} 3 2 [50,50,50]"#,
            r#"{"service":"cart","zone":"a"} 1 1 [350]"#,
        ]
    );
    let text = run(folder, &["series", "zone=a"]).out;
    assert!(
        text.starts_with("1 series of 1 moment and 1 process\nservice  zone"),
        "{text}"
    );
    assert!(text.contains("2026-11-20 02:00:00 UTC"), "{text}");
    for (args, expected) in [
        (
            &["series", "service=stop"][..],
            "chooses none of the 7 stored profiles; their services are cart, shop",
        ),
        (&["top", "service~("], "unclosed group"),
        (&["top", "last=x"], "a number of moments"),
        (
            &["growth", "zone=a"],
            "has too few moments in time: 1, and growth needs at least 3",
        ),
        (
            &["growth", "-t", "alloc_space"],
            "only counts what was allocated",
        ),
        (
            &["load", "--label", "since=1", "bare.pb.gz"],
            "is a reserved word in a selector",
        ),
        (
            &["load", "--label", "a b=1", "bare.pb.gz"],
            "could not be used in a selector",
        ),
        (&["load", "--time", "soon", "bare.pb.gz"], "is not a time"),
        (&["prune", "service=shop"], "--keep"),
        (
            &["prune", "service=shop", "--keep", "x"],
            "write for example 7d",
        ),
    ] {
        let found = run(folder, args);
        assert_eq!(found.code, 2, "{args:?}");
        assert!(found.err.contains(expected), "{args:?}: {}", found.err);
    }
    // A file and a stored name take precedence over a selector.
    let odd = folder.join("service=shop");
    std::fs::copy(folder.join("bare.pb.gz"), &odd).unwrap();
    let of_file = run(folder, &["top", "-n", "1", "service=shop"]);
    assert!(of_file.out.contains("total 350B"), "{}", of_file.out);
    std::fs::remove_file(odd).unwrap();
    assert_eq!(
        run(folder, &["load", "--as", "zone=b", "bare.pb.gz"]).code,
        0
    );
    let stored = run(folder, &["top", "-n", "1", "zone=b"]);
    assert!(stored.out.contains("total 350B"), "{}", stored.err);
}

#[test]
fn what_grows_is_ranked_and_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    two_hosts(folder);
    let growth = |args: &[&str]| json(&run(folder, &[&["growth", "-f", "json"], args].concat()));
    let report = growth(&["service=shop"]);
    assert_eq!(report["rows"][0]["function"], "leak");
    assert_eq!(report["rows"][0]["verdict"], "steady growth");
    assert_eq!(report["rows"][0]["bounded"], false);
    assert_eq!(
        report["rows"][0]["values"],
        serde_json::json!([1000, 3000, 5000])
    );
    // The growth is 2,000 bytes in ten minutes.
    let slope = report["rows"][0]["slope"].as_f64().unwrap();
    assert!((slope - 12_000.0).abs() < 1.0, "{slope}");
    for args in [
        &["service=shop"][..],
        &["--stacks"],
        &["-n", "1"],
        &["host=web1", "--stacks", "-n", "1"],
    ] {
        let report = growth(args);
        for (at, end) in [(0, "first"), (2, "last")] {
            let rows = report["rows"].as_array().unwrap().iter();
            let sum: i64 = rows.map(|row| row[end].as_i64().unwrap()).sum();
            let other = report["other"][end].as_i64().unwrap();
            assert_eq!(Some(sum + other), report["totals"][at].as_i64(), "{args:?}");
        }
    }
    let cum = growth(&["service=shop", "--sort", "cum"]);
    assert_eq!(cum["rows"][1]["function"], "main");
    assert_eq!(
        cum["rows"][1]["values"],
        serde_json::json!([1090, 3090, 5090])
    );
    let text = run(folder, &["growth", "service=shop"]).out;
    assert!(
        text.contains("steady growth  +11.72KiB          2/2"),
        "{text}"
    );
    let focused = growth(&["service=shop", "--focus", "keep"]);
    assert_eq!(focused["totals"], serde_json::json!([90, 90, 90]));
}

/// Returns a generator of pseudo-random numbers from -1 to 1.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Among functions that only seem to grow, a leak of 1 % of the heap per moment comes first, and a
/// cache is recognized as bounded: 60 moments, 5 % noise, 20 seeds.
#[test]
fn planted_leaks_come_first_and_caches_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 1..=20 {
        let mut noise = noise(seed);
        let path = folder.path().join(format!("{seed}.db"));
        let mut store = ProfileStore::open_or_create(&path).unwrap();
        for at in 0..60 {
            let i = at as f64;
            let heap = 1e8;
            let mut held = |of: f64| (heap * of * (1.0 + 0.05 * noise())) as i64;
            let planted = [
                ("main;large", held(0.5)),
                ("main;noise", held(0.1)),
                ("main;leak", held(0.01 * i)),
                ("main;cache", held(0.3 * (1.0 - (-i / 6.0).exp()))),
                ("main;sawtooth", held(0.05 * f64::from(at % 7))),
                ("main;deploys", held(0.02 * (1.0 + f64::from(at % 15)))),
            ];
            let stacks = planted.map(|(stack, value)| (stack, [0, 0, 1, value]));
            let profile = Arc::new(moment(
                "web1",
                7,
                MINUTE * (1 + i64::from(at)),
                BEGIN,
                &stacks,
            ));
            let labels = labels_of(&profile);
            store
                .load_labelled(&format!("m{at}"), &profile, &labels, &mut |_, _| {})
                .unwrap();
        }
        let moments = store.moments().unwrap();
        let chosen = choose_moments("all", &MomentSelector::default(), &moments).unwrap();
        let (report, _) = series_growth(&store, &chosen, &Query::default(), false).unwrap();
        let verdict = |name: &str| {
            let row = report
                .rows
                .iter()
                .find(|row| row.places[0].function == name);
            row.unwrap().growth.verdict
        };
        assert_eq!(report.rows[0].places[0].function, "leak", "seed {seed}");
        assert_eq!(verdict("leak"), GrowthVerdict::SteadyGrowth, "seed {seed}");
        assert_eq!(verdict("cache"), GrowthVerdict::LevelsOff, "seed {seed}");
        for name in ["large", "noise", "sawtooth", "deploys"] {
            assert_eq!(verdict(name), GrowthVerdict::NoTrend, "{name}, seed {seed}");
        }
    }
}

/// Old moments are thinned out, and merged by service.
#[test]
fn what_is_pruned_is_what_no_rule_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    two_hosts(folder);
    let names = || {
        let listed = json(&run(folder, &["ls", "-f", "json"]));
        let names = listed.as_array().unwrap().iter();
        let mut names: Vec<String> = names
            .map(|row| row["name"].as_str().unwrap().to_string())
            .collect();
        names.sort();
        names
    };
    let prune = |args: &[&str]| run(folder, &[&["prune", "service=shop"], args].concat());
    // The moments are in the first half hour of a day; only their age differs from run to run.
    let dry = prune(&["--keep", "1h=36500d", "--dry-run"]);
    assert!(
        dry.err.contains("would remove 3 of 6 profiles"),
        "{}",
        dry.err
    );
    assert_eq!(names().len(), 6);
    let all = prune(&["--keep", "36500d"]);
    assert!(all.err.contains("removed 0 of 6 profiles"), "{}", all.err);
    let thinned = prune(&["--keep", "1h=36500d"]);
    assert!(
        thinned.err.contains("removed 3 of 6 profiles"),
        "{}",
        thinned.err
    );
    assert_eq!(names(), ["a2", "b0", "b2"], "the last one of each process");
    // b0 belongs to a process that was replaced.
    let before = run(folder, &["top", "-n", "0", "-f", "csv", "service=shop"]).out;
    let both = run(folder, &["top", "-n", "0", "-f", "csv", "a2", "b2"]).out;
    assert_eq!(before, both);
    let part = run(
        folder,
        &["prune", "host=web1", "--keep", "1h=36500d", "--roll-up"],
    );
    assert_eq!(part.code, 2);
    assert!(part.err.contains("leaves out b"), "{}", part.err);
    let together = prune(&["--keep", "1h=36500d", "--roll-up"]);
    assert!(
        together
            .err
            .contains("removed 3 of 3 profiles, and put 3 of them together into 1"),
        "{}",
        together.err
    );
    assert_eq!(names(), ["shop@2026-11-20_01:00:00_UTC"]);
    let after = run(folder, &["top", "-n", "0", "-f", "csv", "service=shop"]);
    assert_eq!(after.out, before, "{}", after.err);
    let again = prune(&["--keep", "1h=36500d", "--roll-up"]);
    assert!(
        again.err.contains("removed 0 of 1 profile"),
        "{}",
        again.err
    );
    // A profile that is loaded later into a step that was already merged stays as it is.
    assert_eq!(run(folder, &["load", "a1.pb.gz"]).code, 0);
    let late = prune(&["--keep", "1h=36500d", "--roll-up"]);
    assert!(
        late.err
            .contains("1 profile was loaded too late to be combined into it; it stays"),
        "{}",
        late.err
    );
    assert_eq!(names(), ["a1", "shop@2026-11-20_01:00:00_UTC"]);
    assert_eq!(run(folder, &["rm", "a1"]).code, 0);
    let gone = prune(&["--keep", "1s"]);
    assert!(gone.err.contains("removed 1 of 1"), "{}", gone.err);
    assert!(names().is_empty());
}

/// Each file that is loaded may read the whole database, and this must not take long.
#[test]
fn many_small_files_come_into_a_database_with_many_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |path: &str, text: String| std::fs::write(folder.join(path), text).unwrap();
    let lines = (0..20_000).map(|i| format!("main;f{};g{} 1\n", i % 300, i));
    write("large.folded", lines.collect());
    std::fs::create_dir(folder.join("small")).unwrap();
    for i in 0..50 {
        write(&format!("small/s{i:03}"), format!("main;f{i} {i}\n"));
    }
    let values = "--values=inuse_space/bytes";
    assert_eq!(run(folder, &["load", values, "large.folded"]).code, 0);
    let small: Vec<String> = (0..50).map(|i| format!("small/s{i:03}")).collect();
    let small: Vec<&str> = small.iter().map(String::as_str).collect();
    let done = run(folder, &[&["load", values], &small[..]].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("loaded 50 profiles"), "{}", done.err);
}

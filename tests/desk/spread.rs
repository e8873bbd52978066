//! The uncertainty of estimates, in every form of every report that shows it, and gates that noise
//! does not break.

use heapprof_profile::{Profile, ProfileBuilder, encode};
use serde_json::Value;

use heapprof_tests::harness::{ok, run, sample_profiles};

const SAMPLED: &str = "valid/made.sampled.pb.gz";
const EXACT: &str = "valid/made.leaks.pb.gz";

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(&[args, &["-f", "json"]].concat())).unwrap()
}

fn numbers(estimate: &Value) -> [i64; 3] {
    ["low", "high", "samples"].map(|key| estimate[key].as_i64().unwrap_or(-1))
}

/// The range of the total: 22,023,997 bytes in use from 38 samples with a variance of 10.197329e12,
/// ± 1.96 times its root.
const TOTAL: [i64; 3] = [15_765_137, 28_282_857, 38];

fn is_near(found: [i64; 3], expected: [i64; 3]) -> bool {
    let near = |a: i64, b: i64| (a - b).abs() <= b.abs() / 10_000 + 1;
    found.into_iter().zip(expected).all(|(a, b)| near(a, b))
}

#[test]
fn json_has_the_range_of_each_value() {
    let top = json(&["top", "-n", "0", SAMPLED]);
    assert!(is_near(numbers(&top["estimate"]), TOTAL), "{top}");
    let rows = top["rows"].as_array().unwrap();
    let of = |name: &str| rows.iter().find(|row| row["function"] == name).unwrap();
    // main has no caller, so its cum has the range of the total. It has no flat value.
    assert!(
        is_near(numbers(&of("main")["cum_estimate"]), TOTAL),
        "{top}"
    );
    assert_eq!(of("main")["estimate"], Value::Null);
    // This is one sample of a small block. Its range is from a sixth to nearly six times the value.
    let log = numbers(&of("log")["estimate"]);
    assert!(is_near(log, [91_157, 2_950_775, 1]), "{log:?}");
    // These are three samples that are nearly certain.
    let load = numbers(&of("read_all")["estimate"]);
    assert!(
        load[0] > 2_000_000 && load[1] < 7_000_000 && load[2] == 3,
        "{load:?}"
    );
    let wide = json(&["top", "-n", "1", "--wide", SAMPLED]);
    let values = &wide["rows"][0]["values"];
    assert_eq!(values["alloc_space"]["estimate"]["samples"], 40);
    assert_eq!(values["peak_space"]["estimate"], Value::Null);
    let leaks = json(&["leaks", "-n", "1", SAMPLED]);
    assert!(
        is_near(numbers(&leaks["in_use"]["estimate"]), TOTAL),
        "{leaks}"
    );
    assert_eq!(leaks["in_use"]["objects_estimate"]["samples"], 38);
    assert_eq!(leaks["rows"][0]["estimate"]["samples"], 34);
    assert_eq!(leaks["rows"][0]["objects_estimate"]["samples"], 34);
    let info = json(&["info", SAMPLED]);
    let types = info["sample_types"].as_array().unwrap();
    let samples: Vec<&Value> = types.iter().map(|t| &t["estimate"]["samples"]).collect();
    assert_eq!(samples[..4], [50, 50, 38, 38]);
    assert_eq!(samples[4..], [&Value::Null; 2]);
    let kept = json(&["top", "-n", "0", "--focus", "log", SAMPLED]);
    assert!(is_near(numbers(&kept["estimate"]), TOTAL), "{kept}");
    assert_eq!(kept["net_estimate"]["samples"], 1, "{kept}");
}

#[test]
fn exact_values_have_no_range() {
    for args in [
        &["top"][..],
        &["leaks"],
        &["info"],
        &["tree"],
        &["diff", EXACT],
    ] {
        let document = json(&[args, &[EXACT]].concat()).to_string();
        assert!(!document.contains("estimate"), "{args:?} {document}");
    }
    let csv = ok(&["top", "-n", "1", "-f", "csv", EXACT]);
    let columns = "flat,cum,function,low,high,samples,cum_low,cum_high,cum_samples,file\n";
    assert!(csv.starts_with(columns), "{csv}");
    assert!(csv.contains(",accept_one,,,,,,,server.c\n"), "{csv}");
    assert!(!ok(&["top", EXACT]).contains('±'));
}

#[test]
fn tables_have_the_range_in_columns() {
    let table = [
        (
            "top",
            "flat,cum,function,low,high,samples,cum_low,cum_high,cum_samples,file",
        ),
        (
            "leaks",
            "objects,space,mean \
             size,stack,low,high,samples,objects_low,objects_high,objects_samples",
        ),
    ];
    for (report, columns) in table {
        let csv = ok(&[report, "-n", "1", "-f", "csv", SAMPLED]);
        let mut lines = csv.lines();
        assert_eq!(lines.next(), Some(columns));
        assert!(lines.next().unwrap().contains(",34"), "{csv}");
    }
    for format in ["text", "markdown"] {
        let top = ok(&["top", "-n", "9", "-f", format, SAMPLED]);
        assert!(
            top.contains("21MiB ± 5.97MiB (estimated from 38 samples"),
            "{top}"
        );
        assert!(top.contains("-82/+472%") && top.contains("±"), "{top}");
        let leaks = ok(&["leaks", "-n", "9", "-f", format, SAMPLED]);
        assert!(leaks.contains("21MiB ± 5.97MiB in 19589"), "{leaks}");
        // The ranges are of the objects and the space of the first stack.
        assert!(
            leaks.contains("-39/+94%") && leaks.contains("±34%"),
            "{leaks}"
        );
        let info = ok(&["info", "-f", format, SAMPLED]);
        assert!(info.contains("± 5.97MiB, from 38 samples"), "{info}");
        let text = ok(&["top", "-t", "peak_space", "-f", format, SAMPLED]);
        assert!(text.contains("A sampled peak has no error range"), "{text}");
        assert!(!text.contains('±'), "{text}");
    }
}

#[test]
fn sql_has_the_range_in_columns() {
    let ask = |sql: &str| ok(&["sql", "-p", SAMPLED, sql, "-f", "csv"]);
    let rows = ask(
        "SELECT f.name, t.samples, t.low < t.flat AND t.flat < t.high, t.cum_samples \
                    FROM function_total t JOIN function f ON f.id = t.function \
                    WHERE t.type = 4 AND f.name IN ('log', 'main') ORDER BY 1",
    );
    assert!(rows.ends_with("log,1,1,1\nmain,,,38\n"), "{rows}");
    let rows = ask("SELECT sum(sampled), sum(variance) FROM sample WHERE type = 4");
    assert!(rows.ends_with("38,10197329000000\n"), "{rows}");
    let rows = ask("SELECT samples, kept_samples FROM profile_total WHERE type IN (4, 6)");
    assert!(rows.ends_with("38,38\n,\n"), "{rows}");
    let exact = ok(&[
        "sql",
        "-p",
        EXACT,
        "-f",
        "csv",
        "SELECT count(samples) + count(low) FROM function_total",
    ]);
    assert!(exact.ends_with("\n0\n"), "{exact}");
}

/// A loaded profile shows the same ranges as its file, with filters and without.
#[test]
fn a_database_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("heap.db");
    let db = db.to_str().unwrap();
    ok(&["--db", db, "load", "--as", "stored", SAMPLED]);
    for report in [
        &["top", "-n", "0"][..],
        &["top", "--wide"],
        &["top", "--focus", "serve"],
        &["leaks"],
        &["info"],
    ] {
        let stored = json(&[&["--db", db], report, &["stored"]].concat()).to_string();
        let read = json(&[report, &[SAMPLED]].concat()).to_string();
        assert_eq!(stored.replace("\"stored\"", &format!("{SAMPLED:?}")), read);
    }
    let report = "SELECT low, high, samples FROM profile_report WHERE sample_type = 'inuse_space'";
    let row = ok(&["--db", db, "sql", "-f", "csv", report]);
    assert!(row.ends_with(",38\n"), "{row}");
    let report = "SELECT samples, cum_samples FROM function_report WHERE function = 'log' \
                  AND sample_type = 'inuse_space'";
    let row = ok(&["--db", db, "sql", "-f", "csv", report]);
    assert!(row.ends_with("1,1\n"), "{row}");
}

/// Returns a heap of functions, each with this number of samples of small blocks.
fn heap(functions: &[(&str, u64)]) -> Profile {
    let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    for (i, &(name, samples)) in functions.iter().enumerate() {
        let period = 524_288.0;
        builder.add_folded(&format!("main;{name}"), &[samples as i64 * 524_288]);
        let variance = [samples as f64 * period * period];
        builder.profile.samples.set_spread(i, &[samples], &variance);
    }
    builder.profile.period_type = Some(builder.value_type("space", "bytes"));
    builder.profile.period = 524_288;
    builder.finish()
}

#[test]
fn noise_is_called_noise_and_breaks_no_gate() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |name: &str, functions: &[(&str, u64)]| {
        let file = std::fs::File::create(folder.join(name)).unwrap();
        encode(&heap(functions), file).unwrap();
    };
    write("few.pb.gz", &[("a", 5), ("gone", 2)]);
    write("more.pb.gz", &[("a", 9), ("new", 3)]);
    write("twice.pb.gz", &[("a", 200), ("new", 40)]);
    write("many.pb.gz", &[("a", 100)]);
    let diff = |args: &[&str]| run(folder, &[&["diff"], args].concat());
    let few = diff(&["few.pb.gz", "more.pb.gz", "-f", "json"]);
    let few: Value = serde_json::from_str(&few.out).unwrap();
    let rows = few["rows"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["status"] == "within noise"),
        "{few}"
    );
    assert_eq!(few["total"]["estimate"]["samples"], 19, "{few}");
    assert!(numbers(&few["total"]["estimate"])[0] < 0, "{few}");
    let text = diff(&["few.pb.gz", "more.pb.gz"]).out;
    assert!(text.contains("from 19 samples, within noise)"), "{text}");
    let csv = diff(&["few.pb.gz", "more.pb.gz", "-f", "csv"]).out;
    let columns = "before,after,delta,growth,status,function,low,high,samples,file\n";
    assert!(csv.starts_with(columns), "{csv}");
    let many = diff(&["many.pb.gz", "twice.pb.gz", "-f", "json"]);
    let many: Value = serde_json::from_str(&many.out).unwrap();
    let rows = many["rows"].as_array().unwrap();
    let status: Vec<&Value> = rows.iter().map(|row| &row["status"]).collect();
    assert_eq!(status, ["grown", "new"], "{many}");

    let table: [(&[&str], i32, &str); 10] = [
        (
            &["few.pb.gz", "more.pb.gz", "inuse_space > +10%"],
            0,
            "within noise, not failed: inuse_space > +10% on inuse_space: 3.50MiB to 6MiB \
             (+2.50MiB, +71.4%; ",
        ),
        (
            &[
                "few.pb.gz",
                "more.pb.gz",
                "inuse_space > +10%",
                "--ignore-spread",
            ],
            1,
            "failed: inuse_space > +10%",
        ),
        (
            &["few.pb.gz", "more.pb.gz", "new > 1KiB"],
            0,
            "within noise",
        ),
        (
            &["few.pb.gz", "more.pb.gz", "new > 1KiB", "--ignore-spread"],
            1,
            "failed: new > 1KiB on new",
        ),
        (
            &["few.pb.gz", "more.pb.gz", "flat(.) > +1KiB"],
            0,
            "within noise",
        ),
        (
            &["many.pb.gz", "twice.pb.gz", "inuse_space > +10%"],
            1,
            "failed: inuse_space > +10% on inuse_space: 50MiB to 120MiB (+70MiB, +140.0%; +51",
        ),
        (
            &["many.pb.gz", "twice.pb.gz", "new > 1MiB"],
            1,
            "failed: new > 1MiB on new",
        ),
        (
            &["many.pb.gz", "twice.pb.gz", "flat(a) > +1MiB"],
            1,
            "failed: flat(a) > +1MiB on a",
        ),
        (
            &["many.pb.gz", "twice.pb.gz", "inuse_space > +69MiB"],
            0,
            "within noise",
        ),
        (
            &["many.pb.gz", "twice.pb.gz", "inuse_space > 90MiB"],
            1,
            "failed",
        ),
    ];
    for (args, code, says) in table {
        let (files, rule) = args.split_at(2);
        let run = diff(&[files, &["--fail-if"], rule].concat());
        assert_eq!(run.code, code, "{args:?} {}", run.err);
        assert!(run.err.contains(says), "{args:?} {}", run.err);
    }
    // A rule may be about a value of one profile.
    for (report, rule, code, says) in [
        (
            "top",
            "inuse_space > 40MiB",
            1,
            "failed: inuse_space > 40MiB on inuse_space: 50MiB ± 9.80MiB, from 100 samples\n",
        ),
        ("top", "inuse_space > 45MiB", 0, "within noise, not failed"),
        ("info", "inuse_space > 40MiB", 1, "failed"),
        ("info", "inuse_space > 51MiB", 0, "passed: 1 rule"),
        (
            "top",
            "flat(^a$) > 40MiB",
            1,
            "failed: flat(^a$) > 40MiB on a: 50MiB ± 9.80MiB",
        ),
    ] {
        let run = run(folder, &[report, "many.pb.gz", "--fail-if", rule]);
        assert_eq!(run.code, code, "{report} {rule} {}", run.err);
        assert!(run.err.contains(says), "{}", run.err);
    }
}

/// An absolute budget needs only one profile, and may be about any sample type.
#[test]
fn budgets_of_one_profile() {
    let table: [(&[&str], i32, &str); 7] = [
        (
            &["leaks", "--fail-if", "peak_space > 16KiB"],
            1,
            "failed: peak_space > 16KiB on peak_space: 29.25KiB\n",
        ),
        (&["leaks", "--fail-if", "peak_space > 1MiB"], 0, ""),
        (
            &["top", "--fail-if", "peak_space > 16KiB"],
            1,
            "failed: peak_space > 16KiB on peak_space: 29.25KiB\n",
        ),
        (
            &["info", "--fail-if", "alloc_objects > 5000"],
            1,
            "failed: alloc_objects > 5000 on alloc_objects: 5219\n",
        ),
        (
            &["top", "--fail-if", "cum(serve) > 4KiB"],
            1,
            "failed: cum(serve) > 4KiB on serve: 6KiB\n",
        ),
        (
            &["top", "--fail-if", "inuse_space > +10%"],
            2,
            "is about growth, but there is only one profile",
        ),
        (
            &["info", "--fail-if", "bananas > 1"],
            2,
            "bananas is not one of its sample types; it has alloc_objects, ",
        ),
    ];
    for (args, code, says) in table {
        let run = run(&sample_profiles(), &[args, &[EXACT]].concat());
        assert_eq!(run.code, code, "{args:?} {}", run.err);
        assert!(run.err.contains(says), "{args:?} {}", run.err);
    }
}

#[test]
fn what_a_comparison_cannot_tell_is_said() {
    let said = |args: &[&str]| run(&sample_profiles(), &[&["diff"], args].concat()).err;
    let [go, later] = ["valid/go.leaky.before.pb.gz", "valid/go.leaky.after.pb.gz"];
    let uneven = said(&["--before", go, "--before", go, "--after", later]);
    let expected = "the sum of 2 profiles is compared with that of 1 profile;";
    assert!(uneven.contains(expected), "{uneven}");
    let peak = said(&["--fail-if", "peak_space > +10%", SAMPLED, SAMPLED]);
    let expected = "the peak of a sampled profile has no error range";
    assert!(peak.contains(expected), "{peak}");
    for of_what in ["inuse_space > +10%", "flat(.) > +10%"] {
        let passed = said(&["--fail-if", of_what, SAMPLED, SAMPLED]);
        assert_eq!(passed, "heapprof: passed: 1 rule\n");
    }
    // Most of that was freed before the end, which is said, too.
    let passed = said(&["--fail-if", "inuse_space > +10%", EXACT, EXACT]);
    assert!(passed.ends_with("\nheapprof: passed: 1 rule\n"), "{passed}");
}

/// Where nothing changed by more than noise, the report says how large a growth would have shown:
/// about five samples in a function, and 1.96 deviations of the difference in all.
#[test]
fn what_sampling_could_not_see_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |name: &str, profile: &Profile| {
        encode(profile, std::fs::File::create(folder.join(name)).unwrap()).unwrap();
    };
    write("a", &heap(&[("f", 100), ("g", 44)]));
    write("b", &heap(&[("f", 102), ("g", 40)]));
    write("none", &heap(&[]));
    write("more", &heap(&[("f", 100), ("g", 144)]));
    let mut exact = heap(&[]);
    exact.period = 1;
    write("exact", &exact);
    let diff = |args: &[&str]| {
        let run = run(folder, &[&["diff"], args].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        run.out
    };
    let nothing = "No change is larger than the sampling error: a growth of less than about \
                   2.50MiB in a function, or 18MiB in all, would not show.\n";
    for [before, after] in [["a", "a"], ["a", "b"], ["b", "a"]] {
        let text = diff(&[before, after]);
        assert!(text.contains(nothing), "{text}");
    }
    let lines = diff(&["-g", "lines", "a", "b"]);
    assert!(lines.contains("about 2.50MiB in a line, or"), "{lines}");
    assert!(!diff(&["a", "more"]).contains("No change is larger"));
    let empty = diff(&["none", "none"]);
    let expected = "No allocation was sampled on either side: a growth of less than about 2.50MiB \
                    would not show.\n";
    assert!(empty.contains(expected), "{empty}");
    assert!(diff(&["exact", "exact"]).contains("Both sides hold no values.\n"));
    // The errors of a sampled peak are not known.
    let peak = ok(&["diff", "-t", "peak_space", SAMPLED, SAMPLED]);
    assert!(
        peak.contains("the sampling error: a small growth would not show.\n"),
        "{peak}"
    );
    let document: Value = serde_json::from_str(&diff(&["-f", "json", "a", "b"])).unwrap();
    let growth = &document["smallest_growth"];
    let [row, total] = ["row", "total"].map(|key| growth[key].as_f64().unwrap() / 524_288.0);
    assert!(
        (4.0..5.0).contains(&row) && (33.0..36.0).contains(&total),
        "{document}"
    );
    let exact = diff(&["-f", "json", "exact", "exact"]);
    assert!(!exact.contains("smallest_growth"), "{exact}");
}

/// A comparison of estimates with exact values says which side is which, in one line.
#[test]
fn sampled_and_exact_sides_are_named() {
    let period = "(one every 512KiB on average)";
    for (args, sides) in [
        ([SAMPLED, EXACT], ["before", "after"]),
        ([EXACT, SAMPLED], ["after", "before"]),
    ] {
        let text = ok(&[&["diff"], &args[..]].concat());
        let [sampled, exact] = sides;
        let line = format!(
            "Values are estimated from samples {sampled} {period} and exact {exact}, so a \
             difference is an estimate.\n"
        );
        assert!(text.contains(&line), "{text}");
    }
}

//! Tests of `leaks`: small cases as folded text, suppression rules as LeakSanitizer reads them, and
//! sums that must add up.

use std::path::Path;

use expect_test::{Expect, expect};
use heapprof_analysis::{
    AnalysisSession, ProfileQuestion, Query, QuestionSource, TypeSelection,
    gate::GateRule,
    leaks::{InUseAmount, LeaksReport, leaks},
    suppression::{SuppressionRule, SuppressionSet},
};
use heapprof_profile::{Profile, ProfileBuilder, encode};
use proptest::prelude::*;

use heapprof_tests::harness::{name, run, sample_profiles, valid};

/// Parses a profile from lines `stack objects space`. Comments may come first, after a `#` and
/// separated by `|`.
fn profile(text: &str) -> Profile {
    let types = [("inuse_objects", "count"), ("inuse_space", "bytes")];
    let mut builder = ProfileBuilder::new(&types);
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some(comments) = line.strip_prefix('#') {
            for comment in comments.split('|') {
                let comment = builder.text(comment.trim());
                builder.profile.comment.push(comment);
            }
            continue;
        }
        let mut words = line.rsplitn(3, ' ');
        let mut number = || words.next().unwrap().parse().unwrap();
        let (space, objects) = (number(), number());
        builder.add_folded(words.next().unwrap_or_default(), &[objects, space]);
    }
    builder.finish()
}

fn query() -> Query {
    Query {
        sample_type: Some("inuse_space".to_string()),
        granularity: heapprof_analysis::Granularity::Lines,
        ..Query::default()
    }
}

fn ask(profile: Profile, query: &Query, rules: &str) -> (AnalysisSession, LeaksReport) {
    let mut suppressions = SuppressionSet::default();
    suppressions.read("s", rules).unwrap();
    let source = QuestionSource::new("p", profile);
    let question = ProfileQuestion::new(vec![source], query, TypeSelection::InUse).unwrap();
    let session = AnalysisSession::new(question.with_suppressions(&suppressions)).unwrap();
    let report = leaks(&session, query, &suppressions).unwrap();
    (session, report)
}

fn sum(report: &LeaksReport) -> InUseAmount {
    let rows = report.rows.iter().map(|row| row.in_use);
    let rest = [report.other.0, report.suppressed, report.filtered_out];
    rows.chain(rest)
        .fold(InUseAmount::default(), |sum, in_use| InUseAmount {
            objects: sum.objects + in_use.objects,
            space: sum.space + in_use.space,
        })
}

fn check(profile_text: &str, rules: &str, change: impl FnOnce(&mut Query), expected: Expect) {
    let mut query = query();
    change(&mut query);
    let (_, report) = ask(profile(profile_text), &query, rules);
    assert_eq!(sum(&report), report.total);
    let mut text = String::new();
    let mut line = |in_use: InUseAmount, what: &str| {
        text.push_str(&format!("{} {} {what}\n", in_use.objects, in_use.space));
    };
    for row in &report.rows {
        let stack: Vec<String> = row
            .stack
            .iter()
            .map(|&p| report.places.get(p).label())
            .collect();
        line(row.in_use, &stack.join(" < "));
    }
    for (in_use, what) in [
        (report.other.0, "other"),
        (report.suppressed, "suppressed"),
        (report.filtered_out, "filtered out"),
    ] {
        if !in_use.is_none() {
            line(in_use, what);
        }
    }
    for (rule, in_use) in &report.rules {
        line(*in_use, &format!("{}:{}", rule.line, rule.pattern));
    }
    expected.assert_eq(&text);
}

const STACKS: &str = "
    main@m.c:9;load@l.c:3>>copy@l.h:1 2 200
    main@m.c:9;load@l.c:4 1 50
    main@m.c:9;freed@f.c:1 0 0
    main@m.c:9;empty@e.c:1 3 0
    main@m.c:8;0x401000@/usr/lib/libz.so.1 4 400
     1 7
";

#[test]
fn stacks_that_hold_something_the_largest_first() {
    check(
        STACKS,
        "",
        |_| {},
        expect![[r#"
            4 400 0x401000 [libz.so.1] < main m.c:8
            2 200 copy l.h:1 < load l.c:3 < main m.c:9
            1 50 load l.c:4 < main m.c:9
            1 7 (empty stack)
            3 0 empty e.c:1 < main m.c:9
        "#]],
    );
    check(
        STACKS,
        "",
        |q| {
            q.sample_type = Some("inuse_objects".to_string());
            q.limit = Some(2);
        },
        expect![[r#"
            4 400 0x401000 [libz.so.1] < main m.c:8
            3 0 empty e.c:1 < main m.c:9
            4 257 other
        "#]],
    );
}

#[test]
fn stacks_that_the_granularity_does_not_tell_apart_are_one() {
    check(
        STACKS,
        "",
        |q| {
            q.granularity = heapprof_analysis::Granularity::Functions;
            q.no_inlines = true;
            q.filters.focus = Some("load".to_string());
        },
        expect![[r#"
            3 250 load < main
            8 407 filtered out
        "#]],
    );
}

#[test]
fn samples_that_cancel_out_are_not_in_use() {
    check(
        "main;a 2 200\n main;a -2 -200\n main;b 1 10\n main;c -3 -30",
        "leak:c",
        |_| {},
        expect![[r#"
            1 10 b < main
            -3 -30 suppressed
            -3 -30 1:c
        "#]],
    );
}

#[test]
fn a_stack_belongs_to_the_rule_of_the_frame_nearest_to_the_leaf() {
    check(
        STACKS,
        "leak:main\nleak:libz\n# by file\nleak:l.h\nleak:nothing\nleak:load",
        |_| {},
        expect![[r#"
            1 7 (empty stack)
            10 650 suppressed
            4 400 2:libz
            2 200 4:l.h
            1 50 6:load
            3 0 1:main
            0 0 5:nothing
        "#]],
    );
}

#[test]
fn filters_go_first_and_rules_see_what_they_hide() {
    check(
        STACKS,
        "leak:m.c\nleak:copy",
        |q| {
            q.filters.focus = Some("load".to_string());
            q.filters.hide = Some("copy|main".to_string());
        },
        expect![[r#"
            3 250 suppressed
            8 407 filtered out
            2 200 2:copy
            1 50 1:m.c
        "#]],
    );
}

/// Each line was tested with the LeakSanitizer of gcc 12, on a function or module of that name.
#[test]
fn patterns_match_as_leak_sanitizers_do() {
    let table = [
        ("foo", "foofoo", true),
        ("foo$", "foofoo", false),
        ("^foo*foo$", "foofoo", true),
        ("*foo*foo$", "foofoo", true),
        ("^foofoo$", "foofoo", true),
        ("foo*$", "foofoo", true),
        ("", "foofoo", true),
        (" foofoo", "foofoo", false),
        ("foo$bar", "foofoo", false),
        ("^lsanchk", "/home/lsanchk/a", false),
        ("*lsanchk/a$", "/home/lsanchk/a", true),
        ("lsanchk/*$", "/home/lsanchk/a", true),
        // These follow from LeakSanitizer's source, and were not tested.
        ("^", "a", true),
        ("", "", false),
        ("*", "", false),
        ("^$", "a", false),
        ("$", "a", false),
        ("^*b", "ab", true),
        ("a^b", "a^b", true),
        ("oo$", "oodoo", false),
        ("a*b", "ba", false),
        ("a**b", "a-b", true),
        ("foo*", "foo", true),
        ("b$ignored", "ab", true),
        ("é*ü$", "caféü", true),
    ];
    for (pattern, text, expected) in table {
        let rule = SuppressionRule {
            pattern: pattern.to_string(),
            ..SuppressionRule::default()
        };
        assert_eq!(rule.matches(text), expected, "{pattern:?} on {text:?}");
    }
}

#[test]
fn suppression_files_are_read_as_leak_sanitizer_reads_them() {
    let mut suppressions = SuppressionSet::default();
    let text = "# a comment\n\n  leak:a b \t\r\n\t# another\n\r\nleak: c\nleak:leak:d\nleak:last";
    suppressions.read("s.supp", text).unwrap();
    let rules: Vec<(&str, usize)> = suppressions
        .rules()
        .iter()
        .map(|r| (r.pattern.as_str(), r.line))
        .collect();
    assert_eq!(rules, [("a b", 3), (" c", 6), ("leak:d", 7), ("last", 8)]);
    let table = [
        (
            "race:foo",
            "s.supp:1: \"race\" rules are not supported; only leak:PATTERN is",
        ),
        (
            "leak:a\nfoo",
            "s.supp:2: \"foo\" is not a rule; write leak:PATTERN",
        ),
        (
            "#\n\nleak :foo",
            "s.supp:3: \"leak \" rules are not supported; only leak:PATTERN is",
        ),
        (
            "Leak:foo",
            "s.supp:1: \"Leak\" rules are not supported; only leak:PATTERN is",
        ),
    ];
    for (text, expected) in table {
        let error = SuppressionSet::default().read("s.supp", text).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_frame_in_no_module_is_in_an_unknown_one() {
    check(
        "main;a 1 10\n0x1f@/bin/app 1 5\n0x2f 1 3",
        "leak:<unknown module>",
        |_| {},
        expect![[r#"
            1 5 0x1f [app]
            2 13 suppressed
            2 13 1:<unknown module>
        "#]],
    );
}

#[test]
fn rules_of_fail_if_judge_what_is_not_suppressed() {
    let (session, report) = ask(profile(STACKS), &query(), "leak:libz");
    let table = [
        ("inuse_space > 257", Some("")),
        ("inuse_space >= 257", Some("inuse_space 257")),
        ("inuse_objects > 0", Some("inuse_objects 7")),
        ("flat(load) >= 50", Some("load 50")),
        ("flat(copy|load) > 1", Some("copy 200, load 50")),
        ("cum(load) >= 250", Some("load 250")),
        ("cum(main) > 0.2KiB", Some("main 250")),
        ("cum(libz) > 0", None),
        ("flat(main) > 0", Some("")),
    ];
    for (text, expected) in table {
        let rule = GateRule::parse(text).unwrap();
        let found = rule.judge_leaks(&session, &report).unwrap();
        let found = found.map(|broken| {
            let subjects = broken
                .violations
                .iter()
                .map(|b| format!("{} {}", b.subject, b.change.after));
            subjects.collect::<Vec<_>>().join(", ")
        });
        assert_eq!(found.as_deref(), expected, "{text}");
    }
    for text in ["inuse_space > +10%", "inuse_space > +1", "new > 5"] {
        assert!(
            GateRule::parse(text).unwrap().refuse_comparison().is_err(),
            "{text}"
        );
    }
    for text in ["inuse_objects > 1KiB", "inuse_space > 5s"] {
        assert!(
            GateRule::parse(text)
                .unwrap()
                .judge_leaks(&session, &report)
                .is_err(),
            "{text}"
        );
    }
}

/// On every sample with values in use, everything adds up, and a file and the database give the
/// same result.
#[test]
fn everything_adds_up_and_a_stored_profile_answers_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(
        folder.join("s.supp"),
        "leak:main\nleak:^copy\nleak:libfont*.so\n",
    )
    .unwrap();
    let mut asked = 0;
    for file in valid() {
        let path = file.display().to_string();
        let json = |args: &[&str]| -> Option<serde_json::Value> {
            let run = run(folder, &[&["leaks", "-f", "json"], args].concat());
            if run.err.contains("does not say what is in use") {
                assert_eq!(run.code, 2);
                return None;
            }
            assert_eq!(run.code, 0, "{path}: {}", run.err);
            serde_json::from_str(&run.out).ok()
        };
        let options = ["--suppressions", "s.supp", "-n", "3", "--ignore", "parse"];
        let Some(of_file) = json(&[&options[..], &[&path]].concat()) else {
            continue;
        };
        asked += 1;
        for column in ["objects", "space"] {
            let number = |v: &serde_json::Value| v[column].as_i64().unwrap();
            let rows = of_file["rows"].as_array().unwrap().iter();
            let parts = ["other", "suppressed", "filtered_out"].map(|p| number(&of_file[p]));
            let found = rows.map(number).sum::<i64>() + parts.iter().sum::<i64>();
            assert_eq!(found, number(&of_file["in_use"]), "{path}: {column}");
            let rules = of_file["suppressed"]["rules"].as_array().unwrap().iter();
            assert_eq!(rules.map(number).sum::<i64>(), parts[1], "{path}: {column}");
        }
        let loaded = run(folder, &["load", &path, "--as", &name(&file)]);
        assert_eq!(loaded.code, 0, "{}", loaded.err);
        let stored = json(&[&options[..], &[&name(&file)]].concat());
        assert_eq!(stored.as_ref(), Some(&of_file), "{path}");
    }
    assert!(asked > 8, "{asked}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Rows, other, suppressed and filtered out add up to the total, for any rules and filters.
    #[test]
    fn totals_add_up(
        stacks in prop::collection::vec(("[abc](;[abc]){0,4}", -9i64..99, -9i64..999), 1..20),
        rules in prop::collection::vec("[abc*^$]{1,3}", 0..4),
        ignore in prop::option::of("[abc]"),
        limit in prop::option::of(0usize..5),
        relative: bool,
    ) {
        let lines = stacks.iter().map(|(s, o, b)| format!("{s} {o} {b}\n"));
        let mut query = query();
        query.filters.ignore = ignore;
        query.limit = limit;
        query.relative_percentages = relative;
        let rules: String = rules.iter().map(|r| format!("leak:{r}\n")).collect();
        let (_, report) = ask(profile(&lines.collect::<String>()), &query, &rules);
        prop_assert_eq!(sum(&report), report.total);
        let kept = report.total.space - report.filtered_out.space;
        prop_assert_eq!(report.header.net, kept);
        prop_assert_eq!(report.header.left_out, report.filtered_out.space);
        prop_assert_eq!(report.in_use().space, kept - report.suppressed.space);
    }
}

fn head(folder: &Path, text: &str, args: &[&str]) -> String {
    let file = std::fs::File::create(folder.join("p.pb.gz")).unwrap();
    encode(&profile(text), file).unwrap();
    let run = run(folder, &[&["leaks", "p.pb.gz"], args].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    run.out
}

#[test]
fn heads_say_when_it_was_dumped_and_why_there_is_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("all.supp"), "leak:main\n").unwrap();
    let table = [
        (
            "# dump: exit\nmain;a 1 5",
            &[][..],
            "p.pb.gz: 5B in 1 object in use at exit\n",
        ),
        (
            "# pid: 3 | dump: interval\nmain;a 1 5",
            &[],
            "Not dumped at exit (interval): these are blocks in use at that moment, not leaks.\n",
        ),
        ("main;a 1 5", &[], "does not say when it was dumped"),
        (
            "# dump: exit\nmain;a 0 0",
            &[],
            "\nNothing in use at exit.\n",
        ),
        ("# dump: signal\nmain;a 0 0", &[], "\nNothing in use.\n"),
        (
            "main;a 1 5",
            &["--focus", "b"],
            "\nNo sample passes the filters.\n",
        ),
        (
            "# dump: exit\nmain;a 1 5",
            &["--suppressions", "all.supp"],
            "\n5B in 1 object suppressed by 1 rule\nNothing else in use at exit: the rest is \
             suppressed.\n",
        ),
        (
            "# dump: exit\nother;a 1 5",
            &["--suppressions", "all.supp"],
            "\nNothing was suppressed: 1 rule matched nothing\n",
        ),
    ];
    for (text, args, expected) in table {
        let found = head(folder, text, args);
        assert!(found.contains(expected), "{text} {args:?}: {found}");
    }
    let sampled = run(
        &sample_profiles(),
        &["leaks", "valid/go.indexer.indexed.pb.gz", "-n", "1"],
    );
    let first = sampled.out.lines().next().unwrap_or_default();
    assert!(
        first.ends_with("(estimated from 52619 samples, one every 4KiB on average)"),
        "{first}"
    );
}

#[test]
fn exit_codes() {
    let made = "valid/made.leaks.pb.gz";
    let table: [(&[&str], i32, &str); 11] = [
        (&[made], 0, ""),
        (
            &[made, "--fail-if", "inuse_space > 12KiB"],
            0,
            "heapprof: passed: 1 rule\n",
        ),
        (
            &[made, "--fail-if", "inuse_space >= 12KiB", "-o", "/dev/null"],
            1,
            "failed: inuse_space >= 12KiB on inuse_space: 12KiB\n",
        ),
        (
            &[
                made,
                "--fail-if",
                "inuse_objects > 15",
                "--suppressions",
                "suppressions/server.supp",
            ],
            0,
            "heapprof: passed: 1 rule\n",
        ),
        (
            &[made, "--fail-if", "flat(nobody) > 0"],
            0,
            "matches no function in use\nheapprof: neither failed nor passed: 1 rule\n",
        ),
        (
            &[made, "--fail-if", "new > 5"],
            2,
            "compare two with heapprof diff\n",
        ),
        (
            &[made, "--fail-if", "alloc_space > 5"],
            1,
            "failed: alloc_space > 5 on alloc_space: 724.50KiB\n",
        ),
        (
            &[made, "-t", "alloc_space"],
            2,
            "leaks shows only what is in use",
        ),
        (
            &[made, "--suppressions", "suppressions/broken.supp"],
            2,
            "heapprof: suppressions/broken.supp:3: \"race\" rules are not supported; only \
             leak:PATTERN is\n",
        ),
        (
            &[made, "--suppressions", "nowhere.supp"],
            2,
            "nowhere.supp: cannot be read",
        ),
        (
            &["valid/made.odd-names.pb.gz"],
            2,
            "valid/made.odd-names.pb.gz: has no inuse_objects, so it does not say what is in use; \
             it has inuse_space\n",
        ),
    ];
    for (args, code, expected) in table {
        let run = run(&sample_profiles(), &[&["leaks"], args].concat());
        assert_eq!(run.code, code, "{args:?}: {}", run.err);
        assert!(run.err.contains(expected), "{args:?}: {}", run.err);
        assert!(run.err.lines().count() <= 2, "{args:?}: {}", run.err);
    }
}

#[test]
fn info_shows_rss_beside_the_heap() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let info = |text: &str| -> serde_json::Value {
        let file = std::fs::File::create(folder.join("p.pb.gz")).unwrap();
        encode(&profile(text), file).unwrap();
        let run = run(folder, &["info", "-f", "json", "p.pb.gz"]);
        assert_eq!(run.code, 0, "{}", run.err);
        serde_json::from_str(&run.out).unwrap()
    };
    let both = info("# rss: 4096 bytes | peak rss: 8192 bytes\nmain;a 1 1024");
    let rss = serde_json::json!({"bytes": 4096, "own_tables": 0, "heap": 1024, "heap_ratio": 0.25});
    assert_eq!(both["rss"], rss);
    let peak =
        serde_json::json!({"bytes": 8192, "own_tables": 0, "heap": null, "heap_ratio": null});
    assert_eq!(both["peak_rss"], peak);
    assert_eq!(both["comments"][0], "rss: 4096 bytes");
    let several = info("# rss: 4096 bytes | rss: 5000 bytes\nmain;a 1 1024");
    assert!(several["rss"].is_null() && several["peak_rss"].is_null());
}

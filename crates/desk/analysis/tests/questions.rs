//! Small cases with folded text in and expected rows out: flat, cum, granularities and filters.

use expect_test::{Expect, expect};
use heapprof_analysis::{
    AnalysisSession, Granularity, ProfileQuestion, Query, QueryFilters, QuestionSource,
    TreeOptions, TypeSelection,
    diff::diff,
    peek::peek,
    report::{report, report_below},
    stats::stats,
    tags::tags,
    top::top,
};
use heapprof_profile::{Profile, ProfileBuilder};

use heapprof_tests::fixtures::bytes_in_use as profile;
use heapprof_tests::samples;

fn session(profile: Profile, query: &Query) -> AnalysisSession {
    AnalysisSession::new(
        ProfileQuestion::new(
            vec![QuestionSource::new("p", profile)],
            query,
            TypeSelection::Requested,
        )
        .unwrap(),
    )
    .unwrap()
}

/// Returns `flat cum name` of each row, then the value that the filters left out.
fn rows(profile: Profile, query: &Query) -> String {
    let report = top(&session(profile, query), 1, query, false).unwrap();
    let mut text = String::new();
    for row in &report.rows {
        text.push_str(&format!("{} {} {}\n", row.flat, row.cum, row.place.label()));
    }
    if report.header.left_out != 0 {
        text.push_str(&format!("left out {}\n", report.header.left_out));
    }
    text
}

fn check(stacks: &str, change: impl FnOnce(&mut QueryFilters), expected: Expect) {
    let mut query = Query::default();
    change(&mut query.filters);
    expected.assert_eq(&rows(profile(stacks), &query));
}

fn some(text: &str) -> Option<String> {
    Some(text.to_string())
}

const STACKS: &str = "
    main;load;parse;alloc 100
    main;load;alloc 10
    main;serve;parse;alloc 7
    main;serve 1
";

#[test]
fn recursion_counts_once_a_sample() {
    check(
        "main;f;f;f;g 5\n main;f;g;f 3\n main;g 1",
        |_| {},
        expect![[r#"
        6 9 g
        3 8 f
        0 9 main
    "#]],
    );
}

#[test]
fn focus_and_ignore() {
    check(
        STACKS,
        |f| f.focus = some("parse"),
        expect![[r#"
        107 107 alloc
        0 107 main
        0 107 parse
        0 100 load
        0 7 serve
        left out 11
    "#]],
    );
    check(
        STACKS,
        |f| f.ignore = some("load"),
        expect![[r#"
        7 7 alloc
        1 8 serve
        0 8 main
        0 7 parse
        left out 110
    "#]],
    );
}

#[test]
fn hide_and_show_move_values_to_the_nearest_frame_kept() {
    check(
        STACKS,
        |f| f.hide = some("alloc|parse"),
        expect![[r#"
        110 110 load
        8 8 serve
        0 118 main
    "#]],
    );
    check(
        STACKS,
        |f| f.show = some("parse|main"),
        expect![[r#"
        107 107 parse
        11 118 main
    "#]],
    );
    check(
        "main 5\nother 3",
        |f| f.hide = some("main"),
        expect![[r#"
        3 3 other
        left out 5
    "#]],
    );
}

/// Checks that `show_from` and `prune_from` cut each stack at its own match. Frames that match in
/// other stacks do not matter.
#[test]
fn show_from_and_prune_from() {
    check(
        STACKS,
        |f| f.show_from = some("load"),
        expect![[r#"
        110 110 alloc
        0 110 load
        0 100 parse
        left out 8
    "#]],
    );
    check(
        "a;b;c;b;d 4",
        |f| f.show_from = some("b"),
        expect![[r#"
        4 4 d
        0 4 b
        0 4 c
    "#]],
    );
    check(
        "a;b;c;b;d 4",
        |f| f.prune_from = some("b"),
        expect![[r#"
        4 4 b
        0 4 a
        0 4 c
    "#]],
    );
    check(
        STACKS,
        |f| f.prune_from = some("parse"),
        expect![[r#"
        107 107 parse
        10 10 alloc
        1 8 serve
        0 118 main
        0 110 load
    "#]],
    );
}

#[test]
fn filters_match_files_too() {
    check(
        "main@src/m.c:1;f@lib/f.c:2 5\nmain@src/m.c:1;g@src/g.c:3 2",
        |f| f.focus = some("lib/"),
        expect![[r#"
        5 5 f
        0 5 main
        left out 2
    "#]],
    );
}

#[test]
fn empty_stacks_have_a_row() {
    let mut query = Query::default();
    expect![[r#"
        64 64 (empty stack)
    "#]]
    .assert_eq(&rows(samples::empty_stacks(), &query));
    query.filters.ignore = some("main");
    expect![[r#"
        64 64 (empty stack)
    "#]]
    .assert_eq(&rows(samples::empty_stacks(), &query));
    query.filters = QueryFilters {
        focus: some("main"),
        ..QueryFilters::default()
    };
    expect![[r#"
        left out 64
    "#]]
    .assert_eq(&rows(samples::empty_stacks(), &query));
    // This also holds if there are no frames in the whole profile.
    let mut nothing_else = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    nothing_else.add_folded("", &[64]);
    expect![[r#"
        left out 64
    "#]]
    .assert_eq(&rows(nothing_else.finish(), &query));
}

#[test]
fn frames_without_symbols_have_rows() {
    expect![[r#"
        400 500 0x401000 [app]
        200 200 known
        100 100 0x401100 [app]
        0 300 main
        0 200 0x7f00001000
    "#]]
    .assert_eq(&rows(samples::unsymbolized(), &Query::default()));
}

#[test]
fn drop_frames_are_cut_as_in_pprof() {
    let mut query = Query::default();
    expect![[r#"
        800 800 leaf
        400 400 work
        300 300 load
        0 1500 main
        0 800 malloc_keep
        0 400 malloc
        0 400 malloc_init
    "#]]
    .assert_eq(&rows(samples::drop_frames(), &query));
    query.all_frames = true;
    expect![[r#"
        800 800 leaf
        400 400 work
        200 700 malloc
        100 100 arena_grow
        0 1500 main
        0 800 malloc_keep
        0 400 malloc_init
        0 300 load
        0 200 operator new(unsigned long)
    "#]]
    .assert_eq(&rows(samples::drop_frames(), &query));
}

#[test]
fn granularities() {
    let ask = |granularity, no_inlines| {
        let query = Query {
            granularity,
            no_inlines,
            ..Query::default()
        };
        rows(samples::inlines(), &query)
    };
    expect![[r#"
        20 30 middle
        10 10 inner
        0 30 main
        0 30 outer
    "#]]
    .assert_eq(&ask(Granularity::Functions, false));
    expect![[r#"
        30 30 outer
        0 30 main
    "#]]
    .assert_eq(&ask(Granularity::Functions, true));
    expect![[r#"
        20 30 o.c
        10 10 i.h
        0 30 m.c
    "#]]
    .assert_eq(&ask(Granularity::Files, false));
    expect![[r#"
        20 30 middle o.c:7
        10 10 inner i.h:1
        0 30 main m.c:9
        0 30 outer o.c:3
    "#]]
    .assert_eq(&ask(Granularity::Lines, false));
}

#[test]
fn labels_choose_samples_and_become_frames() {
    let with = |change: fn(&mut QueryFilters)| {
        let mut query = Query::default();
        change(&mut query.filters);
        rows(samples::labels(), &query)
    };
    expect![[r#"
        2048 2048 parse
        2048 2048 read
        0 4096 main
        left out 185
    "#]]
    .assert_eq(&with(|f| f.tag_focus = some("2kb")));
    expect![[r#"
        2080 2080 read
        48 48 parse
        0 2128 main
        left out 2153
    "#]]
    .assert_eq(&with(|f| f.tag_focus = some("thread=io")));
    expect![[r#"
        2096 2096 parse
        2080 2080 read
        100 100 plain
        5 4281 main
        0 2080 thread=io
        0 2048 thread=main
        0 105 (no thread)
        0 48 thread=main,io
    "#]]
    .assert_eq(&with(|f| f.tag_root = vec!["thread".into()]));
}

#[test]
fn tags_add_up_with_what_has_none() {
    let query = Query::default();
    let report = tags(&session(samples::labels(), &query), &query).unwrap();
    for tag in &report.rows {
        let values: i64 = tag.values.iter().map(|v| v.1).sum();
        assert_eq!(
            values - tag.repeated + tag.without,
            report.header.net,
            "{}",
            tag.key
        );
    }
    assert_eq!(
        report
            .rows
            .iter()
            .map(|t| t.key.as_str())
            .collect::<Vec<_>>(),
        ["bytes", "thread"]
    );
}

#[test]
fn peek_under_recursion() {
    let query = Query::default();
    let profile = profile("main;f;g;f;alloc 5\nmain;f 1\nother;f;alloc 2");
    let question = ProfileQuestion::new(
        vec![QuestionSource::new("p", profile)],
        &query,
        TypeSelection::Requested,
    )
    .unwrap()
    .with_neighbours_of(|name| name == "f");
    let session = AnalysisSession::new(question).unwrap();
    let report = peek(&session, &query).unwrap();
    let row = &report.rows[0];
    assert_eq!((row.flat, row.cum), (1, 8));
    let neighbours = report.neighbours(row).unwrap();
    let callers = neighbours
        .callers
        .iter()
        .map(|(p, v)| (report.places.get(p.unwrap()).function.clone(), *v));
    assert_eq!(
        callers.collect::<Vec<_>>(),
        [("main".to_string(), 6), ("other".to_string(), 2)]
    );
    let callees = neighbours
        .callees
        .iter()
        .map(|(p, v)| (report.places.get(*p).function.clone(), *v));
    assert_eq!(callees.collect::<Vec<_>>(), [("alloc".to_string(), 7)]);
}

fn changes(before: &str, after: &str, normalize: bool) -> String {
    let query = Query::default();
    let sources = vec![
        QuestionSource::new("b", profile(before)),
        QuestionSource::new("a", profile(after)),
    ];
    let session = AnalysisSession::new(
        ProfileQuestion::new(sources, &query, TypeSelection::Requested).unwrap(),
    )
    .unwrap();
    let report = diff(&session, [1, 2], &query, normalize).unwrap();
    let mut text = String::new();
    for row in &report.rows {
        let flat = row.flat;
        let status = row.status(query.sort).word();
        text.push_str(&format!(
            "{} {} {} {status} {}\n",
            flat.before,
            flat.after,
            flat.delta(),
            row.place.function
        ));
    }
    text.push_str(&format!(
        "{} {} {}\n",
        report.total.before,
        report.total.after,
        report.total.delta()
    ));
    text
}

#[test]
fn diff_names_what_happened() {
    expect![[r#"
        100 180 80 grown A
        30 0 -30 gone gone
        0 20 20 new new
        5 3 -2 shrunk C
        50 50 0 same B
        0 0 0 same main
        185 253 68
    "#]]
    .assert_eq(&changes(
        "main;A 100\nmain;B 50\nmain;gone 30\nmain;C 5",
        "main;A 180\nmain;B 50\nmain;new 20\nmain;C 3",
        false,
    ));
}

/// Checks that normalized values, which are rounded as a running sum, still add up.
#[test]
fn normalized_values_add_up() {
    let text = changes("a 100", "a 1\nb 1\nc 1", true);
    let after: i64 = text
        .lines()
        .take(3)
        .map(|l| l.split(' ').nth(1).unwrap().parse::<i64>().unwrap())
        .sum();
    assert_eq!(after, 100, "{text}");
    assert!(text.ends_with("100 100 0\n"), "{text}");
}

/// Returns the rows of `stats` by thread.
fn threads(profile: Profile) -> String {
    let question = ProfileQuestion::new(
        vec![QuestionSource::new("p", profile)],
        &Query::default(),
        TypeSelection::All,
    );
    let stats = stats(&AnalysisSession::new(question.unwrap()).unwrap()).unwrap();
    let mut text = String::new();
    for of in stats.threads {
        let name = of.name.as_deref().unwrap_or("the others");
        text += &format!(
            "{name}: {}, {} {}\n",
            of.ids, of.inuse_space, of.alloc_space
        );
    }
    text
}

#[test]
fn threads_are_summed_up_by_name() {
    let types = [("alloc_space", "bytes"), ("inuse_space", "bytes")];
    let mut builder = ProfileBuilder::new(&types);
    let mut add = |thread: &str, tid: i64, in_use: i64| {
        let mut labels = vec![builder.text_label("thread", thread)];
        if tid != 0 {
            labels.push(builder.number_label("tid", tid, ""));
        }
        builder.add_folded_with_labels("main;f", &[in_use + 100, in_use], &mut labels);
    };
    add("(other threads)", 0, 500);
    expect![""].assert_eq(&threads(builder.profile.clone()));
    let mut add = |thread: &str, tid: i64, in_use: i64| {
        let mut labels = vec![
            builder.text_label("thread", thread),
            builder.number_label("tid", tid, ""),
        ];
        builder.add_folded_with_labels("main;f", &[in_use + 100, in_use], &mut labels);
    };
    // There is one thread with two samples, two threads with one name, and more threads than rows.
    add("main", 1, 1000);
    add("main", 1, 20);
    add("worker", 2, 30);
    add("worker", 3, 40);
    for i in 0..10 {
        add(&format!("t{i}"), 10 + i, i);
    }
    expect![[r#"
        main: 1, 1020 1220
        (other threads): 0, 500 600
        worker: 2, 70 270
        t9: 1, 9 109
        t8: 1, 8 108
        t7: 1, 7 107
        t6: 1, 6 106
        t5: 1, 5 105
        t4: 1, 4 104
        t3: 1, 3 103
        the others: 3, 3 303
    "#]]
    .assert_eq(&threads(builder.finish()));
}

/// Checks that a page, and what it leaves out, distinguishes functions with the same name.
#[test]
fn pages_tell_functions_of_one_name_apart() {
    let stacks = "
        main@m.c:1;init@src/a.c:2;x 90
        main@m.c:1;init@src/a.c:2;y 5
        main@m.c:1;init@src/b.c:2;x 80
        main@m.c:1;init@src/b.c:2;z 4
    ";
    let query = Query {
        granularity: Granularity::Lines,
        ..Query::default()
    };
    let source = QuestionSource::new("p", profile(stacks));
    let question = ProfileQuestion::new(vec![source], &query, TypeSelection::All).unwrap();
    let question = question.with_tree(TreeOptions {
        reverse: false,
        least: 0.1,
        most: None,
    });
    let session = AnalysisSession::new(question).unwrap();
    let page = report(&session).unwrap();
    let functions = page.functions.iter();
    let functions: Vec<[&str; 3]> = functions
        .map(|of| [&*of.name, &*of.file, &*of.label])
        .collect();
    assert_eq!(
        functions,
        [
            ["(other)", "", "(other)"],
            ["main", "m.c", "main"],
            ["init", "src/a.c", "init a.c"],
            ["x", "", "x"],
            ["init", "src/b.c", "init b.c"],
        ]
    );
    let below = |init: &str| -> i64 {
        let path = ["main".to_string(), init.to_string()];
        let below = report_below(&session, &[path.to_vec()]).unwrap();
        below.moments[0].values.iter().map(|value| value.2).sum()
    };
    assert_eq!(below("init\nsrc/a.c"), 5);
    assert_eq!(below("init\nsrc/b.c"), 4);
    assert_eq!(below("init"), 9);
    assert_eq!(below("init\nm.c"), 0);
}

/// Checks that the page of two builds of a program has one function for a name that is in one file
/// in each build.
#[test]
fn pages_match_functions_of_two_profiles() {
    let query = Query {
        granularity: Granularity::Lines,
        ..Query::default()
    };
    let sources = ["one", "two"].map(|home| {
        let stacks = format!("main@/{home}/m.c:1;init@/{home}/a.c:2 5\n init@/one/b.c:3 7");
        QuestionSource::new(home, profile(&stacks))
    });
    let question = ProfileQuestion::new(sources.to_vec(), &query, TypeSelection::All).unwrap();
    let question = question.with_tree(TreeOptions {
        reverse: false,
        least: 0.0,
        most: None,
    });
    let page = report(&AnalysisSession::new(question).unwrap()).unwrap();
    let mut functions: Vec<[&str; 2]> = page
        .functions
        .iter()
        .map(|of| [&*of.name, &*of.file])
        .collect();
    functions.sort_unstable();
    assert_eq!(
        functions,
        [
            ["(other)", ""],
            ["init", "/one/a.c"],
            ["init", "/one/b.c"],
            ["init", "/two/a.c"],
            // The function has a different file on each side.
            ["main", ""],
        ]
    );
}

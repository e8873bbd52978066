//! Checks how the work of SQLite for each report grows: four times as many label sets, threads,
//! frames, functions or profiles take at most about five times the work. Steps are counted, because
//! time depends more on the machine than on the report.

use heapprof_analysis::{
    AnalysisSession, Granularity, ProfileQuestion, Query, QuestionSource, TypeSelection,
    diff::diff, folded::each_folded_stack, gate::GateRule, info::info, leaks::leaks, list::list,
    peek::peek, stats::stats, suppression::SuppressionSet, tags::tags, timeline::timeline,
    top::top, traces::traces, tree::tree,
};
use heapprof_profile::{Profile, ProfileBuilder};

/// Largest factor by which the work may grow when a profile becomes four times as large: sorting
/// and searching take a little more than four times as long.
const MAX_GROWTH: u64 = 5;

const TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// A function that makes a profile with `count` items of one kind.
type Shape = fn(count: usize) -> Profile;

const SHAPES: [(&str, Shape); 4] = [
    ("label sets", |count| {
        profile(count, |builder, i, values| {
            let mut labels = [
                builder.text_label("request", &format!("r{i}")),
                builder.number_label("age", i as i64, "nanoseconds"),
            ];
            builder.add_folded_with_labels(&stack(i % 50, 8), values, &mut labels);
        })
    }),
    ("threads", |count| {
        profile(count, |builder, i, values| {
            let mut labels = [
                builder.text_label("thread", &format!("worker-{i}")),
                builder.number_label("tid", i as i64 + 1, ""),
            ];
            builder.add_folded_with_labels(&stack(i % 50, 8), values, &mut labels);
        })
    }),
    ("frames of a stack", |count| {
        profile(10, |builder, i, values| {
            builder.add_folded(&stack(i, count), values);
        })
    }),
    ("functions", |count| {
        profile(count, |builder, i, values| {
            builder.add_folded(&stack(i, 3), values);
        })
    }),
];

fn profile(samples: usize, add: impl Fn(&mut ProfileBuilder, usize, &[i64])) -> Profile {
    let mut builder = ProfileBuilder::new(&TYPES);
    for i in 0..samples {
        let objects = 1 + i as i64 % 7;
        add(
            &mut builder,
            i,
            &[2 * objects, 128 * objects, objects, 64 * objects],
        );
    }
    builder.finish()
}

fn stack(first: usize, frames: usize) -> String {
    let frames = (first..first + frames).map(|n| format!("function_{n}"));
    frames.collect::<Vec<_>>().join(";")
}

/// A report with its name, and the sample types that it needs.
type Asked = (&'static str, TypeSelection, fn(&AnalysisSession, &Query));

const REPORTS: [Asked; 11] = [
    ("top", TypeSelection::Requested, |session, query| {
        top(session, 1, query, false).unwrap();
    }),
    ("top --wide", TypeSelection::All, |session, query| {
        top(session, 1, query, true).unwrap();
    }),
    ("peek", TypeSelection::Requested, |session, query| {
        let peek = peek(session, query).unwrap();
        for row in &peek.rows {
            peek.neighbours(row).unwrap();
        }
    }),
    ("tree", TypeSelection::Requested, |session, query| {
        tree(session, query).unwrap().rows().unwrap();
    }),
    ("traces", TypeSelection::Requested, |session, query| {
        traces(session, query).unwrap();
    }),
    ("tags", TypeSelection::Requested, |session, query| {
        tags(session, query).unwrap();
    }),
    ("folded", TypeSelection::Requested, |session, query| {
        each_folded_stack(session, query, |_, _, _| Ok(()))
            .unwrap()
            .unwrap();
    }),
    ("info", TypeSelection::All, |session, _| {
        info(session).unwrap();
    }),
    ("stats", TypeSelection::All, |session, _| {
        stats(session).unwrap();
    }),
    ("leaks", TypeSelection::InUse, |session, query| {
        leaks(session, query, &SuppressionSet::default()).unwrap();
    }),
    ("a rule", TypeSelection::All, |session, query| {
        let rule = GateRule::parse("flat(function_1) > 1TiB").unwrap();
        rule.judge_profile(session, 1, query).unwrap();
    }),
];

fn session(profiles: Vec<Profile>, query: &Query, types: TypeSelection) -> AnalysisSession {
    let sources = profiles.into_iter().enumerate();
    let sources = sources.map(|(i, profile)| QuestionSource::new(format!("p{i}"), profile));
    AnalysisSession::new(ProfileQuestion::new(sources.collect(), query, types).unwrap()).unwrap()
}

fn with(granularity: Granularity) -> Query {
    Query {
        granularity,
        ..Query::default()
    }
}

/// Fails if four times as many items take much more than four times the work.
fn assert_grows_evenly(what: &str, shape: &str, [few, many]: [u64; 2]) {
    assert!(few > 0, "{what} of {shape} does nothing");
    assert!(
        many <= few * MAX_GROWTH,
        "{what}: four times as many {shape} take {many} steps instead of {few}"
    );
}

#[test]
fn reports_work_in_proportion_to_the_profile() {
    let query = with(Granularity::Functions);
    for (shape, make) in SHAPES {
        for (report, types, ask) in REPORTS {
            let steps = [200, 800].map(|count| {
                let session = session(vec![make(count)], &query, types);
                ask(&session, &query);
                session.steps()
            });
            assert_grows_evenly(report, shape, steps);
        }
    }
}

#[test]
fn reports_of_two_questions_work_in_proportion_to_the_profile() {
    let (query, lines) = (with(Granularity::Functions), with(Granularity::Lines));
    for (shape, make) in SHAPES {
        let steps = [200, 800].map(|count| {
            let [of_functions, of_lines] = [&query, &lines]
                .map(|query| session(vec![make(count)], query, TypeSelection::Requested));
            list(&of_functions, &of_lines, &query, |_| true).unwrap();
            of_functions.steps() + of_lines.steps()
        });
        assert_grows_evenly("list", shape, steps);
        let steps = [200, 800].map(|count| {
            let session = session(
                vec![make(count), make(count)],
                &query,
                TypeSelection::Requested,
            );
            diff(&session, [1, 2], &query, false).unwrap();
            session.steps()
        });
        assert_grows_evenly("diff", shape, steps);
    }
}

#[test]
fn a_timeline_works_in_proportion_to_the_profiles() {
    let one = |_| {
        profile(3, |builder, i, values| {
            let comment = builder.text("a comment");
            builder.profile.comment.push(comment);
            builder.add_folded(&stack(i, 3), values);
        })
    };
    let steps = [50, 200].map(|count| {
        let profiles = (0..count).map(one).collect();
        let session = session(profiles, &Query::default(), TypeSelection::All);
        timeline(&session).unwrap();
        session.steps()
    });
    assert_grows_evenly("timeline", "profiles", steps);
}

#[test]
fn statements_find_the_labels_of_a_set() {
    let profiles = vec![(SHAPES[0].1)(400), (SHAPES[1].1)(2)];
    let session = session(profiles, &Query::default(), TypeSelection::All);
    let rows = |sql: &str| {
        let table = heapprof_analysis::statement::run_statement(&session, sql).unwrap();
        table.rows.len()
    };
    for (expected, sql) in [
        (804, "SELECT * FROM label"),
        (2, "SELECT * FROM label WHERE label_set = 400"),
        (
            2,
            "SELECT * FROM label WHERE label_set = 402 AND key IN ('thread', 'tid')",
        ),
        (
            6,
            "SELECT * FROM label WHERE label_set IN (3, 402, 1, 403, 0, -1)",
        ),
        (
            3216,
            "SELECT * FROM sample s JOIN label l USING (label_set)",
        ),
        (4, "SELECT * FROM profile_total WHERE profile = 2"),
        (0, "SELECT * FROM profile_total WHERE profile = 3"),
        (0, "SELECT * FROM comment WHERE profile = 1"),
    ] {
        assert_eq!(rows(sql), expected, "{sql}");
    }
}

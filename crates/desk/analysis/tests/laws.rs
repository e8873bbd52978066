//! Laws that hold for every profile, checked with every sample profile.

use std::collections::BTreeMap;

use heapprof_analysis::{
    AnalysisError, AnalysisSession, EMPTY_STACK, Granularity, OTHER_NAME, ProfileQuestion, Query,
    QuestionSource, TreeOptions, TypeSelection,
    diff::diff,
    report::{ReportContents, report, report_below},
    statement::run_statement,
    top::{TopReport, top},
    tree::tree,
};
use heapprof_profile::{Profile, ReadOptions, decode, decode_with, encode, merge};

use heapprof_tests::exercise::plain;
use heapprof_tests::harness::{name, valid};

fn profiles() -> impl Iterator<Item = (String, Profile)> {
    valid().into_iter().map(|file| {
        let profile = decode(std::fs::File::open(&file).unwrap()).unwrap();
        (name(&file), profile)
    })
}

fn query(sample_type: usize, granularity: Granularity) -> Query {
    Query {
        sample_type: Some(sample_type.to_string()),
        granularity,
        ..Query::default()
    }
}

fn session(profile: &Profile, query: &Query) -> AnalysisSession {
    let source = QuestionSource::new("profile", profile.clone());
    AnalysisSession::new(
        ProfileQuestion::new(vec![source], query, TypeSelection::Requested).unwrap(),
    )
    .unwrap()
}

fn tops(profile: &Profile) -> Vec<TopReport> {
    let mut all = Vec::new();
    for sample_type in 0..profile.sample_type.len() {
        for (_, granularity) in Granularity::ALL {
            let query = query(sample_type, granularity);
            all.push(top(&session(profile, &query), 1, &query, false).unwrap());
        }
    }
    all
}

fn is_positive(profile: &Profile) -> bool {
    let samples = &profile.samples;
    (0..samples.len()).all(|i| samples.values(i).iter().all(|&v| v >= 0))
}

#[test]
fn a_profile_survives_encoding() {
    for (name, profile) in profiles() {
        let mut file = Vec::new();
        encode(&profile, &mut file).unwrap();
        let again = decode(&file[..]).unwrap();
        assert_eq!(again, profile, "{name}");
        assert_eq!(decode(&plain(&again)[..]).unwrap(), profile, "{name}");
        let mut file_again = Vec::new();
        encode(&again, &mut file_again).unwrap();
        assert_eq!(file, file_again, "{name}: encoding is deterministic");
    }
}

#[test]
fn stacks_that_nobody_asks_for_are_passed_on() {
    for file in valid() {
        let name = name(&file);
        let options = ReadOptions::default().stacks_as_written(true);
        let kept = decode_with(std::fs::File::open(&file).unwrap(), options).unwrap();
        let read = decode(std::fs::File::open(&file).unwrap()).unwrap();
        assert!(plain(&kept) == plain(&read), "{name}");
        let (mut cut, mut expected) = (kept.clone(), read.clone());
        assert_eq!(kept, read, "{name}");
        for profile in [&mut cut, &mut expected] {
            profile.samples.rewrite(|stack, _, _, kept| {
                kept.extend_from_slice(&stack[stack.len() / 2..]);
                stack.len() % 3 > 0
            });
        }
        assert_eq!(cut, expected, "{name}");
    }
}

#[test]
fn flat_adds_up_to_net() {
    for (name, profile) in profiles() {
        for top in tops(&profile) {
            let flat: i64 = top.rows.iter().map(|r| r.flat).sum();
            assert_eq!(flat, top.header.net, "{name} {}", top.header.granularity);
            assert_eq!(top.other.rows, 0);
            assert_eq!(top.other.flat, 0);
        }
    }
}

#[test]
fn flat_is_at_most_cum_is_at_most_total() {
    for (name, profile) in profiles().filter(|(_, p)| is_positive(p)) {
        for top in tops(&profile) {
            for row in &top.rows {
                assert!(row.flat <= row.cum, "{name} {row:?}");
                assert!(row.cum <= top.header.total, "{name} {row:?}");
            }
        }
    }
}

#[test]
fn roots_hold_the_total() {
    for (name, profile) in profiles() {
        for sample_type in 0..profile.sample_type.len() {
            let query = query(sample_type, Granularity::Functions);
            let session = session(&profile, &query);
            let report = tree(&session, &query).unwrap();
            let rows = report.rows().unwrap();
            let roots: i64 = rows
                .iter()
                .filter(|r| r.depth == 0)
                .map(|r| r.total[0])
                .sum();
            assert_eq!(roots, report.header.net, "{name}");
            let own: i64 = rows.iter().map(|r| r.own[0]).sum();
            assert_eq!(own, report.header.net, "{name}");
        }
    }
}

#[test]
fn rows_and_other_add_up() {
    for (name, profile) in profiles() {
        for limit in [0, 1, 3] {
            let query = Query {
                limit: Some(limit),
                ..Query::default()
            };
            for wide in [false, true] {
                let source = QuestionSource::new("profile", profile.clone());
                let types = if wide {
                    TypeSelection::All
                } else {
                    TypeSelection::Requested
                };
                let session = AnalysisSession::new(
                    ProfileQuestion::new(vec![source], &query, types).unwrap(),
                )
                .unwrap();
                let top = top(&session, 1, &query, wide).unwrap();
                let flat: i64 = top.rows.iter().map(|r| r.flat).sum();
                assert_eq!(
                    flat + top.other.flat,
                    top.header.net,
                    "{name} {limit} {wide}"
                );
                assert!(top.rows.len() <= limit);
            }
        }
    }
}

#[test]
fn cut_trees_keep_the_total() {
    for (name, profile) in profiles() {
        for reverse in [false, true] {
            for least in [0.001, 0.05, 0.9, 1.0] {
                let source = QuestionSource::new("profile", profile.clone());
                let question =
                    ProfileQuestion::new(vec![source], &Query::default(), TypeSelection::Requested)
                        .unwrap()
                        .with_tree(TreeOptions {
                            reverse,
                            least,
                            most: None,
                        });
                let session = AnalysisSession::new(question).unwrap();
                let report = tree(&session, &Query::default()).unwrap();
                let own: i64 = report.rows().unwrap().iter().map(|r| r.own[0]).sum();
                assert_eq!(own, report.header.net, "{name} {reverse} {least}");
            }
        }
    }
}

/// Checks the definitions of cum and flat with the call tree: cum is the sum of `total` over an
/// entity's outermost nodes, and flat is the sum of `self` over all of its nodes.
#[test]
fn totals_are_what_the_tree_says() {
    for (name, profile) in profiles() {
        for (_, granularity) in Granularity::ALL {
            let query = Query {
                granularity,
                ..Query::default()
            };
            let source = QuestionSource::new("profile", profile.clone());
            let session = AnalysisSession::new(
                ProfileQuestion::new(vec![source], &query, TypeSelection::All).unwrap(),
            )
            .unwrap();
            let totals = "SELECT type, entity, flat, cum FROM function_total \
                          WHERE flat != 0 OR cum != 0 ORDER BY 1, 2";
            let by_tree = "SELECT type, entity, sum(self) AS flat, \
                           ifnull(sum(total) FILTER (WHERE outermost), 0) AS cum \
                           FROM node GROUP BY 1, 2 HAVING flat != 0 OR cum != 0 ORDER BY 1, 2";
            let by_stacks = "SELECT s.type, f.entity, sum(s.value * f.is_leaf), sum(s.value) \
                             FROM sample s JOIN stack_function f ON f.stack = s.stack \
                             GROUP BY 1, 2 ORDER BY 1, 2";
            let expected = run_statement(&session, totals).unwrap().rows;
            let found = run_statement(&session, by_tree).unwrap().rows;
            assert_eq!(found, expected, "{name} {granularity}");
            if is_positive(&profile) {
                let found = run_statement(&session, by_stacks).unwrap().rows;
                assert_eq!(found, expected, "{name} {granularity}");
            }
        }
    }
}

/// Checks that each subtree is a range of node ids.
#[test]
fn nodes_are_in_pre_order() {
    for (name, profile) in profiles() {
        let session = session(&profile, &Query::default());
        let wrong = "SELECT count(*) FROM node n LEFT JOIN node p ON p.profile = n.profile \
                     AND p.type = n.type AND p.id = n.parent \
                     WHERE n.last_descendant < n.id OR p.id >= n.id \
                     OR p.last_descendant < n.last_descendant \
                     OR n.depth != ifnull(p.depth + 1, 0)";
        let count = &run_statement(&session, wrong).unwrap().rows[0][0];
        assert_eq!(
            *count,
            heapprof_analysis::statement::SqlValue::Int(0),
            "{name}"
        );
    }
}

#[test]
fn a_profile_less_itself_is_empty() {
    for (name, profile) in profiles() {
        let mut negated = profile.clone();
        negated.negate().unwrap();
        let knows = profile.samples.has_spread();
        let samples = merge(profile, negated).unwrap().samples;
        // A profile minus itself keeps only the fact that the values are estimates.
        let zero = |i: usize| samples.values(i).iter().all(|&v| v == 0);
        assert!((0..samples.len()).all(zero), "{name}");
        assert!(samples.is_empty() || knows, "{name}");
    }
}

#[test]
fn a_profile_and_itself_is_twice_as_much() {
    for (name, profile) in profiles() {
        let before: Vec<i64> = tops(&profile).iter().map(|t| t.header.net).collect();
        let sum = merge(profile.clone(), profile).unwrap();
        let after: Vec<i64> = tops(&sum).iter().map(|t| t.header.net).collect();
        let twice: Vec<i64> = before.iter().map(|n| 2 * n).collect();
        assert_eq!(after, twice, "{name}");
    }
}

#[test]
fn a_profile_does_not_differ_from_itself() {
    for (name, profile) in profiles() {
        for (_, granularity) in Granularity::ALL {
            let query = Query {
                granularity,
                ..Query::default()
            };
            let sources = vec![
                QuestionSource::new("a", profile.clone()),
                QuestionSource::new("b", profile.clone()),
            ];
            let session = AnalysisSession::new(
                ProfileQuestion::new(sources, &query, TypeSelection::Requested).unwrap(),
            )
            .unwrap();
            let diff = diff(&session, [1, 2], &query, false).unwrap();
            assert_eq!(diff.total.delta(), 0);
            let changed = diff
                .rows
                .iter()
                .filter(|r| r.flat.delta() != 0 || r.cum.delta() != 0);
            assert_eq!(changed.count(), 0, "{name}");
        }
    }
}

/// Checks that the values that filters keep and leave out add up to the whole, for focus and for
/// ignore.
#[test]
fn filters_part_the_whole() {
    for (name, profile) in profiles() {
        let part = |focus: Option<&str>, ignore: Option<&str>| {
            let mut query = Query::default();
            query.filters.focus = focus.map(str::to_string);
            query.filters.ignore = ignore.map(str::to_string);
            let top = top(&session(&profile, &query), 1, &query, false).unwrap();
            let flat: i64 = top.rows.iter().map(|r| r.flat).sum();
            assert_eq!(flat, top.header.net, "{name}");
            (top.header.net, top.header.left_out)
        };
        let (whole, none) = part(None, None);
        assert_eq!(none, 0);
        for regex in ["a", "main", "^$", "parse|alloc"] {
            let (focused, left) = part(Some(regex), None);
            let (ignored, out) = part(None, Some(regex));
            assert_eq!(focused + left, whole, "{name} {regex}");
            assert_eq!(ignored + out, whole, "{name} {regex}");
            assert_eq!(focused + ignored, whole, "{name} {regex}");
        }
    }
}

/// Checks that the values of callers add up to cum, and that the values of callees and flat do,
/// too.
#[test]
fn neighbours_add_up() {
    for (name, profile) in profiles() {
        let session = session(&profile, &Query::default());
        let wrong = "SELECT f.name, t.cum, n.side, n.value FROM function_total t \
                     JOIN function f ON f.id = t.function JOIN \
                     (SELECT entity, side, sum(value) AS value FROM neighbour GROUP BY 1, 2) n \
                     ON n.entity = t.entity WHERE t.cum != n.value";
        let rows = run_statement(&session, wrong).unwrap().rows;
        let named = |row: &Vec<heapprof_analysis::statement::SqlValue>| {
            row[0] != heapprof_analysis::statement::SqlValue::Text(EMPTY_STACK.to_string())
        };
        assert_eq!(rows.into_iter().filter(named).count(), 0, "{name}");
    }
}

#[test]
fn a_total_beyond_64_bits_is_an_error() {
    let mut builder =
        heapprof_profile::ProfileBuilder::new(&[("space", "bytes"), ("objects", "count")]);
    builder.add_folded("main;a", &[i64::MAX, 1]);
    builder.add_folded("main;b", &[i64::MAX, 1]);
    let profile = builder.finish();
    let ask = |sample_type: &str| {
        let query = Query {
            sample_type: Some(sample_type.to_string()),
            ..Query::default()
        };
        ProfileQuestion::new(
            vec![QuestionSource::new("p", profile.clone())],
            &query,
            TypeSelection::Requested,
        )
        .map(drop)
    };
    let error = ask("space").unwrap_err();
    let AnalysisError::InProfile { error, .. } = &error else {
        panic!("{error}");
    };
    let is_overflow = |error: &heapprof_totals::TotalsError| {
        matches!(error, heapprof_totals::TotalsError::Overflow { .. })
    };
    assert!(matches!(&**error, AnalysisError::Totals(error) if is_overflow(error)));
    ask("objects").unwrap();
}

/// Returns the values of each path of function names that ends in `(other)`, by sample type, and
/// the sums of all values.
fn left_out(report: &ReportContents) -> (BTreeMap<Vec<String>, Vec<i64>>, Vec<i64>) {
    let name = |node: u32| {
        let (function, _) = report.places[report.nodes[node as usize].place as usize];
        report.functions[function as usize].name.clone()
    };
    let (mut others, mut sums) = (BTreeMap::new(), vec![0; report.types.len()]);
    for &(node, of, value) in &report.moments[0].values {
        sums[of as usize] += value;
        if name(node) != OTHER_NAME {
            continue;
        }
        let mut path = Vec::new();
        let mut above = report.nodes[node as usize].parent;
        while let Some(parent) = above {
            path.insert(0, name(parent));
            above = report.nodes[parent as usize].parent;
        }
        let zeros = || vec![0; report.types.len()];
        others.entry(path).or_insert_with(zeros)[of as usize] += value;
    }
    (others, sums)
}

/// Opens the last of these paths, and then the first `(other)` in the result, down to `levels`
/// levels. In each result, the sums must equal `values`, and there must be nodes below the path.
fn open_all(
    session: &AnalysisSession,
    paths: &mut Vec<Vec<String>>,
    values: &[i64],
    levels: usize,
    what: &str,
) {
    let below = report_below(session, paths).unwrap();
    let (others, sums) = left_out(&below);
    assert_eq!(sums, values, "{what}, {paths:?}");
    let shown = below.nodes.len() - below.left_out.0;
    let way = paths[paths.len() - 1].len();
    assert!(shown > way, "{what}: nothing new below {paths:?}");
    if let Some((path, values)) = others.iter().next().filter(|_| levels > 1) {
        paths.push(path.clone());
        open_all(session, paths, values, levels - 1, what);
    }
}

/// Checks that opening a node `(other)` shows exactly the values of the node, and that a tree of
/// any size has the total.
#[test]
fn what_was_left_out_is_below_its_path() {
    for (file, profile) in profiles() {
        let net: Vec<i64> = (0..profile.sample_type.len())
            .map(|of| {
                (0..profile.samples.len())
                    .map(|i| profile.samples.values(i)[of])
                    .sum()
            })
            .collect();
        for most in [1, 7, 40, 300] {
            let source = QuestionSource::new("profile", profile.clone());
            let query = Query {
                granularity: Granularity::Lines,
                ..Query::default()
            };
            let question = ProfileQuestion::new(vec![source], &query, TypeSelection::All).unwrap();
            let session = AnalysisSession::new(question.with_tree(TreeOptions {
                reverse: false,
                least: 0.0,
                most: Some(most),
            }))
            .unwrap();
            let (others, sums) = left_out(&report(&session).unwrap());
            assert_eq!(sums, net, "{file}, {most} nodes");
            for (at, (path, values)) in (0..).zip(others) {
                let levels = if at == 0 { 4 } else { 1 };
                let what = format!("{file}, {most} nodes");
                open_all(&session, &mut vec![path], &values, levels, &what);
            }
        }
    }
}

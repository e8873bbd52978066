//! Tests of the call graph: small cases from folded text to nodes and calls, and laws on every
//! sample.
//!
//! Goldens written by pprof check that pprof draws the same graphs (pprof.rs). This file checks the
//! rules behind them.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use heapprof_analysis::{
    AnalysisSession, EMPTY_STACK, ProfileQuestion, Query, QuestionSource, TypeSelection, top::top,
};
use heapprof_dropin::graph::{
    CallGraph, CallSelection, GraphOptions, PathTrimmer, PictureOptions, fits, total,
};
use heapprof_dropin::reshape::{FrameDetail, aggregate};
use heapprof_profile::{Profile, ProfileBuilder, decode};
use heapprof_tests::fixtures::bytes_in_use;
use heapprof_totals::TotalsError;

use heapprof_tests::harness::{name, valid};

fn profile(stacks: &str) -> Profile {
    without_addresses(bytes_in_use(stacks))
}

/// Returns the profile without addresses: its nodes differ by function, file, line and column.
fn without_addresses(mut profile: Profile) -> Profile {
    let detail = FrameDetail {
        inlines: true,
        function: true,
        filename: true,
        line: true,
        column: true,
        address: false,
    };
    aggregate(&mut profile, detail);
    profile
}

fn options<'a>() -> GraphOptions<'a> {
    GraphOptions {
        columns: vec![0],
        mean_divisor: None,
        call_tree: false,
        drop_negative: false,
        objects: false,
        trim: PathTrimmer::new("", ""),
        picture: None,
        sort_by_cum: false,
        node_count: 0,
        node_fraction: 0.0,
        edge_fraction: 0.0,
        calls: CallSelection::Each,
        wrapping: false,
    }
}

/// Returns a graph as text: a line for each node with flat, cum and name, then its calls.
fn drawn(profile: &Profile, options: &GraphOptions<'_>) -> String {
    let graph = CallGraph::new(profile, options).unwrap();
    let mut text = String::new();
    for &node in graph.shown() {
        let (flat, cum) = (graph.flat(node), graph.cum(node));
        text.push_str(&format!("{flat} {cum} {}\n", graph.name(node)));
        for edge in graph.callees(node) {
            let residual = if edge.residual { " over others" } else { "" };
            let inline = if edge.inline { " inline" } else { "" };
            let (weight, callee) = (graph.weight(edge), graph.name(edge.callee));
            text.push_str(&format!("    {weight} {callee}{residual}{inline}\n"));
        }
    }
    for (count, what) in [
        (graph.dropped_nodes, "nodes"),
        (graph.dropped_edges, "edges"),
    ] {
        if count > 0 {
            text.push_str(&format!("dropped {count} {what}\n"));
        }
    }
    text
}

fn check(stacks: &str, options: GraphOptions<'_>, expected: Expect) {
    expected.assert_eq(&drawn(&profile(stacks), &options));
}

#[test]
fn a_call_counts_once_a_sample() {
    check(
        "main;f;g;f;g 5\n main;f;f 3\n main;g 2",
        options(),
        expect![[r#"
            7 7 g
                5 f
            3 8 f
                5 g
            0 10 main
                8 f
                2 g
        "#]],
    );
}

#[test]
fn calls_are_inline_when_all_are() {
    check(
        "main;f>>g 5\n main;h>>f;g 3\n main;h 1",
        options(),
        expect![[r#"
            8 8 g
            1 4 h
                3 f inline
            0 8 f
                8 g
            0 9 main
                5 f
                4 h
        "#]],
    );
}

const STACKS: &str = "
    main;load;parse;alloc 100
    main;load;alloc 10
    main;serve;parse;alloc 7
    main;serve 1
";

#[test]
fn calls_go_over_nodes_that_were_dropped() {
    let few = GraphOptions {
        node_count: 2,
        ..options()
    };
    check(
        STACKS,
        few,
        expect![[r#"
            117 117 alloc
            1 8 serve
                7 alloc over others
        "#]],
    );
    let light = GraphOptions {
        node_fraction: 0.1,
        edge_fraction: 0.1,
        ..options()
    };
    check(
        STACKS,
        light,
        expect![[r#"
            117 117 alloc
            0 110 load
                100 parse
            0 118 main
                110 load
            0 107 parse
                107 alloc
            dropped 1 nodes
            dropped 2 edges
        "#]],
    );
}

/// Checks that a picture leaves out the call from `main` to `parse` over the hidden `serve`,
/// because `parse` is also reached through `load`.
#[test]
fn pictures_leave_redundant_calls_out() {
    let picture = GraphOptions {
        picture: Some(PictureOptions {
            size_name: &|size| size.to_string(),
        }),
        node_count: 4,
        ..options()
    };
    check(
        STACKS,
        picture,
        expect![[r#"
            117 117 alloc
            0 118 main
                110 load
            0 110 load
                100 parse
                10 alloc
            0 107 parse
                107 alloc
        "#]],
    );
}

#[test]
fn trees_join_what_is_left() {
    let tree = || GraphOptions {
        call_tree: true,
        ..options()
    };
    check(
        STACKS,
        tree(),
        expect![[r#"
            100 100 alloc
            10 10 alloc
            7 7 alloc
            1 8 serve
                7 parse
            0 110 load
                100 parse
                10 alloc
            0 118 main
                110 load
                8 serve
            0 100 parse
                100 alloc
            0 7 parse
                7 alloc
        "#]],
    );
    let few = GraphOptions {
        node_count: 4,
        ..tree()
    };
    check(
        STACKS,
        few,
        expect![[r#"
        100 100 alloc
        10 10 alloc
        7 7 alloc
        1 8 serve
            7 alloc over others
    "#]],
    );
}

#[test]
fn negative_nodes_go_but_calls_to_them_stay() {
    let positive = GraphOptions {
        drop_negative: true,
        ..options()
    };
    check(
        "main;f;g 5\n main;h -2",
        positive,
        expect![[r#"
            5 5 g
            0 5 f
                5 g
            0 3 main
                5 f
                -2 h
        "#]],
    );
}

#[test]
fn the_outermost_call_to_a_function_counts() {
    let outermost = GraphOptions {
        calls: CallSelection::Outermost,
        ..options()
    };
    check(
        "main;f;g;f;g 5\n main;f;f 3",
        outermost,
        expect![[r#"
            5 5 g
            3 8 f
                5 g
            0 8 main
                8 f
        "#]],
    );
}

/// Checks that each new graph trims names again. A node whose name changes by that is lost.
#[test]
fn names_are_trimmed_with_each_choice_of_nodes() {
    let trimmed = |node_count| GraphOptions {
        trim: PathTrimmer::new("", "/home/me/src"),
        node_count,
        ..options()
    };
    let stacks = "a@/r/src/x/src/a.c;b@/r/src/b.c 5\n a@/r/src/x/src/a.c 3\n c@/q/c.c 1";
    check(
        stacks,
        trimmed(0),
        expect![[r#"
            5 5 b b.c
            3 8 a x/src/a.c
                5 b b.c
            1 1 c /q/c.c
        "#]],
    );
    check(
        stacks,
        trimmed(2),
        expect![[r#"
            5 5 b b.c
        "#]],
    );
}

#[test]
fn means_divide_by_another_column() {
    let mut builder = ProfileBuilder::new(&[("objects", "count"), ("space", "bytes")]);
    builder.add_folded("main;f", &[4, 100]);
    builder.add_folded("main;g", &[0, 7]);
    builder.add_folded("main;g", &[1, 0]);
    let mean = GraphOptions {
        columns: vec![1],
        mean_divisor: Some(0),
        ..options()
    };
    let profile = without_addresses(builder.finish());
    expect![[r#"
        25 25 f
        7 7 g
        0 21 main
            100 f
            7 g
    "#]]
    .assert_eq(&drawn(&profile, &mean));
    assert_eq!(total(&profile, 1, Some(0)), 107 / 5);
}

#[test]
fn totals_are_of_the_base_where_samples_are_marked() {
    let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
    builder.add_folded("f", &[100]);
    let mut label = [builder.text_label("pprof::base", "true")];
    builder.add_folded_with_labels("f", &[-30], &mut label);
    assert_eq!(total(&builder.finish(), 0, None), 30);
    assert_eq!(total(&profile("f 3\n g -4"), 0, None), 7);
}

#[test]
fn sums_beyond_64_bits_are_refused() {
    let max = i64::MAX;
    let beyond = profile(&format!("main;f {max}\n main;g 1"));
    let refused = |error| matches!(error, Some(TotalsError::Overflow { .. }));
    assert!(refused(CallGraph::new(&beyond, &options()).err()));

    // Sums wrap in pprof and in `heapprof pprof`.
    let wrapping = GraphOptions {
        wrapping: true,
        ..options()
    };
    let graph = CallGraph::new(&beyond, &wrapping).unwrap();
    let main = graph
        .shown()
        .iter()
        .find(|&&node| graph.name(node) == "main");
    assert_eq!(graph.cum(*main.unwrap()), i64::MIN);
    assert_eq!(total(&beyond, 0, None), i64::MIN);
    assert!(!fits(&beyond, 0) && fits(&profile("f 3"), 0));

    // In tags, a sample counts once for each of its labels.
    let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
    let label = builder.number_label("bytes", 16, "bytes");
    builder.add_folded_with_labels("f", &[max / 2 + 1], &mut [label, label]);
    let profile = builder.finish();
    let picture = GraphOptions {
        picture: Some(PictureOptions {
            size_name: &|size| size.to_string(),
        }),
        ..options()
    };
    assert!(CallGraph::new(&profile, &options()).is_ok());
    assert!(refused(CallGraph::new(&profile, &picture).err()));
}

fn profiles() -> impl Iterator<Item = (String, Profile)> {
    valid().into_iter().map(|file| {
        let profile = decode(std::fs::File::open(&file).unwrap()).unwrap();
        (name(&file), profile)
    })
}

fn functions(mut profile: Profile) -> Profile {
    let detail = FrameDetail {
        inlines: true,
        function: true,
        filename: false,
        line: false,
        column: false,
        address: false,
    };
    aggregate(&mut profile, detail);
    profile
}

/// Checks that graph nodes of functions equal the rows of `top`, for every sample type.
#[test]
fn nodes_have_the_flat_and_cum_of_top() {
    for (name, profile) in profiles() {
        for column in 0..profile.sample_type.len() {
            let query = Query {
                sample_type: Some(column.to_string()),
                all_frames: true,
                ..Query::default()
            };
            let source = QuestionSource::new("p", profile.clone());
            let question =
                ProfileQuestion::new(vec![source], &query, TypeSelection::Requested).unwrap();
            let rows = top(&AnalysisSession::new(question).unwrap(), 1, &query, false).unwrap();
            // In `top`, each frame without symbols has its own row; in the graph they share one
            // node.
            let is_named = |name: &str| !name.starts_with("0x") && name != EMPTY_STACK;
            let named = rows.rows.iter().filter(|r| is_named(&r.place.function));
            let rows: BTreeMap<String, (i64, i64)> = named
                .map(|r| (r.place.function.clone(), (r.flat, r.cum)))
                .collect();
            let functions = functions(profile.clone());
            let graph = CallGraph::new(
                &functions,
                &GraphOptions {
                    columns: vec![column],
                    calls: CallSelection::None,
                    ..options()
                },
            )
            .unwrap();
            let nodes = graph
                .shown()
                .iter()
                .filter(|&&n| !graph.info(n).name.is_empty());
            let nodes: BTreeMap<String, (i64, i64)> = nodes
                .map(|&n| {
                    (
                        graph.info(n).name.to_string(),
                        (graph.flat(n), graph.cum(n)),
                    )
                })
                .collect();
            assert_eq!(nodes, rows, "{name} {column}");
        }
    }
}

/// Checks that in a call tree, a node's flat and the weights of its calls add up to its cum.
#[test]
fn flat_and_calls_make_the_cum_of_a_path() {
    for (name, profile) in profiles() {
        let options = GraphOptions {
            columns: (0..profile.sample_type.len()).collect(),
            call_tree: true,
            ..options()
        };
        let graph = CallGraph::new(&profile, &options).unwrap();
        for &node in graph.shown() {
            let calls: i64 = graph.callees(node).map(|e| graph.weight(e)).sum();
            let own = graph.flat(node);
            assert_eq!(own + calls, graph.cum(node), "{name} {}", graph.name(node));
        }
    }
}

/// Checks that the outermost calls to a function and the stacks that begin with it add up to the
/// function's cum.
#[test]
fn outermost_calls_make_the_cum_of_a_function() {
    for (name, profile) in profiles() {
        let options = GraphOptions {
            columns: (0..profile.sample_type.len()).collect(),
            calls: CallSelection::Outermost,
            ..options()
        };
        let functions = functions(profile.clone());
        let graph = CallGraph::new(&functions, &options).unwrap();
        for &node in graph.shown() {
            let calls: i64 = graph.callers(node).map(|e| graph.weight(e)).sum();
            let begins = graph.root_weights(node)[0];
            assert_eq!(
                begins + calls,
                graph.cum(node),
                "{name} {}",
                graph.name(node)
            );
        }
    }
}

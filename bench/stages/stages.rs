//! Measures each stage between a profile's file and an answer separately.
//!
//! `cargo bench --manifest-path bench/stages/Cargo.toml` uses a profile that `make_profile` makes;
//! HEAPPROF_BENCH_PROFILE names another.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use heapprof_analysis::{
    AnalysisSession, ProfileQuestion, Query, QuestionSource, TreeOptions, TypeSelection,
    diff::diff, store::ProfileStore, top::top, tree::tree,
};
use heapprof_profile::{Profile, ProfileBuilder, decode, encode, merge};

/// Returns a profile of 20,000 stacks of depth 25 over 3,000 functions, made by a small generator
/// with a fixed seed.
fn make_profile() -> Vec<u8> {
    let mut state = 7u64;
    let mut random = |n: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let mut builder = ProfileBuilder::new(&[
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ]);
    for _ in 0..20_000 {
        let mut stack = String::from("main");
        let mut at = random(20);
        for _ in 0..25 {
            stack.push_str(&format!(";pkg{}::function_{at}", at % 50));
            at = (at * 3 + random(4)) % 3_000;
        }
        let objects = 1 + random(5_000) as i64;
        let live = objects / (1 + random(3) as i64);
        builder.add_folded(&stack, &[objects, objects * 64, live, live * 64]);
    }
    let mut file = Vec::new();
    encode(&builder.finish(), &mut file).expect("a Vec takes everything");
    file
}

fn question(profile: &Arc<Profile>) -> ProfileQuestion {
    let source = QuestionSource::new("bench", Arc::clone(profile));
    ProfileQuestion::new(vec![source], &Query::default(), TypeSelection::Requested)
        .expect("the profile is valid")
}

fn stages(c: &mut Criterion) {
    let file = match std::env::var_os("HEAPPROF_BENCH_PROFILE") {
        Some(path) => std::fs::read(path).expect("HEAPPROF_BENCH_PROFILE can be read"),
        None => make_profile(),
    };
    let profile = Arc::new(decode(&file[..]).expect("the profile is valid"));
    let query = Query {
        limit: Some(40),
        ..Query::default()
    };
    c.bench_function("decode", |b| b.iter(|| decode(black_box(&file[..]))));
    c.bench_function("encode", |b| b.iter(|| encode(&profile, &mut Vec::new())));
    c.bench_function("merge two", |b| {
        b.iter(|| merge(Profile::clone(&profile), Profile::clone(&profile)))
    });
    c.bench_function("question (filters, entities, totals)", |b| {
        b.iter(|| question(&profile))
    });
    c.bench_function("top (flat and cum, SQL)", |b| {
        b.iter(|| {
            let session = AnalysisSession::new(question(&profile)).expect("SQLite opens");
            top(&session, 1, &query, false).map(|t| t.rows.len())
        });
    });
    c.bench_function("tree cut at 0.1 % (kernel, SQL)", |b| {
        b.iter(|| {
            let cut = TreeOptions {
                most: None,
                reverse: false,
                least: 0.001,
            };
            let session =
                AnalysisSession::new(question(&profile).with_tree(cut)).expect("SQLite opens");
            tree(&session, &Query::default())
                .and_then(|t| t.rows())
                .map(|rows| rows.len())
        });
    });
    c.bench_function("diff with itself", |b| {
        b.iter(|| {
            let side = |name: &str| QuestionSource::new(name, Arc::clone(&profile));
            let both = vec![side("before"), side("after")];
            let question = ProfileQuestion::new(both, &query, TypeSelection::Requested)
                .expect("the profile is valid");
            let session = AnalysisSession::new(question).expect("SQLite opens");
            diff(&session, [1, 2], &query, false).map(|d| d.rows.len())
        });
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut n = 0;
    c.bench_function("load into a new database", |b| {
        b.iter(|| {
            n += 1;
            let path = folder.path().join(format!("{n}.db"));
            let mut store = ProfileStore::open_or_create(&path).expect("the database opens");
            store.load("bench", &profile, &mut |_, _| {})
        });
    });
    c.bench_function("restore from a database", |b| {
        let store = ProfileStore::open(&folder.path().join("1.db")).expect("the database opens");
        b.iter(|| store.restore("bench").map(|s| s.profile.samples.len()));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = stages
}
criterion_main!(benches);

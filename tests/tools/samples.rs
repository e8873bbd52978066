//! Generates sample profiles: small cases that readers easily handle wrongly.
//!
//! `HEAPPROF_BLESS=1 cargo test -p heapprof-tests samples` writes them to sample-profiles/valid.

use heapprof_profile::{FrameText, Profile, ProfileBuilder};

use crate::exercise::plain;
use crate::wire::{Parts, gzip};

const FOUR: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// Returns a profile with direct and mutual recursion. A function must count once for each sample.
pub fn recursion() -> Profile {
    let mut b = ProfileBuilder::new(&FOUR);
    b.add_folded(
        "main@m.c:9;walk@w.c:3;walk@w.c:3;walk@w.c:5;alloc@a.c:1",
        &[4, 400, 2, 200],
    );
    b.add_folded("main@m.c:9;walk@w.c:3;alloc@a.c:1", &[1, 100, 1, 100]);
    b.add_folded(
        "main@m.c:10;even@e.c:2;odd@e.c:6;even@e.c:2;odd@e.c:7",
        &[5, 50, 5, 50],
    );
    b.finish()
}

/// Returns a profile with inlined frames and columns. One function occurs inlined and not inlined.
pub fn inlines() -> Profile {
    let mut b = ProfileBuilder::new(&FOUR);
    b.add_folded(
        "main@m.c:9;outer@o.c:3>>middle@o.c:7>>inner@i.h:1",
        &[1, 10, 1, 10],
    );
    b.add_folded("main@m.c:9;outer@o.c:3>>middle@o.c:7", &[2, 20, 2, 20]);
    b.add_folded("main@m.c:9;inner@i.h:2;alloc@a.c:1", &[3, 30, 0, 0]);
    b.finish()
}

/// Returns a profile with labels: texts, numbers in several units, several values of one key, and
/// samples without labels.
pub fn labels() -> Profile {
    let mut b = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    let bytes = |b: &mut ProfileBuilder, n, unit| b.number_label("bytes", n, unit);
    let text = |b: &mut ProfileBuilder, t| b.text_label("thread", t);
    let (kb2, b16, b2048) = (
        bytes(&mut b, 2, "kilobytes"),
        bytes(&mut b, 16, "bytes"),
        bytes(&mut b, 2048, "bytes"),
    );
    let (main, io, bare) = (
        text(&mut b, "main"),
        text(&mut b, "io"),
        bytes(&mut b, 5, ""),
    );
    b.add_folded_with_labels("main;read", &[1, 2048], &mut [kb2, io]);
    b.add_folded_with_labels("main;read", &[2, 32], &mut [b16, io]);
    b.add_folded_with_labels("main;parse", &[1, 2048], &mut [b2048, main]);
    b.add_folded_with_labels("main;parse", &[3, 48], &mut [b16, main, io]);
    b.add_folded_with_labels("main", &[1, 5], &mut [bare]);
    b.add_folded("main;plain", &[1, 100]);
    b.finish()
}

/// Returns a profile with addresses without symbols, in a mapping and outside of all mappings, and
/// with symbolized frames.
pub fn unsymbolized() -> Profile {
    let mut b = ProfileBuilder::new(&FOUR);
    b.add_folded(
        "main;0x401000@/usr/bin/app;0x401100@/usr/bin/app",
        &[1, 100, 1, 100],
    );
    b.add_folded("main;0x7f00001000;known", &[2, 200, 2, 200]);
    b.add_folded("0x401000@/usr/bin/app", &[4, 400, 4, 400]);
    b.finish()
}

/// Returns the difference of two profiles, with negative values, and a stack with values of both
/// signs.
pub fn negative() -> Profile {
    let mut b = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    b.add_folded("main;grew", &[5, 500]);
    b.add_folded("main;shrank", &[-3, -300]);
    b.add_folded("main;both", &[2, 200]);
    b.add_folded("main;both", &[-2, -50]);
    b.add_folded("main;moved;old", &[-1, -100]);
    b.add_folded("main;moved;new", &[1, 100]);
    b.finish()
}

/// Returns a profile with samples without any frame, and samples whose values are 0.
pub fn empty_stacks() -> Profile {
    let mut b = ProfileBuilder::new(&FOUR);
    b.add_folded("", &[1, 64, 1, 64]);
    b.add_folded("main;alloc", &[2, 128, 0, 0]);
    b.add_folded("main;unused", &[0, 0, 0, 0]);
    b.finish()
}

/// Returns a profile with drop_frames and keep_frames. Frames of the allocator are at the leaf, in
/// the middle and at the root.
pub fn drop_frames() -> Profile {
    let mut b = ProfileBuilder::new(&FOUR);
    b.add_folded("main;load;malloc;arena_grow", &[1, 100, 1, 100]);
    b.add_folded(
        "main;load;operator new(unsigned long);malloc",
        &[2, 200, 2, 200],
    );
    b.add_folded("malloc_init;malloc;main;work", &[4, 400, 4, 400]);
    b.add_folded("main;malloc_keep;leaf", &[8, 800, 8, 800]);
    b.profile.drop_frames = b.text("malloc.*|operator new");
    b.profile.keep_frames = b.text("malloc_keep");
    b.finish()
}

/// Returns a profile like that of heapprof's collector at exit. It has six types, comments, the
/// resident memory, call sites without memory in use, blocks of size 0, inlined frames, and a
/// library without symbols.
pub fn leaks() -> Profile {
    let [alloc_objects, alloc_space, inuse_objects, inuse_space] = FOUR;
    let peak = [("peak_objects", "count"), ("peak_space", "bytes")];
    let mut b = ProfileBuilder::new(&[
        alloc_objects,
        alloc_space,
        inuse_objects,
        inuse_space,
        peak[0],
        peak[1],
    ]);
    b.add_folded(
        "main@main.c:40;load_config@config.c:22;read_line@text.c:12>>copy@text.h:5",
        &[10, 10_240, 4, 4096, 10, 10_240],
    );
    b.add_folded(
        "main@main.c:41;serve@server.c:80;accept_one@server.c:61",
        &[200, 409_600, 3, 6144, 8, 16_384],
    );
    b.add_folded(
        "main@main.c:40;open_font@font.c:9;0x7f0000001200@/usr/lib/libfontconfig.so.1",
        &[6, 1536, 6, 1536, 6, 1536],
    );
    b.add_folded(
        "main@main.c:41;serve@server.c:80;parse@parse.c:30",
        &[5000, 320_000, 0, 0, 20, 1280],
    );
    b.add_folded("main@main.c:42;lock_new@lock.c:7", &[2, 0, 2, 0, 2, 0]);
    b.add_folded(
        "start_thread@thread.c:3;worker@thread.c:18",
        &[1, 512, 1, 512, 1, 512],
    );
    b.profile.default_sample_type = b.text("inuse_space");
    b.profile.time_nanos = 1_760_000_000_000_000_000;
    b.profile.duration_nanos = 12_000_000_000;
    b.profile.period_type = Some(b.value_type("space", "bytes"));
    b.profile.period = 1;
    for comment in [
        "program: server",
        "pid: 4711",
        "mode: exact",
        "dump: exit",
        "rss: 49152 bytes",
        "peak rss: 65536 bytes",
    ] {
        let comment = b.text(comment);
        b.profile.comment.push(comment);
    }
    b.finish()
}

/// Returns a profile like that of heapprof's collector in sampled mode. It has the number of
/// sampled blocks and the variance for each value.
pub fn sampled() -> Profile {
    let [alloc_objects, alloc_space, inuse_objects, inuse_space] = FOUR;
    let mut b = ProfileBuilder::new(&[
        alloc_objects,
        alloc_space,
        inuse_objects,
        inuse_space,
        ("peak_objects", "count"),
        ("peak_space", "bytes"),
    ]);
    // The rows are a few large blocks; many small blocks, all freed; two sizes; one small block.
    type Row = (&'static str, [i64; 6], [u64; 2], [f64; 4]);
    let rows: [Row; 4] = [
        (
            "main@main.c:40;load@load.c:22;read_all@load.c:9",
            [5, 4_850_785, 3, 3_638_089, 5, 4_850_785],
            [4, 3],
            [0.7, 796_112e6, 0.5, 597_084e6],
        ),
        (
            "main@main.c:41;serve@server.c:80;parse@parse.c:30",
            [13_044, 2_608_898, 0, 0, 5218, 1_043_559],
            [5, 0],
            [34_018_700.5, 1_360_750e6, 0.0, 0.0],
        ),
        (
            "main@main.c:41;serve@server.c:80;insert@cache.c:61",
            [14_079, 21_021_541, 11_520, 17_869_654, 11_520, 17_869_654],
            [40, 34],
            [10_936_196.4, 10_980_300e6, 8_781_709.0, 9_333_760e6],
        ),
        (
            "main@main.c:41;serve@server.c:80;log@log.c:5",
            [8066, 516_254, 8066, 516_254, 8066, 516_254],
            [1, 1],
            [65_059_859.5, 266_485e6, 65_059_859.5, 266_485e6],
        ),
    ];
    for (i, (stack, values, [all, live], [a, b2, c, d])) in rows.into_iter().enumerate() {
        b.add_folded(stack, &values);
        let variance = [a, b2, c, d, 0.0, 0.0];
        b.profile
            .samples
            .set_spread(i, &[all, all, live, live, 0, 0], &variance);
    }
    b.profile.default_sample_type = b.text("inuse_space");
    b.profile.time_nanos = 1_760_000_000_000_000_000;
    b.profile.duration_nanos = 12_000_000_000;
    b.profile.period_type = Some(b.value_type("space", "bytes"));
    b.profile.period = 524_288;
    for comment in [
        "collector: heapprof 0.1.0",
        "program: server",
        "pid: 4711",
        "mode: sampled, one in 524288 bytes; values are estimates",
        "dump: exit",
    ] {
        let comment = b.text(comment);
        b.profile.comment.push(comment);
    }
    b.finish()
}

/// Returns a profile with all fields of a header, a default type that is not the last type, and
/// types in unusual units.
pub fn header() -> Profile {
    let mut b = ProfileBuilder::new(&[
        ("inuse_space", "kilobytes"),
        ("wall", "milliseconds"),
        ("events", "count"),
    ]);
    b.add_folded("main;a;b", &[3, 1500, 7]);
    b.add_folded("main;a", &[1, 2, 1]);
    b.profile.default_sample_type = b.text("inuse_space");
    b.profile.time_nanos = 1_760_000_000_123_456_789;
    b.profile.duration_nanos = 2_500_000_000;
    b.profile.period_type = Some(b.value_type("space", "bytes"));
    b.profile.period = 524_288;
    for comment in ["built by hand", "# a second comment"] {
        let comment = b.text(comment);
        b.profile.comment.push(comment);
    }
    b.profile.doc_url = b.text("https://example.org/heap");
    b.finish()
}

/// Returns a profile with names that are difficult for terminals, Markdown, CSV, SVG and folded
/// stacks.
pub fn odd_names() -> Profile {
    let mut b = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    let names = [
        "Ljava/lang/String.valueOf",
        "ns::put<int, std::less<int>>(int)::{lambda(auto&&)#1}",
        "core::ptr::drop_in_place<alloc::vec::Vec<u8>>",
        "a \"quoted\", comma",
        "pipe|star*_under_",
        "<script>alert(1)</script>&amp;",
        "naïve 名前 🦀",
        "tab\there\u{1b}[31mred",
    ];
    let main = b.frame(&[FrameText {
        name: "main",
        ..FrameText::default()
    }]);
    let no_labels = b.label_set(&mut []);
    for (i, name) in names.iter().enumerate() {
        let leaf = b.frame(&[FrameText {
            name,
            ..FrameText::default()
        }]);
        b.profile
            .samples
            .push([leaf, main], &[10 * (i as i64 + 1)], no_labels);
    }
    b.finish()
}

/// Returns every generated sample: its file name and bytes.
pub fn made() -> Vec<(&'static str, Vec<u8>)> {
    let parts = Parts::default();
    let gz = |profile: Profile| gzip(&plain(&profile));
    let small = parts.bytes();
    let (first, rest) = small.split_at(small.len() / 2);
    let shuffled = [
        &parts.function[..],
        &parts.strings,
        &parts.location,
        &parts.sample,
        &parts.types,
        &parts.mapping,
    ]
    .concat();
    vec![
        ("made.recursion.pb.gz", gz(recursion())),
        ("made.inlines.pb.gz", gz(inlines())),
        ("made.labels.pb.gz", gz(labels())),
        ("made.unsymbolized.pb.gz", gz(unsymbolized())),
        ("made.negative.pb.gz", gz(negative())),
        ("made.empty-stacks.pb.gz", gz(empty_stacks())),
        ("made.drop-frames.pb.gz", gz(drop_frames())),
        ("made.leaks.pb.gz", gz(leaks())),
        ("made.sampled.pb.gz", gz(sampled())),
        ("made.header.pb.gz", gz(header())),
        ("made.odd-names.pb.gz", gz(odd_names())),
        ("made.plain.pb", small.clone()),
        ("made.two-members.pb.gz", [gzip(first), gzip(rest)].concat()),
        ("made.strings-first.pb.gz", gzip(&shuffled)),
    ]
}

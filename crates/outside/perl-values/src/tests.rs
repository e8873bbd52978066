//! Tests paths, leaks and retained bytes of values that the tests make.

use heapprof_profile::Profile;

use crate::{
    ByteCounts, PathPhase, PerlValue, PerlValueAnalysis, PerlValueKind, ValueGraph,
    ValueGraphBuilder, ValueStep, profile,
};

/// Makes a graph from a line of edges between named values: `a>b` is a strong edge from a to b, and
/// `a~b` a weak one. Each value has 10 bytes.
fn made(roots: &str, ways: &str) -> ValueGraph {
    let mut values = ValueGraphBuilder::default();
    let address = |name: &str| u64::from(name.as_bytes()[0]);
    values.add_root(PathPhase::Symbols, "", "main::", 1);
    let mut names: Vec<&str> = ways.split([' ', '>', '~']).collect();
    names.sort_unstable();
    names.dedup();
    for name in roots.split(' ').filter(|name| !name.is_empty()) {
        let key = values.text_id(name);
        values.lead_to(address(name), ValueStep::Key(key), true);
    }
    values.end(PerlValue {
        address: 1,
        kind: PerlValueKind::Hash,
        size: 1,
        ..PerlValue::default()
    });
    for name in names {
        for way in ways.split(' ').filter(|way| way.starts_with(name)) {
            let key = values.text_id(&way[2..]);
            let is_strong = way.as_bytes()[1] == b'>';
            values.lead_to(address(&way[2..]), ValueStep::Key(key), is_strong);
        }
        values.end(PerlValue {
            address: address(name),
            size: 10,
            references: 1,
            kind: PerlValueKind::Hash,
            ..PerlValue::default()
        });
    }
    values.finish()
}

/// Returns the samples of a profile as folded stacks, with the value of the sample type `kind`.
fn folded(profile: &Profile, kind: usize) -> Vec<String> {
    let samples = &profile.samples;
    let mut all: Vec<String> = (0..samples.len())
        .map(|i| {
            let stack = samples.stack(i).iter().rev();
            let names = stack.map(|&at| {
                let line = &profile.lines(&profile.location[at.index()])[0];
                profile
                    .strings
                    .get(profile.function[line.function.index()].name)
            });
            let names: Vec<&str> = names.collect();
            format!("{} {}", names.join(";"), samples.values(i)[kind])
        })
        .collect();
    all.sort();
    all
}

#[test]
fn a_path_is_the_shortest_one_and_rings_have_leaked() {
    let mut values = made("a b", "a>c b>d d>c e>f f>e f>g h~a");
    let profile = profile(&mut values);
    let expected = [
        "(leaked);(in a cycle);HASH 10",
        "(leaked);(in a cycle);HASH;{f} 10",
        "(leaked);(in a cycle);HASH;{f};{g} 10",
        "(leaked);(nothing refers to it);HASH 10",
        "main:: 1",
        "main::;{a} 10",
        "main::;{a};{c} 10",
        "main::;{b} 10",
        "main::;{b};{d} 10",
    ];
    assert_eq!(folded(&profile, 1), expected);
}

#[test]
fn what_would_go_is_what_only_one_value_holds() {
    let mut values = made("a b", "a>c a>d d>e b>c");
    let profile = profile(&mut values);
    let expected = [
        "main:: 51",
        "main::;{a} 30",
        "main::;{a};{c} 10",
        "main::;{a};{d} 20",
        "main::;{a};{d};{e} 10",
        "main::;{b} 10",
    ];
    assert_eq!(folded(&profile, 2), expected);
}

/// Tests that paths have a maximum length, even in a linked list through all of memory.
#[test]
fn a_long_list_takes_linear_room() {
    let mut values = ValueGraphBuilder::default();
    values.add_root(PathPhase::Symbols, "", "main::", 1);
    for address in 1..200_000u64 {
        values.lead_to(address + 1, ValueStep::Referent, true);
        values.end(PerlValue {
            address,
            size: 1,
            kind: PerlValueKind::Reference,
            ..PerlValue::default()
        });
    }
    let profile = profile(&mut values.finish());
    assert!(profile.samples.len() < 200, "{}", profile.samples.len());
    let sizes = (0..profile.samples.len()).map(|i| profile.samples.values(i)[1]);
    assert_eq!(sizes.sum::<i64>(), 199_999);
}

/// Returns a value of 10 bytes, of which 8 were requested.
fn value(address: u64, kind: PerlValueKind) -> PerlValue {
    PerlValue {
        address,
        size: 10,
        asked: 8,
        references: 1,
        kind,
        ..PerlValue::default()
    }
}

/// Makes a program whose `%CACHE` has, under `a`, a reference to a hash. The hash's `list` is an
/// array with a text. The text is also the value of `my $x` in the sub `keep`.
fn program() -> PerlValueAnalysis {
    let mut builder = ValueGraphBuilder::default();
    builder.add_root(PathPhase::Symbols, "", "main::", 1);
    let main = builder.text_id("main");
    let names = ["CACHE", "keep", "a", "list", "$x"].map(|name| builder.text_id(name));
    let [cache, keep, a, list, x] = names;
    let mut add = |value: PerlValue, ways: &[(u64, ValueStep)]| {
        for &(to, step) in ways {
            builder.lead_to(to, step, true);
        }
        builder.end(value);
    };
    let named = |address, kind, name| PerlValue {
        name,
        ..value(address, kind)
    };
    add(
        named(1, PerlValueKind::Stash, main),
        &[(2, ValueStep::Key(cache)), (3, ValueStep::Key(keep))],
    );
    add(
        named(2, PerlValueKind::Glob, cache),
        &[(4, ValueStep::Slot(b'%'))],
    );
    add(
        named(3, PerlValueKind::Glob, keep),
        &[(5, ValueStep::Slot(b'&'))],
    );
    add(value(4, PerlValueKind::Hash), &[(6, ValueStep::Key(a))]);
    add(value(5, PerlValueKind::Code), &[(10, ValueStep::Pad(1))]);
    add(
        value(6, PerlValueKind::Reference),
        &[(7, ValueStep::Referent)],
    );
    add(value(7, PerlValueKind::Hash), &[(8, ValueStep::Key(list))]);
    add(
        value(8, PerlValueKind::Reference),
        &[(9, ValueStep::Referent)],
    );
    add(
        value(9, PerlValueKind::Array),
        &[(11, ValueStep::Element(0))],
    );
    add(
        value(10, PerlValueKind::Array),
        &[(11, ValueStep::Variable(x))],
    );
    add(value(11, PerlValueKind::Scalar), &[]);
    PerlValueAnalysis::new(builder.finish())
}

#[test]
fn a_variable_is_found_as_a_program_writes_it() {
    let found = program();
    let address = |text: &str| {
        let number = found.variable(text, &());
        number
            .map(|number| found.values().get(number).address)
            .map_err(|error| error.to_string())
    };
    for (text, expected) in [
        ("%CACHE", 4),
        ("%main::CACHE", 4),
        ("%::CACHE", 4),
        ("$CACHE{a}", 6),
        ("$CACHE{'a'}{list}", 8),
        ("$CACHE{a}->{list}->[0]", 11),
        ("$CACHE{a}{list}[-1]", 11),
        ("&keep", 5),
        ("&keep my $x", 11),
        ("*CACHE", 2),
        ("${CACHE}{ a }", 6),
        ("%main::", 1),
        ("%::", 1),
        ("$main::{CACHE}", 2),
        ("&keep my $x", 11),
    ] {
        assert_eq!(address(text), Ok(expected), "{text}");
    }
    for (text, expected) in [
        ("CACHE", "is not a variable"),
        ("%", "is not a variable"),
        ("%CACHE;", "is not a variable"),
        ("@{$x}", "is not a variable"),
        ("@$x", "is not a variable"),
        ("@odd name", "is not a variable"),
        ("$CACHE{a", "is not a variable"),
        ("%Foo::bar", "there is no package Foo"),
        ("@CACHE", "there is no @CACHE"),
        ("%NONE", "there is no %NONE"),
        ("$CACHE{b}", "%CACHE has no {b}"),
        ("$CACHE{a}{list}[1]", "$CACHE{a}{list} has no [1]"),
        ("&keep my $y", "&keep has no variable $y"),
    ] {
        let error = address(text).unwrap_err();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn a_variable_has_three_sizes() {
    let found = program();
    let size = found.size(found.variable("%CACHE", &()).unwrap());
    let bytes = |count: u64| ByteCounts {
        asked: 8 * count,
        given: 10 * count,
    };
    // The sub has the text, too.
    assert_eq!(
        (size.own, size.total, size.objects),
        (bytes(1), bytes(6), 6)
    );
    assert_eq!(size.retained, bytes(5));
}

#[test]
fn pads_say_what_a_sub_keeps_and_who_leads_there() {
    let found = program();
    let pads = found.pads();
    assert_eq!(pads.len(), 1);
    assert_eq!((pads[0].sub.as_str(), pads[0].depth), ("main::;&keep", 1));
    assert_eq!((pads[0].retained, pads[0].largest.as_str()), (10, "my $x"));
    let number = found.values().number(11).unwrap();
    let cut = found.identify(number, 3);
    assert_eq!((cut.way.len(), cut.way_left_out), (3, 2));
    let found = found.identify(number, 100);
    assert_eq!(found.value.path, "main::;&keep;<pad depth 1>;my $x");
    let steps = found.way.iter().map(|one| one.step.as_str());
    let steps: Vec<&str> = steps.collect();
    assert_eq!(steps, ["main::", "{keep}", "&", "<pad depth 1>", "my $x"]);
    let steps = found.referrers.iter().map(|one| one.step.as_str());
    assert_eq!(steps.collect::<Vec<_>>(), ["[0]", "my $x"]);
}

#[test]
fn rings_that_look_the_same_are_one_row() {
    // Two rings of one, one of three, and one that is still reached; `g` is held by a ring.
    let values = made("z", "a>a b>b c>d d>e e>c z>y y>z e>g");
    let found = PerlValueAnalysis::new(values);
    let cycles = found.cycles();
    let rows: Vec<_> = cycles
        .iter()
        .map(|one| (one.count, one.objects, one.retained, one.closed_by.as_str()))
        .collect();
    // The two rings of one value differ in their keys.
    assert_eq!(
        rows,
        [(1, 3, 40, "{c}"), (1, 1, 10, "{a}"), (1, 1, 10, "{b}")]
    );
    assert_eq!(cycles[0].ring, "HASH {d} HASH {e} HASH {c} HASH");
}

/// Tests that memory of C code retains only values to which nothing else leads.
#[test]
fn what_c_code_mentions_is_held_by_it_alone_if_nothing_else_does() {
    let mut builder = ValueGraphBuilder::default();
    builder.add_root(PathPhase::Symbols, "", "main::", 1);
    builder.add_root(PathPhase::Mentions, "(C memory)", "lib.so", 4);
    let key = builder.text_id("k");
    builder.lead_to(2, ValueStep::Key(key), true);
    builder.lead_to(5, ValueStep::Key(key), true);
    builder.end(value(1, PerlValueKind::Hash));
    builder.lead_to(3, ValueStep::Memory, true);
    builder.end(value(2, PerlValueKind::Scalar));
    for mentioned in [5, 6] {
        builder.lead_to(mentioned, ValueStep::Mention, true);
    }
    builder.end(value(3, PerlValueKind::Memory));
    for address in 4..7 {
        builder.end(value(address, PerlValueKind::Scalar));
    }
    let found = PerlValueAnalysis::new(builder.finish());
    let path = |address| {
        let number = found.values().number(address).unwrap();
        found.describe(number)
    };
    assert_eq!(path(3).path, "main::;{k};(C memory)");
    assert_eq!(path(4).path, "(C memory);lib.so");
    assert_eq!(path(5).path, "main::;{k}");
    assert_eq!(path(6).path, "main::;{k};(C memory);->");
    // The value to which only C code leads goes with it, and the other one does not.
    assert_eq!((path(3).retained, path(2).retained), (20, 30));
}

/// Tests that a ring has leaked if Perl counts no other references to it than the ring's own, even
/// if C code points to it. With one more reference, C code may keep it alive.
#[test]
fn old_pointers_of_c_code_do_not_hold_rings() {
    for (references, expected) in [
        (1, "(leaked);(in a cycle);HASH"),
        (2, "main::;(C memory);->"),
    ] {
        let mut builder = ValueGraphBuilder::default();
        builder.add_root(PathPhase::Symbols, "", "main::", 1);
        builder.add_root(PathPhase::Mentions, "(C memory)", "lib.so", 5);
        builder.lead_to(2, ValueStep::Memory, true);
        builder.end(value(1, PerlValueKind::Hash));
        builder.lead_to(3, ValueStep::Mention, true);
        builder.end(value(2, PerlValueKind::Memory));
        let key = builder.text_id("self");
        builder.lead_to(4, ValueStep::Key(key), true);
        let hash = value(3, PerlValueKind::Hash);
        builder.end(PerlValue { references, ..hash });
        builder.lead_to(3, ValueStep::Referent, true);
        builder.end(value(4, PerlValueKind::Scalar));
        // Another ring, to which a variable of a library and a block that has leaked point.
        builder.lead_to(5, ValueStep::Referent, true);
        builder.end(value(5, PerlValueKind::Scalar));
        builder.lead_to(5, ValueStep::Mention, true);
        builder.end(value(6, PerlValueKind::Memory));
        let found = PerlValueAnalysis::new(builder.finish());
        let described = |address| found.describe(found.values().number(address).unwrap());
        assert_eq!(described(3).path, expected);
        assert_eq!(described(5).path, "(leaked);(in a cycle);SCALAR");
        let retained = if references == 1 { 10 } else { 30 };
        assert_eq!(described(2).retained, retained, "{references}");
    }
}

#[test]
fn renamed_keys_leave_nothing_of_the_old_ones() {
    let mut values = made("secret", "secret>other");
    values.rename_keys(|key| format!("#{}", key.len()));
    let profile = profile(&mut values);
    let paths = folded(&profile, 0).join("\n");
    assert!(
        paths.contains("main::;{#6}") && !paths.contains("secret"),
        "{paths}"
    );
}

/// Tests that the bytes by type and by part add up to all bytes.
#[test]
fn sums_add_up() {
    let summary = program().summary();
    let kinds: u64 = summary.kinds.iter().map(|(_, sum)| sum.bytes).sum();
    let parts: u64 = summary.parts.iter().map(|(_, sum)| sum.bytes).sum();
    assert_eq!([kinds, parts, summary.all.bytes], [110; 3]);
    let holders: Vec<_> = summary
        .holders
        .iter()
        .map(|one| (one.path.as_str(), one.retained))
        .collect();
    assert_eq!(
        holders,
        [
            ("main::;%CACHE", 50),
            ("main::;&keep;<pad depth 1>;my $x", 10)
        ]
    );
}

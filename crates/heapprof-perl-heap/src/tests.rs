//! Paths, leaks and what is retained, of values that are made here.

use heapprof_profile::Profile;

use crate::{Builder, Kind, Phase, Step, Value, Values, profile};

/// Values by their names in a line: `a>b` leads from a to b, `a~b` does so weakly. Each has 10
/// bytes.
fn made(roots: &str, ways: &str) -> Values {
    let mut values = Builder::default();
    let address = |name: &str| u64::from(name.as_bytes()[0]);
    values.add_root(Phase::Symbols, "", "main::", 1);
    let mut names: Vec<&str> = ways.split([' ', '>', '~']).collect();
    names.sort_unstable();
    names.dedup();
    for name in roots.split(' ').filter(|name| !name.is_empty()) {
        let key = values.text_id(name);
        values.lead_to(address(name), Step::Key(key), true);
    }
    values.end(Value {
        address: 1,
        kind: Kind::Hash,
        size: 1,
        ..Value::default()
    });
    for name in names {
        for way in ways.split(' ').filter(|way| way.starts_with(name)) {
            let key = values.text_id(&way[2..]);
            let is_strong = way.as_bytes()[1] == b'>';
            values.lead_to(address(&way[2..]), Step::Key(key), is_strong);
        }
        values.end(Value {
            address: address(name),
            size: 10,
            references: 1,
            kind: Kind::Hash,
            ..Value::default()
        });
    }
    values.finish()
}

/// The samples as folded stacks with one of their values.
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
        "(leaked);(in a ring);HASH 10",
        "(leaked);(in a ring);HASH;{f} 10",
        "(leaked);(in a ring);HASH;{f};{g} 10",
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

/// A list that is as long as memory is has a path that ends.
#[test]
fn a_long_list_takes_linear_room() {
    let mut values = Builder::default();
    values.add_root(Phase::Symbols, "", "main::", 1);
    for address in 1..200_000u64 {
        values.lead_to(address + 1, Step::Referent, true);
        values.end(Value {
            address,
            size: 1,
            kind: Kind::Reference,
            ..Value::default()
        });
    }
    let profile = profile(&mut values.finish());
    assert!(profile.samples.len() < 200, "{}", profile.samples.len());
    let sizes = (0..profile.samples.len()).map(|i| profile.samples.values(i)[1]);
    assert_eq!(sizes.sum::<i64>(), 199_999);
}

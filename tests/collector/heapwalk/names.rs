//! The names of objects in a heap: classes of C++ objects, functions and variables.

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{ok, run};

use super::Waiting;
use crate::process::{json, number};

const SHAPES: &str = concat!(
    r#"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
namespace geo {
struct Shape { virtual ~Shape() {} Shape *next = nullptr; };
struct Named { virtual ~Named() {} long name[4] = {}; };
template <class T> struct Circle : Shape, Named { T r{}; };
}
struct Table { int (*open)(const char *); char rest[40]; };
static int open_it(const char *) { return 1; }
static void *volatile hide;
"#,
    wipe!(),
    r#"__attribute__((noinline)) static void make() {
    geo::Shape *last = nullptr;
    for (int i = 0; i < 30; i++) {
        auto *c = new geo::Circle<int>;
        c->next = last;
        hide = last = c;
    }
    for (int i = 0; i < 7; i++) {
        auto *table = (Table *)calloc(1, sizeof(Table));
        table->open = open_it;
        hide = table;
    }
    hide = nullptr;
}
int main() {
    make();
    wipe();
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"#
);

#[test]
fn classes_and_functions_have_their_names() {
    if !have(&["g++", "gcore", "strip"]) {
        return;
    }
    let built = build(SHAPES, "g++ -O1 -g");
    let waiting = Waiting::start(&built.program);
    let core = waiting.core(&built);
    let core = format!("core:{}", core.display());
    let groups = |words: &[&str]| {
        let found = json(&ok(words));
        let group = |group: &serde_json::Value| {
            let text = |name: &str| group[name].as_str().unwrap().to_string();
            (text("what"), text("state"), number(&group["blocks"]))
        };
        let mut all: Vec<_> = found["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(group)
            .collect();
        all.sort();
        (all, found["chains"][0].clone())
    };
    let row = |what: &str, state: &str, blocks| (what.to_string(), state.to_string(), blocks);
    let expected = [
        row("&open_it(char const*)", "leaked", 7),
        row("geo::Circle<int>", "leaked", 1),
        row("geo::Circle<int>", "leaked, indirectly", 29),
    ];
    for target in [&waiting.target(), &core] {
        let (all, chain) = groups(&["heapwalk", target, "-f", "json"]);
        assert_eq!(all, expected, "{target}");
        assert_eq!(
            (&chain["what"], number(&chain["blocks"])),
            (&"geo::Circle<int>".into(), 30)
        );
    }
    // If the program has moved, `--exe` must give its new place, and the file must be the same
    // program.
    let moved = built.path("moved");
    std::fs::rename(&built.program, &moved).unwrap();
    let moved = moved.display().to_string();
    let (all, _) = groups(&["heapwalk", &core, "--exe", &moved, "-f", "json"]);
    assert_eq!(all, expected);
    let (all, _) = groups(&["heapwalk", &core, "-f", "json"]);
    assert!(all.contains(&row("object", "leaked", 7)), "{all:?}");
    let here = built.folder.path();
    let other = run(here, &["heapwalk", &core, "--exe", "/bin/sh"]);
    assert!(
        other.code == 2 && other.err.contains("a different program"),
        "{}",
        other.err
    );
    let process = run(here, &["heapwalk", &waiting.target(), "--exe", &moved]);
    assert!(
        process.code == 2 && process.err.contains("core files"),
        "{}",
        process.err
    );
}

/// A stripped program still has the names of its classes.
#[test]
fn a_stripped_program_has_its_classes() {
    if !have(&["g++", "strip"]) {
        return;
    }
    let built = build(SHAPES, "g++ -O1 -s");
    let waiting = Waiting::start(&built.program);
    let found = ok(&["heapwalk", &waiting.target()]);
    assert!(
        found.contains("geo::Circle<int>") && !found.contains("open_it"),
        "{found}"
    );
    assert!(
        found.contains("Leaked blocks, with everything reachable only through them"),
        "{found}"
    );
}

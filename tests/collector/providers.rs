//! Stack providers that programs register themselves: the toy interpreter of the documentation, and
//! some that lie.

use std::collections::BTreeMap;

use heapprof_tests::built::{build, example, have};
use heapprof_tests::harness::{root, run};

use crate::scripts::{Frame, comments, read, samples};

/// The profile has the stacks that the toy interpreter prints.
#[test]
fn a_provider_s_frames_are_its_own() {
    if !have(&["gcc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = format!(
        "-g -O1 -I{} -ldl -pthread",
        root().join("include").display()
    );
    if !example(folder.path(), "interpreter", &options) {
        return;
    }
    for frames in ["script", "both"] {
        let frames = format!("--frames={frames}");
        let args = [
            "record",
            "--exact",
            &frames,
            "-o",
            "p.pb.gz",
            "./interpreter",
        ];
        let done = run(folder.path(), &args);
        assert_eq!(done.code, 0, "{}", done.err);
        let mut wanted = BTreeMap::<String, i64>::new();
        for line in done.out.lines() {
            let (size, stack) = line.split_once(' ').unwrap();
            *wanted.entry(stack.to_string()).or_default() += size.parse::<i64>().unwrap();
        }
        assert_eq!(wanted.len(), 8);
        let mut found = BTreeMap::<String, i64>::new();
        for sample in samples(&read(&folder.path().join("p.pb.gz"))) {
            let toys = sample.frames.iter().filter(|f| f.1 == "shop.toy");
            let toys: Vec<String> = toys.map(|f| format!("{}:{}", f.0, f.2)).collect();
            if !toys.is_empty() {
                assert_eq!(sample.labels["op"], "allocate");
                // Each run loop's frame was replaced by the frames that it ran.
                assert!(
                    sample.frames.iter().all(|f| f.0 != "run"),
                    "{:?}",
                    sample.frames
                );
                *found.entry(toys.join(" ")).or_default() += sample.allocated[1];
            }
        }
        assert_eq!(found, wanted, "{frames}");
    }
}

/// Providers that return invalid data.
const LIARS: &str = r#"
#include "heapprof.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char *how;
static void *volatile kept;
static size_t capture(void *context, struct heapprof_capture *c) {
    if (!strcmp(how, "many")) return c->most + 1;
    if (!strcmp(how, "behind")) { memset(c->frames, 1, (c->most + 1) * sizeof *c->frames); return 1; }
    if (!strcmp(how, "shared")) { c->shared = 7; return 9; }
    if (!strcmp(how, "allocates")) free(malloc(100));
    if (!strcmp(how, "full")) {
        for (size_t i = 0; i < c->most; i++) c->frames[i].code = 1 + i % 7;
        c->label = ~0ull;
        return c->most;
    }
    c->frames[0].code = 1;
    return 1;
}
static int resolve(void *context, const struct heapprof_raw_frame *f, struct heapprof_named_frame *n) {
    if (!strcmp(how, "nameless")) return 1;
    if (!strcmp(how, "endless")) { memset(n->name, 'n', n->name_size); memset(n->file, '\xff', n->file_size); return 0; }
    if (!strcmp(how, "empty")) return 0;
    strcpy(n->name, "named");
    return 0;
}
static int label(void *context, uint64_t l, size_t i, char *k, size_t ks, char *t, size_t ts) {
    memset(k, 'k', ks);
    memset(t, 't', ts);
    return 0;
}
int main(int argc, char **argv) {
    how = argv[1];
    int (*add)(const struct heapprof_stack_provider *) = (int (*)(const struct heapprof_stack_provider *))dlsym(RTLD_DEFAULT, "heapprof_register_stack_provider");
    struct heapprof_stack_provider p = {HEAPPROF_STACK_PROVIDER_VERSION, sizeof p, "liar", 0, capture, resolve, label, 0, 0, 0};
    struct heapprof_stack_provider wrong = p;
    wrong.version = 99;
    if (add(0) != 22 || add(&wrong) != 22) return 1;
    wrong = p, wrong.capture = 0;
    if (add(&wrong) != 22 || add(&p) != 0) return 2;
    for (int i = 0; i < 100; i++) { kept = malloc(1000 + i); free(kept); }
    /* The same provider keeps its slot. */
    p.context = &p;
    for (int i = 0; i < 20; i++) if (add(&p) != 0) return 3;
    int n = 1;
    for (; n < 20; n++) { p.context = (char *)&p + n; if (add(&p) != 0) break; }
    printf("%d\n", n);
    return 0;
}
"#;

#[test]
fn a_provider_that_lies_is_contained() {
    if !have(&["gcc"]) {
        return;
    }
    let options = format!("gcc -w -O1 -I{} -ldl", root().join("include").display());
    let built = build(LIARS, &options);
    let folder = built.folder.path();
    for (how, wanted) in [
        ("many", None),
        ("behind", None),
        ("shared", None),
        ("allocates", Some("named".to_string())),
        ("full", Some("named".to_string())),
        ("nameless", Some("(unnamed)".to_string())),
        ("empty", Some("(unnamed)".to_string())),
        ("endless", Some("n".repeat(1023))),
    ] {
        let args = ["record", "--exact", "-o", "p.pb.gz", "./program", how];
        let done = run(folder, &args);
        assert_eq!(
            (done.code, done.out.as_str()),
            (0, "7\n"),
            "{how}: {}",
            done.err
        );
        let profile = read(&folder.join("p.pb.gz"));
        let samples = samples(&profile);
        let objects: i64 = samples.iter().map(|s| s.allocated[0]).sum();
        assert!(objects >= 100, "{how}: {objects}");
        let is_wanted = |frame: &Frame| wanted.as_ref().is_some_and(|name| *name == frame.0);
        let named = samples.iter().filter(|s| s.frames.iter().any(is_wanted));
        assert_eq!(named.count() > 0, wanted.is_some(), "{how}");
        let missing = comments(&profile)
            .iter()
            .any(|c| c.starts_with("frames missing: liar"));
        assert_eq!(missing, wanted.is_none(), "{how}: {:?}", comments(&profile));
    }
}

/// A provider that treats every allocation of 4,000 bytes as a pool.
const POOLS: &str = r#"
#include "heapprof.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *volatile kept[100];
static size_t capture(void *context, struct heapprof_capture *c) {
    char here;
    if ((char *)c->stack_begin > &here || &here > (char *)c->stack_end) abort();
    if (c->caller < (uintptr_t)&here) abort();
    c->pool = c->size == 4000;
    c->frames[0].code = 1 + c->pool;
    return 1;
}
static int resolve(void *context, const struct heapprof_raw_frame *f, struct heapprof_named_frame *n) {
    strcpy(n->name, f->code == 2 ? "(pools)" : "plain");
    return 0;
}
static void report(void *context, const struct heapprof_report *r) {
    static char longest[70001];
    struct heapprof_part used = {"things (used)", 3, 30}, unused = {"things (free)", 1, 10}, none = {"nothing", 0, 0};
    r->part(r->to, &used);
    r->part(r->to, &unused);
    r->part(r->to, &none);
    memset(longest, 'x', 70000);
    struct heapprof_part named = {longest, 0, 40}, nameless = {0, 5, 5};
    r->part(r->to, &named);
    r->part(r->to, &nameless);
    r->remark(r->to, "three things");
    r->remark(r->to, longest);
}
int main(void) {
    int (*add)(const struct heapprof_stack_provider *) = (int (*)(const struct heapprof_stack_provider *))dlsym(RTLD_DEFAULT, "heapprof_register_stack_provider");
    struct heapprof_stack_provider p = {HEAPPROF_STACK_PROVIDER_VERSION, sizeof p, "toy", 0, capture, resolve};
    p.report = report;
    if (add(&p)) return 1;
    for (int i = 0; i < 80; i++) kept[i] = malloc(4000);
    for (int i = 80; i < 100; i++) kept[i] = malloc(100);
    for (int i = 0; i < 40; i++) free(kept[i]);
    puts("done");
    return 0;
}
"#;

/// The live bytes of pools are divided into the parts that the provider reports, and the parts add
/// up.
#[test]
fn pools_are_divided_into_parts() {
    if !have(&["gcc"]) {
        return;
    }
    let options = format!("gcc -w -O1 -I{} -ldl", root().join("include").display());
    let built = build(POOLS, &options);
    let folder = built.folder.path();
    for frames in ["--frames=script", "--frames=both"] {
        let args = ["record", "--exact", frames, "-o", "p.pb.gz", "./program"];
        let done = run(folder, &args);
        assert_eq!(
            (done.code, done.out.as_str()),
            (0, "done\n"),
            "{}",
            done.err
        );
        let profile = read(&folder.join("p.pb.gz"));
        let value =
            |i: usize, name| profile.samples.values(i)[profile.find_sample_type(name).unwrap()];
        let mut found = Vec::new();
        for i in 0..profile.samples.len() {
            let names: Vec<&str> = profile
                .samples
                .stack(i)
                .iter()
                .flat_map(|location| profile.lines(&profile.location[location.index()]))
                .map(|line| profile.text(profile.function[line.function.index()].name))
                .collect();
            if names.contains(&"(pools)") {
                let leaf = names[0][..names[0].len().min(20)].to_string();
                found.push((leaf, value(i, "inuse_objects"), value(i, "inuse_space")));
                assert!(
                    value(i, "peak_space") == 0 || names == ["(pools)"],
                    "{names:?}"
                );
            }
        }
        found.sort();
        let wanted = [
            ("(pools)".to_string(), 0, 0),
            ("things (free)".to_string(), 10, 20_000),
            ("things (used)".to_string(), 30, 60_000),
            ("x".repeat(20), 0, 80_000),
        ];
        assert_eq!(found, wanted, "{frames}");
        let comments = comments(&profile);
        assert!(comments.contains(&"toy: three things"), "{comments:?}");
    }
}

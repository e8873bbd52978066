//! Providers of stacks that programs register themselves: the toy interpreter of the docs, and some
//! that lie.

use std::collections::BTreeMap;

use heapprof_tests::built::{build, example, have};
use heapprof_tests::harness::{root, run};

use crate::scripts::{Frame, comments, read, samples};

/// The stacks of the toy interpreter, as it says them and as the profile has them.
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
                // Each run loop's frame became the frames that it ran.
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

/// Providers that give what they must not give.
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
    int n = 0;
    while (n < 20 && add(&p) == 0) n++;
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

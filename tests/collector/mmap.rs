//! A program's own mappings under `record --mmap`: mappings that are cut, moved, refused, overlaid,
//! and made by several threads at once.

use crate::stacks::read;
use heapprof_tests::built::{build, have};
use heapprof_tests::expectations::Sums;
use heapprof_tests::harness::command;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#define PAGE 4096L
#define NEW(pages) mmap(0, (pages) * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
#define APART __attribute__((noipa))
APART int cut(void) { char *p = NEW(8); return munmap(p + 3 * PAGE, 2 * PAGE); }
APART int moved(void) { char *p = NEW(4); return mremap(p, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED; }
APART int shrunk(void) { char *p = NEW(9); return mremap(p, 9 * PAGE, 5 * PAGE, 0) != p; }
APART int over(void) {
    char *p = NEW(6);
    return mmap(p + 3 * PAGE, 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED;
}
APART int gone(void) { return munmap(NEW(7), 7 * PAGE); }
APART int refused(void) {
    char *p = NEW(4);
    // Not at a page's beginning; more than there is; beyond the end of all addresses.
    return munmap(p + 1, PAGE) + (mremap(p, 4 * PAGE, 1L << 50, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0)
        + munmap(p, -PAGE) + 3;
}
static volatile int done;
APART void *moves(void *none) {
    while (!done) {
        char *p = mremap(NEW(1), PAGE, 3 * PAGE, MREMAP_MAYMOVE);
        munmap(p, 3 * PAGE);
    }
    return none;
}
APART void *keeps(void *none) {
    for (int i = 0; i < 20000; i++) NEW(1);
    return none;
}
int main(void) {
    pthread_t moving[2], keeping;
    int failed = cut() || moved() || shrunk() || over() || gone() || refused();
    for (int i = 0; i < 2; i++) pthread_create(&moving[i], 0, moves, 0);
    pthread_create(&keeping, 0, keeps, 0);
    pthread_join(keeping, 0);
    done = 1;
    for (int i = 0; i < 2; i++) pthread_join(moving[i], 0);
    printf("%d\n", failed);
    return 0;
}
"#;

#[test]
fn every_page_counts_once() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(SOURCE, "gcc -g -O1 -pthread");
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path())
        .args(["record", "--exact", "--mmap", "-o", "m.pb.gz", "--"])
        .arg(&built.program)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{output:?}");
    let sums = Sums::from_profile(&read(&folder.path().join("m.pb.gz")));
    // Function, objects and pages ever mapped, objects and pages in use.
    for (function, expected) in [
        ("cut", [1, 8, 2, 6]),
        ("moved", [2, 4 + 64, 1, 64]),
        ("shrunk", [2, 9 + 5, 1, 5]),
        ("over", [2, 6 + 3, 2, 6]),
        ("gone", [1, 7, 0, 0]),
        ("refused", [1, 4, 1, 4]),
        ("keeps", [20_000; 4]),
    ] {
        let value = |kind: &str| sums.value(function, kind).unwrap();
        let pages = |kind: &str| value(kind) / 4096;
        let found = [
            value("alloc_objects"),
            pages("alloc_space"),
            value("inuse_objects"),
            pages("inuse_space"),
        ];
        assert_eq!(found, expected, "{function}");
    }
    assert_eq!(sums.value("moves", "inuse_space"), Ok(0));
}

//! Compares `heapwalk --allocator` with malloc itself: `malloc_info` and `malloc_trim`.

use std::collections::BTreeMap;

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::ok;
use serde_json::Value;

use super::{BEGIN, Waiting};
use crate::process::{json, number};

/// A heap with all kinds of free lists, in two arenas. The program writes the output of malloc_info
/// to a file.
const BODY: &str = r#"
#include <malloc.h>
#include <signal.h>
static void *volatile many[600];
static volatile sig_atomic_t asked;
static void ask(int n) { asked = 1; }
static void fill(int from) {
    for (int i = from; i < from + 300; i++) many[i] = malloc(100 + 44 * (i % 50));
    for (int i = from; i < from + 300; i++) if (i % 3) free(many[i]), many[i] = 0;
    void *fast[30];
    for (int i = 0; i < 30; i++) fast[i] = malloc(40);
    for (int i = 0; i < 30; i++) free(fast[i]);
    free(malloc(60000));
}
static void *other(void *p) { fill(300); return p; }
static long resident(void) {
    static char buffer[4096], line[200];
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    setvbuf(f, buffer, _IOFBF, sizeof buffer);
    long kilobytes = 0;
    while (fgets(line, sizeof line, f) && !sscanf(line, "Rss: %ld", &kilobytes));
    fclose(f);
    return kilobytes * 1024;
}
int main(int argc, char **argv) {
    static char out[65536];
    kept[0] = malloc(300000);
    kept[1] = malloc(900000);
    pthread_t t;
    pthread_create(&t, 0, other, 0);
    pthread_join(t, 0);
    fill(0);
    void *large[9];
    for (int i = 0; i < 9; i++) {
        large[i] = malloc(50000 + 3000 * i);
        memset(large[i], 1, 50000);
        kept[2 + i] = malloc(5000);
    }
    for (int i = 0; i < 9; i++) free(large[i]);
    resident();
    signal(SIGUSR1, ask);
    FILE *f = fopen("info.xml", "w");
    setvbuf(f, out, _IOFBF, sizeof out);
    puts("ready");
    fflush(stdout);
    malloc_info(0, f);
    fflush(f);
    wipe();
    while (!asked) pause();
    long before = resident();
    malloc_trim(0);
    printf("%ld\n", before - resident());
    fflush(stdout);
    for (;;) pause();
}
"#;

/// Returns the quoted number after a name in a line of XML.
fn attribute(line: &str, name: &str) -> Option<i64> {
    let rest = line.split(&format!(" {name}=\"")).nth(1)?;
    rest.split('"').next()?.parse().ok()
}

/// Parses malloc's report about an arena: its lists of free chunks, by the largest chunk, with
/// their number and bytes, and the sums of fast lists, of all other lists, and of memory from the
/// system.
fn said(heap: &str) -> (BTreeMap<i64, [i64; 2]>, [i64; 4], i64) {
    let mut lists = BTreeMap::new();
    let mut rest = [0; 4];
    let mut system = 0;
    for line in heap.lines() {
        let of = |name: &str| attribute(line, name);
        if let (Some(to), Some(total), Some(count)) = (of("to"), of("total"), of("count")) {
            // The report counts the flags in the head of each chunk in a bin.
            let flags = if to % 16 == 0 { 0 } else { to % 16 };
            lists.insert(to - flags, [count, total - count * flags]);
        }
        let sums = (of("count"), of("size"));
        if let (true, (Some(count), Some(size))) = (line.contains("\"fast\""), sums) {
            rest[..2].copy_from_slice(&[count, size]);
        }
        if let (true, (Some(count), Some(size))) = (line.contains("\"rest\""), sums) {
            rest[2..].copy_from_slice(&[count, size]);
        }
        if line.contains("<system type=\"current\"") {
            system = of("size").unwrap();
        }
    }
    (lists, rest, system)
}

#[test]
fn it_says_what_malloc_info_and_malloc_trim_say() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(&format!("{BEGIN}{BODY}"), "gcc -O1 -g -pthread");
    let mut command = std::process::Command::new(&built.program);
    command.current_dir(built.folder.path());
    let mut waiting = Waiting::spawn(command);
    let info = std::fs::read_to_string(built.path("info.xml")).unwrap();
    let found = json(&ok(&[
        "heapwalk",
        &waiting.target(),
        "--allocator",
        "-f",
        "json",
    ]));
    let arenas = found["arenas"].as_array().unwrap();
    let heaps: Vec<&str> = info.split("<heap nr").skip(1).collect();
    let heaps: Vec<&str> = heaps
        .iter()
        .map(|heap| heap.split("</heap>").next().unwrap())
        .collect();
    assert!(heaps.len() == 2 && arenas.len() == 3, "{info}{found}");
    for (heap, arena) in heaps.iter().zip(arenas) {
        let (lists, [fast, fast_bytes, rest, rest_bytes], system) = said(heap);
        let of = |name: &str| number(&arena[name]);
        assert_eq!(
            [of("fast_blocks"), of("fast")],
            [fast, fast_bytes],
            "{heap}{arena}"
        );
        // The "rest" in malloc's report is the bins and the top, with the flags in their heads.
        assert_eq!(of("free_blocks") + 1, rest, "{heap}{arena}");
        let flags = (rest_bytes - of("free") - of("top")) as f64 / of("free_blocks").max(1) as f64;
        assert!(flags == 1.0 || flags == 5.0, "{flags}: {heap}{arena}");
        assert_eq!(of("system_memory"), system);
        let own: BTreeMap<i64, [i64; 2]> = arena["lists"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|list| list["list"] != "caches")
            .map(|list| {
                (
                    number(&list["to"]),
                    [number(&list["blocks"]), number(&list["bytes"])],
                )
            })
            .collect();
        assert!(own.len() > 5, "{arena}");
        assert_eq!(own, lists, "{heap}{arena}");
    }
    let notes = found["notes"].to_string();
    assert!(notes.contains("\"glibc 2."), "{notes}");
    let mapped = info
        .lines()
        .find(|line| line.contains("type=\"mmap\""))
        .unwrap();
    let settings = &found["settings"];
    let own = ["mapped_blocks", "mapped_bytes"].map(|name| number(&settings[name]));
    assert_eq!(
        own.map(Some),
        ["count", "size"].map(|name| attribute(mapped, name))
    );
    assert_eq!(number(&settings["mmap_threshold"]), 128 << 10);
    assert_eq!(settings["is_dynamic"], Value::Bool(true));
    // The reported trimmable size is the size that malloc_trim releases.
    let would = number(&found["trimmed"]);
    let line = waiting.asked("USR1");
    let gave: i64 = line.trim().parse().unwrap();
    // The measurement itself takes some pages.
    assert!(
        (would - gave).abs() <= 8 * 4096 && gave > 100_000,
        "{would} {gave}: {found}"
    );
}

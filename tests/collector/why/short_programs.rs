//! A program that ends at once has its parts, and what leaked together is one row.

use std::process::Command;

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::run;

use super::{MIB, WaitingProgram, holder, part, sum};
use crate::process::{json, number};

/// Reads each page of a mapped file, and ends.
const READING: &str = r#"
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <unistd.h>
    enum { SIZE = 64 << 20 };
    int main(int argc, char **argv) {
        int file = open(argv[1], O_RDWR | O_CREAT, 0600);
        if (ftruncate(file, SIZE)) return 1;
        char *bytes = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), sum = 0;
        for (int at = 0; at < SIZE; at += 4096) sum += bytes[at]++;
        return 0 * sum;
    }
"#;

#[test]
fn a_program_that_ends_at_once_has_its_parts() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(READING, "gcc -O1 -g");
    let place = tempfile::tempdir().unwrap();
    let program = built.program.to_str().unwrap();
    for name in ["first", "second", "third"] {
        let file = place.path().join("answer.json");
        let words = [
            "why",
            "-f",
            "json",
            "-o",
            "answer.json",
            "--",
            program,
            name,
        ];
        let found = run(place.path(), &words);
        assert_eq!(found.code, 0, "{}", found.err);
        let answer = json(&std::fs::read_to_string(file).unwrap());
        assert_eq!(sum(&answer), number(&answer["total"]), "{answer}");
        assert!(part(&answer, "mapped files") >= 64 * MIB, "{answer}");
        assert!(
            holder(&answer, "mapped files", name) >= 64 * MIB,
            "{answer}"
        );
    }
}

/// Leaks 10,000 orders, each of which has a name and a list of items.
const LEAKING: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    struct order { char *name, **items; char more[50]; };
    static char *text(size_t size) { return memset(malloc(size), 'x', size); }
    __attribute__((noinline)) void leak(void) {
        for (int at = 0; at < 10000; at++) {
            struct order *order = malloc(sizeof *order);
            memset(order->more, 1, sizeof order->more);
            order->name = text(100);
            order->items = malloc(2 * sizeof(char *));
            order->items[0] = text(200);
            order->items[1] = text(300);
        }
    }
    int main(void) {
        leak();
        puts("ready");
        fflush(stdout);
        getchar();
        return 0;
    }
"#;

#[test]
fn what_leaked_together_is_one_row() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(LEAKING, "gcc -O1 -g");
    let program = WaitingProgram::start(Command::new(&built.program), false);
    let place = tempfile::tempdir().unwrap();
    let answer = json(&run(place.path(), &["why", "-f", "json", &program.id()]).out);
    let parts = answer["parts"].as_array().unwrap();
    let heap = parts.iter().find(|part| part["part"] == "malloc, in use");
    let holders = heap.unwrap()["holders"].as_array().unwrap();
    // The last blocks may still be reached from the stack.
    let large = holders.iter().filter(|one| number(&one["bytes"]) > MIB / 2);
    let names: Vec<&str> = large.map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 1, "{answer}");
    assert!(names[0].starts_with("leaked: "), "{answer}");
    assert!(
        holder(&answer, "malloc, in use", names[0]) > 6 * MIB,
        "{answer}"
    );
    let found = holders.iter().find(|one| one["name"] == names[0]).unwrap();
    let extent = found["extent"].as_str().unwrap();
    assert!(
        extent.contains(" blocks, ") && extent.ends_with(" below"),
        "{answer}"
    );
}

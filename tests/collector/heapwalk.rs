//! `heapwalk` beside LeakSanitizer and valgrind: the same blocks in the same states.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::harness::{command, ok, run};
use serde_json::Value;

use crate::process::{json, number};

/// What all programs begin with. `checkpoint` is where they are looked at: LeakSanitizer and
/// valgrind check there and end, and otherwise the program waits. What was on the stack before, and
/// in registers, is wiped.
const BEGIN: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
static void *volatile kept[64];
static __attribute__((noinline)) void wipe(void) {
    char stack[32768];
    memset(stack, 0, sizeof stack);
    __asm__ volatile("" : : "r"(stack) : "memory", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9",
                     "r10", "r11", "r12", "r13", "r14", "r15");
}
static __attribute__((noinline)) void checkpoint(void) {
    wipe();
    if (__lsan_do_recoverable_leak_check) {
        __lsan_do_recoverable_leak_check();
        _exit(0);
    }
    if (getenv("CHECK")) _exit(0);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
static void *volatile sink;
static __attribute__((noinline)) void lose(size_t size) {
    sink = malloc(size);
    memset(sink, 'x', size);
    sink = 0;
}
"#;

/// The programs: a name, and what is done before the checkpoint.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "nothing is lost",
        "int main(void) { kept[0] = malloc(100); free(malloc(50)); checkpoint(); }",
    ),
    (
        "blocks of many sizes",
        "int main(void) { for (int i = 0; i < 50; i++) { lose(1 + 37 * i); kept[i] = malloc(20 * i); } \
         checkpoint(); }",
    ),
    (
        "a list that is lost is one block and what only that leads to",
        "struct n { struct n *next; long v; }; \
         static __attribute__((noinline)) void make(void) { struct n *first = 0; \
         for (int i = 0; i < 20; i++) { struct n *n = malloc(sizeof *n); n->next = first; first = n; } \
         sink = first; sink = 0; } \
         int main(void) { make(); checkpoint(); }",
    ),
    (
        "caches of a thread are free",
        "int main(void) { void *t[40]; for (int i = 0; i < 40; i++) t[i] = malloc(30); \
         for (int i = 0; i < 40; i++) free(t[i]); memset(t, 0, sizeof t); \
         __asm__ volatile(\"\" : : \"r\"(t) : \"memory\"); lose(30); checkpoint(); }",
    ),
    (
        "bins are free, and what lies between is not",
        "int main(void) { for (int i = 0; i < 30; i++) kept[i] = malloc(2000 + 16 * i); \
         for (int i = 0; i < 30; i += 2) { free(kept[i]); kept[i] = 0; } lose(3000); checkpoint(); }",
    ),
    (
        "large blocks have mappings of their own",
        "int main(void) { lose(300000); kept[0] = malloc(5 << 20); lose(1 << 20); \
         kept[1] = aligned_alloc(4096, 409600); checkpoint(); }",
    ),
    (
        "pointers into the middle may lead there",
        "int main(void) { kept[0] = (char *)malloc(500) + 40; kept[1] = (char *)malloc(700) + 1; \
         lose(10); checkpoint(); }",
    ),
    (
        "only thread-local memory leads there",
        "static __thread void *volatile own; int main(void) { own = malloc(123); lose(321); \
         checkpoint(); }",
    ),
    (
        "only the stack leads there",
        "int main(void) { void *volatile here[2] = {malloc(444), 0}; lose(555); checkpoint(); \
         return here[0] != 0; }",
    ),
    (
        "blocks of a thread that has ended, and of one that waits",
        "static __thread void *volatile own; static volatile int ready; \
         static void *lives(void *p) { own = malloc(777); void *volatile here = malloc(99); lose(222); \
         wipe(); ready = 1; for (;;) pause(); return here; } \
         static void *ends(void *p) { lose(333); kept[5] = malloc(88); return 0; } \
         int main(void) { pthread_t t; pthread_create(&t, 0, ends, 0); pthread_join(t, 0); \
         pthread_create(&t, 0, lives, 0); while (!ready) usleep(1000); lose(444); checkpoint(); }",
    ),
    (
        "many arenas",
        "static volatile int count; \
         static void *work(void *p) { for (int i = 0; i < 50; i++) lose(40 + i); wipe(); \
         __atomic_add_fetch(&count, 1, 5); for (;;) pause(); return 0; } \
         int main(void) { pthread_t t; for (int i = 0; i < 6; i++) pthread_create(&t, 0, work, 0); \
         while (count < 6) usleep(1000); checkpoint(); }",
    ),
    (
        "chains of realloc",
        "int main(void) { char *p = malloc(10); for (int i = 1; i < 300; i++) p = realloc(p, 10 + 50 * i); \
         kept[0] = p; p = realloc(malloc(100), 5000); sink = p; p = 0; sink = 0; checkpoint(); }",
    ),
    (
        "a tree that is reached",
        "struct t { struct t *a, *b; }; static struct t *make(int d) { struct t *t = malloc(sizeof *t); \
         t->a = d ? make(d - 1) : 0; t->b = d ? make(d - 1) : 0; return t; } \
         int main(void) { kept[0] = make(8); ((struct t *)kept[0])->a = 0; checkpoint(); }",
    ),
    (
        "a child has the heap of its parent",
        "#include <sys/wait.h>\n int main(void) { lose(600); kept[0] = malloc(70); int s; \
         if (fork()) { wait(&s); _exit(0); } lose(700); checkpoint(); }",
    ),
    (
        "objects with two bases",
        "", // It is C++: see below.
    ),
];

const CXX: &str = r#"
extern "C" { int __lsan_do_recoverable_leak_check(void) __attribute__((weak)); }
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
struct A { virtual ~A() {} long a = 1; };
struct B { virtual ~B() {} long b = 2; };
struct C : A, B { long c = 3; };
static void *volatile kept[8];
__attribute__((noinline)) static void wipe() {
    char stack[32768];
    memset(stack, 0, sizeof stack);
    __asm__ volatile("" : : "r"(stack) : "memory", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9",
                     "r10", "r11", "r12", "r13", "r14", "r15");
}
__attribute__((noinline)) static void make() {
    B *second = new C;
    kept[0] = second;
    kept[1] = new std::string[7];
    void *volatile lost = new C;
    lost = nullptr;
}
int main() {
    make();
    wipe();
    if (__lsan_do_recoverable_leak_check) { __lsan_do_recoverable_leak_check(); _exit(0); }
    if (getenv("CHECK")) _exit(0);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"#;

/// A program at its checkpoint, which ends with the test.
struct Waiting {
    child: Child,
    /// The process that waits: the program, or its child.
    pid: u32,
}

impl Waiting {
    fn start(program: &std::path::Path) -> Self {
        Self::of(Command::new(program))
    }

    /// Runs a command, whose child it may be that waits.
    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        // It is on its way into the wait.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let id = child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let forked = children.unwrap_or_default();
        let pid = forked
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok());
        Self {
            child,
            pid: pid.unwrap_or(id),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-KILL", &self.pid.to_string()])
            .status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Blocks by state: leaked, indirectly, maybe.
fn walked(target: &str) -> [i64; 3] {
    let found = json(&ok(&["heapwalk", target, "-f", "json"]));
    assert_eq!(found["unwalked"], 0, "{found}");
    let blocks = |state: &str| {
        let states = found["states"].as_array().unwrap();
        let state = states.iter().find(|one| one["state"] == state).unwrap();
        number(&state["blocks"])
    };
    [
        blocks("leaked"),
        blocks("leaked, indirectly"),
        blocks("maybe"),
    ]
}

/// What valgrind says: blocks that are definitely, indirectly and possibly lost.
fn of_valgrind(program: &std::path::Path) -> [i64; 3] {
    let done = Command::new("valgrind")
        .args(["--leak-check=full", "--trace-children=no"])
        .arg(program)
        .env("CHECK", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    // A child that was forked ends first. What it says is what is asked.
    let blocks = |what: &str| {
        let line = said.lines().find(|line| line.contains(what));
        let text = line
            .and_then(|line| line.split(" in ").nth(1))
            .unwrap_or("0 blocks");
        text.split(' ')
            .next()
            .unwrap()
            .replace(',', "")
            .parse()
            .unwrap()
    };
    ["definitely lost:", "indirectly lost:", "possibly lost:"].map(blocks)
}

/// How many blocks LeakSanitizer says have leaked.
fn of_sanitizer(built: &Built) -> i64 {
    let done = Command::new(&built.program).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let line = said
        .lines()
        .find(|line| line.contains(" byte(s) leaked in "));
    let Some(line) = line else {
        assert!(!said.contains("LeakSanitizer has encountered"), "{said}");
        return 0;
    };
    let words: Vec<&str> = line.split(' ').collect();
    let at = words.iter().position(|word| *word == "in").unwrap();
    words[at + 1].parse().unwrap()
}

/// Builds a program, plain and with LeakSanitizer.
fn both(name: &str, source: &str) -> [Built; 2] {
    match source {
        "" => [
            build(CXX, "g++ -O1 -g"),
            build(CXX, "g++ -O1 -g -fsanitize=leak"),
        ],
        source => {
            let whole = format!("/* {name} */\n{BEGIN}{source}");
            [
                build(&whole, "gcc -O1 -g -pthread"),
                build(&whole, "gcc -O1 -g -pthread -fsanitize=leak"),
            ]
        }
    }
}

#[test]
fn the_same_blocks_as_leak_sanitizer_and_valgrind() {
    if !have(&["gcc", "g++", "valgrind"]) {
        return;
    }
    for (name, source) in PROGRAMS {
        let [plain, sanitized] = both(name, source);
        let waiting = Waiting::start(&plain.program);
        let found = walked(&format!("pid:{}", waiting.pid));
        drop(waiting);
        // pthread_create's own block, which it may still free, is possibly lost for valgrind.
        let mut expected = of_valgrind(&plain.program);
        if source.contains("pthread_create") {
            expected[2] = found[2];
        }
        assert_eq!(found, expected, "{name}: valgrind");
        let [direct, indirect, _] = found;
        // LeakSanitizer takes each thread's blocks for reached by its stack as a whole.
        assert_eq!(
            direct + indirect,
            of_sanitizer(&sanitized),
            "{name}: LeakSanitizer"
        );
    }
}

/// A core file of a process shows what the process itself does.
#[test]
fn a_core_file_shows_the_same() {
    if !have(&["gcc", "gcore"]) {
        return;
    }
    let (name, source) = PROGRAMS[9];
    let [plain, _] = both(name, source);
    let waiting = Waiting::start(&plain.program);
    let core = plain.path("core");
    let made = Command::new("gcore")
        .arg("-o")
        .arg(&core)
        .arg(waiting.pid.to_string())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let core = format!("core:{}.{}", core.display(), waiting.pid);
    assert_eq!(walked(&core), walked(&format!("pid:{}", waiting.pid)));
    // Who points there, and its bytes.
    let found = json(&ok(&["heapwalk", &core, "-f", "json"]));
    let groups = found["groups"].as_array().unwrap();
    let lost = groups.iter().find(|one| one["content"] == "text").unwrap();
    let at = format!("{:#x}", number(&lost["example"]));
    let bytes = ok(&["heapwalk", &core, "--bytes", &at]);
    assert!(
        bytes.contains("78 78 78 78") && bytes.contains("xxxxxxxx"),
        "{bytes}"
    );
    let who = ok(&["heapwalk", &core, "--who", &at]);
    assert!(who.contains("nothing leads there from a root"), "{who}");
    // A core file that was cut says what is missing.
    let file = core.strip_prefix("core:").unwrap();
    let whole = std::fs::read(file).unwrap();
    std::fs::write(file, &whole[..whole.len() / 2]).unwrap();
    let cut = run(plain.folder.path(), &["heapwalk", &core]);
    let said = format!("{}{}", cut.out, cut.err);
    assert!(
        said.contains("missing") || said.contains("no heap"),
        "{said}"
    );
}

/// What a block retains is what cannot be reached without it.
#[test]
fn the_first_of_a_list_retains_all_of_it() {
    if !have(&["gcc"]) {
        return;
    }
    let body = "struct n { struct n *next; char rest[992]; }; \
        static __attribute__((noinline)) void make(void) { \
        struct n *first = 0, *shared = malloc(5000); memset(shared, 0, 5000); \
        for (int i = 0; i < 100; i++) { struct n *n = calloc(1, sizeof *n); n->next = first; first = n; } \
        ((void **)first)[1] = shared; kept[0] = first; kept[1] = shared; } \
        int main(void) { make(); checkpoint(); }";
    let built = build(&format!("{BEGIN}{body}"), "gcc -O1 -g -pthread");
    let waiting = Waiting::start(&built.program);
    let target = format!("pid:{}", waiting.pid);
    let found = json(&ok(&["heapwalk", &target, "--retained", "-f", "json"]));
    let rows = found["rows"].as_array().unwrap();
    // 100 blocks of 1,000 bytes that may use 1,000, and not the one that is reached otherwise, too.
    assert_eq!(number(&rows[0]["retained"]), 100 * 1000, "{found}");
    assert_eq!(number(&rows[1]["retained"]), 99 * 1000, "{found}");
    assert!(
        rows[0]["root"].as_str().unwrap().ends_with("/program"),
        "{found}"
    );
    let text = ok(&["heapwalk", &target, "--retained", "-n", "1"]);
    assert!(
        text.contains("97.66KiB") && text.lines().count() == 4,
        "{text}"
    );
}

/// The stacks of a recording are those of what leaked.
#[test]
fn what_leaked_has_its_allocation_stack() {
    if !have(&["gcc"]) {
        return;
    }
    let source = format!(
        "{BEGIN}int main(void) {{ for (int i = 0; i < 9; i++) lose(1000); checkpoint(); }}"
    );
    let built = build(&source, "gcc -O1 -g -pthread");
    let here = built.folder.path();
    let mut record = command(here);
    record.args(["record", "--exact", "-o", "p.pb.gz", "--"]);
    record.arg(&built.program);
    let waiting = Waiting::of(record);
    let pid = waiting.pid;
    let walked = run(here, &["heapwalk", &format!("pid:{pid}"), "-o", "w.pb.gz"]);
    assert_eq!(walked.code, 0, "{}", walked.err);
    let top = run(here, &["top", "w.pb.gz", "-f", "json"]);
    let top: Value = json(&top.out);
    assert_eq!(top["sample_type"]["type"], "leaked_space");
    let row = &top["rows"][0];
    assert_eq!(row["function"], "lose", "{top}");
    assert_eq!(number(&row["flat"]), 9 * 1000, "{top}");
}

#[test]
fn what_is_no_heap_is_said() {
    let here = std::path::Path::new("/");
    for (words, why) in [
        (&["heapwalk", "pid:4194304"][..], "no such process"),
        (&["heapwalk", "core:/dev/null"], "no regular file"),
        (&["heapwalk", "core:/etc/passwd"], "not that of an ELF file"),
        (&["heapwalk", "core:/nowhere"], "No such file"),
        (&["heapwalk", "pid:1", "--who", "xyz"], "no address"),
    ] {
        let found = run(here, words);
        assert_eq!(found.code, 2, "{words:?}");
        assert!(found.err.contains(why), "{words:?}: {}", found.err);
    }
}

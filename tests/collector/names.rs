//! Function names in reports: wrappers are left out, names fit a line, and code without symbols has
//! names.

use std::path::Path;

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{Run, name, run, valid};

pub(crate) fn recorded(folder: &Path, args: &[&str]) {
    let args = [&["record", "--exact"], args].concat();
    let done = run(folder, &args);
    assert_eq!(done.code, 0, "{}", done.err);
}

/// Returns the functions of `top`, in its order.
pub(crate) fn functions(folder: &Path, args: &[&str]) -> Vec<String> {
    let top = run(folder, &[&["top", "-f", "csv"], args].concat());
    assert_eq!(top.code, 0, "{}", top.err);
    let mut reader = csv_rows(&top);
    reader.retain(|name| name != "function" && name != "file");
    reader
}

/// Returns the third column of CSV rows. Names have no quotes except around the whole name.
pub(crate) fn csv_rows(ran: &Run) -> Vec<String> {
    let names = ran.out.lines().map(|line| {
        let from = line.match_indices(',').nth(1).map_or(0, |(at, _)| at + 1);
        let rest = &line[from..];
        match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap().to_string(),
            None => rest.split(',').next().unwrap().to_string(),
        }
    });
    names.collect()
}

/// A program with wrappers of several projects, its own wrapper, and functions that are not
/// wrappers.
pub(crate) const WRAPPED: &str = r#"
#include <stdlib.h>
#include <string.h>
static void *volatile kept[9];
#define APART __attribute__((noinline))
APART void *xmalloc(size_t n) { void *p = malloc(n); if (!p) abort(); return p; }
APART void *zmalloc_usable(size_t n) { void *p = malloc(n + 8); return p; }
APART void *zmalloc(size_t n) { void *p = zmalloc_usable(n); return p; }
APART char *xstrdup(const char *s) { char *p = xmalloc(strlen(s) + 1); return strcpy(p, s); }
APART void *our_alloc(size_t n) { void *p = malloc(n); return p; }
APART void *xmalloc_table(size_t n) { void *p = malloc(n); return p; }
APART void by_x(void) { kept[0] = xmalloc(1000); }
APART void by_z(void) { kept[1] = zmalloc(2000 - 8); }
APART void by_copy(void) { char text[3000]; memset(text, 'x', 2999); text[2999] = 0; kept[2] = xstrdup(text); }
APART void by_ours(void) { kept[3] = our_alloc(4000); }
APART void by_table(void) { kept[4] = xmalloc_table(5000); }
int main(void) { by_x(); by_z(); by_copy(); by_ours(); by_table(); return 0; }
"#;

#[test]
fn wrappers_are_not_blamed() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(
        WRAPPED,
        "gcc -g -O1 -fno-optimize-sibling-calls -fno-builtin",
    );
    let folder = built.folder.path();
    recorded(folder, &["-o", "p.pb.gz", "./program"]);
    let plain = functions(folder, &["-n", "5", "p.pb.gz"]);
    assert_eq!(
        plain,
        [
            "xmalloc_table",
            "our_alloc",
            "by_copy",
            "by_z",
            "by_x",
            "(other)"
        ]
    );
    // Each row is still there, and includes the values of its wrappers.
    let whole = functions(folder, &["-n", "6", "--all-frames", "p.pb.gz"]);
    assert_eq!(
        whole[..4],
        ["xmalloc_table", "our_alloc", "xmalloc", "zmalloc_usable"]
    );
    let own = functions(
        folder,
        &["-n", "5", "--wrappers", "our_.*|xmalloc_table", "p.pb.gz"],
    );
    assert_eq!(own[..5], ["by_table", "by_ours", "by_copy", "by_z", "by_x"]);
    // `record` writes the wrappers into the profile, and all readers obey them.
    recorded(
        folder,
        &["--wrappers", "our_.*", "-o", "q.pb.gz", "./program"],
    );
    let written = functions(folder, &["-n", "2", "q.pb.gz"]);
    assert_eq!(written[..2], ["xmalloc_table", "by_ours"]);
    let pprof = run(folder, &["pprof", "-top", "-nodecount=5", "q.pb.gz"]).out;
    let rows = pprof.lines().skip_while(|line| !line.contains("flat%"));
    let rows: Vec<&str> = rows
        .skip(1)
        .filter_map(|row| row.split_whitespace().last())
        .collect();
    assert_eq!(
        rows,
        ["xmalloc_table", "by_ours", "by_copy", "by_z", "by_x"]
    );
    let children = run(
        folder,
        &[
            "record",
            "--wrappers",
            "our_.*",
            "-o",
            "r.pb.gz",
            "sh",
            "-c",
            "./program; true",
        ],
    );
    assert_eq!(children.code, 0, "{}", children.err);
}

#[test]
fn wrappers_that_are_none_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let profile = heapprof_tests::harness::sample_profiles().join("valid/go.leaky.after.pb.gz");
    let profile = profile.to_str().unwrap();
    let nothing = run(folder.path(), &["top", "--wrappers", "no_such", profile]);
    assert_eq!(nothing.code, 0);
    assert!(
        nothing
            .err
            .contains("--wrappers \"no_such\" matches no function"),
        "{}",
        nothing.err
    );
    for args in [
        &["top", "--wrappers", "a)(b", profile][..],
        &["record", "--wrappers", "a)(b", "true"],
    ] {
        let wrong = run(folder.path(), args);
        assert_eq!(wrong.code, 2, "{args:?}");
        assert!(
            wrong.err.contains("not a regular expression"),
            "{}",
            wrong.err
        );
        assert_eq!(wrong.err.lines().count(), 1, "{}", wrong.err);
    }
}

/// A program in which wrappers call back. A wrapper is cut together with everything that it called,
/// so no wrapper that heapprof knows may call back into the program.
const CALLED_BACK: &str = r#"
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>
#define APART __attribute__((noinline))
struct Order { void *own; APART Order() { own = malloc(70000); } APART Order(Order &&o) { own = o.own; } };
std::vector<Order> orders;
std::map<int, Order> by_number;
std::shared_ptr<Order> shared;
std::unique_ptr<Order> one;
APART int compare(const void *a, const void *b) {
    static void *volatile kept = malloc(90000);
    return *(const int *)a - *(const int *)b;
}
APART void sort() { int numbers[] = {3, 1, 2}; qsort(numbers, 3, sizeof *numbers, compare); }
int main() {
    orders.emplace_back();
    by_number[1];
    shared = std::make_shared<Order>();
    one = std::make_unique<Order>();
    sort();
}
"#;

#[test]
fn a_constructor_s_memory_is_its_own() {
    if !have(&["g++"]) {
        return;
    }
    for options in ["-O0", "-O2"] {
        let built = build(CALLED_BACK, &format!("g++ -g {options}"));
        let folder = built.folder.path();
        recorded(folder, &["-o", "p.pb.gz", "./program"]);
        let top = run(
            folder,
            &[
                "top",
                "-n",
                "2",
                "-f",
                "csv",
                "-t",
                "alloc_space",
                "p.pb.gz",
            ],
        );
        let rows: Vec<&str> = top.out.lines().skip(1).collect();
        assert!(
            rows[0].starts_with("280000,280000,Order::Order()"),
            "{options}: {}",
            top.out
        );
        assert!(
            rows[1].starts_with("90000,90000,\"compare("),
            "{options}: {}",
            top.out
        );
        // No name is mangled, and no allocator is in the list.
        for name in functions(folder, &["-n", "0", "p.pb.gz"]) {
            assert!(!name.starts_with("_Z"), "{options}: {name}");
            assert!(
                !name.contains("allocator") || !name.contains("::allocate("),
                "{options}: {name}"
            );
        }
    }
}

const LONG: &str = r#"
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>
static void *volatile kept[99];
template <class T> struct Shelf {
    template <class U> __attribute__((noinline)) void put(U, int n) { kept[n] = malloc(n * 1000); }
};
using Deep = std::map<std::string, std::vector<std::map<std::string, std::vector<std::pair<int, std::string>>>>>;
__attribute__((noinline)) void parse(int n) { kept[n] = malloc(n * 1000); }
__attribute__((noinline)) void parse(long n) { kept[n] = malloc(n * 1000); }
int main() {
    Shelf<Deep>().put(Deep(), 50);
    Shelf<Deep>().put(1, 40);
    Shelf<std::string>().put(std::function<void(int, std::string)>(), 30);
    auto made = [](int n) __attribute__((noinline)) { kept[n] = malloc(n * 1000); };
    made(20);
    parse(10);
    parse(11L);
}
"#;

#[test]
fn names_fit_a_line() {
    if !have(&["g++"]) {
        return;
    }
    let built = build(LONG, "g++ -g -O1");
    let folder = built.folder.path();
    recorded(folder, &["-o", "p.pb.gz", "./program"]);
    let names = |args: &[&str]| -> Vec<String> {
        let top = run(
            folder,
            &[&["top", "-n", "6", "--focus", "^main$", "p.pb.gz"], args].concat(),
        );
        assert_eq!(top.code, 0, "{}", top.err);
        let rows = top
            .out
            .lines()
            .skip_while(|line| !line.contains("flat%"))
            .skip(1);
        for row in rows.clone().filter(|_| args.is_empty()) {
            assert!(row.chars().count() <= 120, "{row}");
        }
        // The name follows the columns of numbers.
        rows.map(|row| row.split_whitespace().skip(5).collect::<Vec<_>>().join(" "))
            .collect()
    };
    let short = names(&[]);
    expect_test::expect![[r#"
        Shelf<std::map<…>>::put<std::map<…>>
        Shelf<std::map<std::string, std::vector<std::map<…>>>>::put<int>
        Shelf<std::string>::put<std::function<void (int, std::string)>>
        main::{lambda#1}
        parse(long)
        parse(int)
    "#]]
    .assert_eq(&(short[..6].join("\n") + "\n"));
    let whole = names(&["--full-names"]);
    assert!(
        whole[0].starts_with("void Shelf<std::map<std::__cxx11::basic_string<char, "),
        "{}",
        whole[0]
    );
    assert_eq!(
        whole[3], "main::{lambda(int)#1}::operator()(int) const",
        "{}",
        whole[3]
    );
    let json = run(folder, &["top", "-f", "json", "p.pb.gz"]).out;
    assert!(json.contains("parse(long)"), "{json}");
    for report in ["tree", "peek", "traces", "leaks"] {
        let pattern: &[&str] = if report == "peek" { &["."] } else { &[] };
        let args = [&[report][..], pattern, &["p.pb.gz"]].concat();
        let text = run(folder, &args).out;
        // Overloads are distinguished here, too.
        for name in ["parse(long)", "parse(int)", "main::{lambda#1}"] {
            assert!(text.contains(name), "{report}: {text}");
        }
        assert!(!text.contains("allocator"), "{report}: {text}");
        for row in text.lines() {
            assert!(row.chars().count() <= 120, "{report}: {row}");
        }
        let args = [&[report][..], pattern, &["p.pb.gz", "--full-names"]].concat();
        assert!(run(folder, &args).out.contains("allocator"), "{report}");
    }
    let literal = run(folder, &["peek", "parse(int)", "p.pb.gz"]).err;
    assert!(
        literal.contains("to match it literally, write \"parse\\\\(int\\\\)\""),
        "{literal}"
    );
    // A name copied from these reports may be shortened, and the message says so.
    for args in [
        &["peek", "parse$", "p.pb.gz"][..],
        &["list", "parse$", "p.pb.gz"],
        &["top", "--focus", "parse$", "p.pb.gz"],
    ] {
        let said = run(folder, args).err;
        assert!(
            said.contains(": it must match whole names, and \"parse\" is short for \"parse("),
            "{args:?}: {said}"
        );
    }
}

const NAMELESS: &str = r#"
#include <stdlib.h>
static void *volatile kept[9];
__attribute__((noinline)) static void one(int n) { kept[0] = malloc(n); kept[1] = malloc(2 * n); }
__attribute__((noinline)) static void two(int n) { kept[2] = malloc(n); }
int main(int argc, char **argv) {
    one(100000);
    two(50000);
    if (argc > 1) { two(80000); }
    return 0;
}
"#;

/// Functions of a stripped program are named by their places. These names are the same in each run,
/// and are replaced by real names once a debug file is there.
#[test]
fn code_without_names_is_called_the_same_in_each_run() {
    if !have(&["gcc", "objcopy", "strip"]) {
        return;
    }
    let built = build(NAMELESS, "gcc -g -O1 -fpie -pie");
    let folder = built.folder.path();
    let shell = |line: &str| {
        let done = std::process::Command::new("sh")
            .args(["-c", line])
            .current_dir(folder)
            .status();
        assert!(done.unwrap().success(), "{line}");
    };
    shell("mkdir debug && objcopy --only-keep-debug program debug/program.debug && strip program");
    for name in ["a.pb.gz", "b.pb.gz"] {
        let done = run(folder, &["record", "--exact", "-o", name, "./program"]);
        assert_eq!(done.code, 0, "{}", done.err);
        assert!(
            done.err
                .contains("of the peak is held by code without names, most of it in "),
            "{}",
            done.err
        );
        assert!(
            done.err.contains("symbolize --debug-dir DIR"),
            "{}",
            done.err
        );
    }
    recorded(folder, &["-o", "c.pb.gz", "./program", "more"]);
    let a = functions(folder, &["-n", "2", "a.pb.gz"]);
    assert!(
        a[..2].iter().all(|name| name.starts_with("program+0x")),
        "{a:?}"
    );
    assert_eq!(a, functions(folder, &["-n", "2", "b.pb.gz"]));
    let same = run(folder, &["diff", "a.pb.gz", "b.pb.gz"]).out;
    assert!(same.contains("Nothing changed."), "{same}");
    let changed = run(folder, &["diff", "-f", "csv", "a.pb.gz", "c.pb.gz"]).out;
    let rows: Vec<&str> = changed.lines().skip(1).collect();
    assert!(
        rows.len() == 3 && rows[0].starts_with("50000,130000,80000,1.6,grown,"),
        "{changed}"
    );
    assert!(rows[0].contains(&a[1]), "{changed}");
    // If one side is a different build, or has no names, `diff` explains by this why rows are new
    // and gone.
    let longer = NAMELESS.replace(
        "one(100000);",
        "one(100000); for (volatile int i = 0; i < argc * 3; i++) argc ^= i;",
    );
    let longer = longer.replace(
        "kept[9];",
        "kept[9];\n__attribute__((noinline)) int more(int n) { return n * n; }",
    );
    std::fs::write(folder.join("source.c"), longer).unwrap();
    shell("gcc -g -O1 -fpie -pie -o program source.c && strip program");
    recorded(folder, &["-o", "other.pb.gz", "./program"]);
    let said = run(folder, &["diff", "a.pb.gz", "other.pb.gz"]).err;
    assert!(
        said.contains(
            "may only look new or gone, because the two sides have different builds of it"
        ),
        "{said}"
    );
    // pprof does not treat a frame without symbols as symbolized, and `info` counts such frames.
    let info = run(folder, &["info", "a.pb.gz"]).out;
    assert!(info.contains("without symbols"), "{info}");
    let named = run(folder, &["symbolize", "--debug-dir", "debug", "a.pb.gz"]);
    assert_eq!(named.code, 0, "{}", named.err);
    assert_eq!(
        functions(folder, &["-n", "2", "a.pb.gz"])[..2],
        ["one", "two"]
    );
    let said = run(folder, &["diff", "a.pb.gz", "b.pb.gz"]).err;
    assert!(
        said.contains(
            "of program may only look new or gone, because its code has names on only one side"
        ),
        "{said}"
    );
}

/// A wrapper without a name is proposed, too. A function that makes objects of one type is not.
#[test]
fn a_wrapper_of_a_stripped_program_is_proposed() {
    if !have(&["gcc", "strip"]) {
        return;
    }
    let mut source = "#include <stdlib.h>\n#define APART __attribute__((noinline))\nstatic void \
                      *volatile kept[99];\nstatic APART void *any(size_t n) { void *p = \
                      malloc(n); if (!p) abort(); return p; }\nstatic APART void *item(void) { \
                      void *p = malloc(3000); if (!p) abort(); return p; }\n"
        .to_string();
    for i in 0..12 {
        source += &format!(
            "static APART void f{i}(void) {{ kept[{i}] = any(1000 + {i} * 100); kept[{i} + 20] = \
             item(); }}\n"
        );
    }
    let calls: String = (0..12).map(|i| format!("f{i}(); ")).collect();
    source += &format!("int main(void) {{ {calls} return 0; }}\n");
    let built = build(&source, "gcc -O1 -fno-optimize-sibling-calls");
    let folder = built.folder.path();
    built.run("strip program");
    recorded(folder, &["-o", "p.pb.gz", "./program"]);
    let top = run(folder, &["top", "p.pb.gz"]).out;
    let proposed: Vec<&str> = top
        .lines()
        .filter(|line| line.contains("adds its memory to theirs"))
        .collect();
    assert!(
        proposed.len() == 1 && proposed[0].contains("12 functions"),
        "{top}"
    );
    let (_, pattern) = proposed[0].split_once("--wrappers '").unwrap();
    let pattern = pattern.split('\'').next().unwrap();
    assert!(pattern.starts_with("^program\\+0x"), "{pattern}");
    let top = run(folder, &["top", "--wrappers", pattern, "p.pb.gz"]).out;
    assert!(!top.contains("adds its memory to theirs"), "{top}");
    // Now the function that makes items comes first, and then the caller that requested the most.
    let csv = [
        "top",
        "-f",
        "csv",
        "-n",
        "2",
        "--wrappers",
        pattern,
        "p.pb.gz",
    ];
    let csv = run(folder, &csv).out;
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    assert!(rows[0].starts_with("36000,36000,"), "{csv}");
    assert!(rows[1].starts_with("2100,5100,"), "{csv}");
}

/// A private wrapper is proposed, with the flag that makes its blocks count for its callers. A
/// function that makes objects of one type is not.
#[test]
fn a_wrapper_that_nobody_knows_is_proposed() {
    if !have(&["gcc"]) {
        return;
    }
    let names = [
        "my_alloc",
        "app_malloc",
        "mem_new",
        "get_mem",
        "pool_allocate",
        "ourCalloc",
        "safe_alloc",
        "AllocBytes",
        "x_realloc2",
        "buf_memdup",
    ];
    // These functions make objects of one type, have few callers, or have another kind of name.
    let none = [
        "alloc_node",
        "node_alloc",
        "tree_alloc",
        "AllocItem",
        "new_mem_block",
        "string_new",
        "buffer_create",
        "list_append",
        "table_put",
        "make_point",
        "Order_init",
        "read_line",
        "parse_word",
        "dict_add",
        "queue_push",
        "open_file",
        "copy_row",
        "grow",
        "intern",
        "few_alloc",
    ];
    let wrappers = names.iter().map(|name| (*name, true));
    for (name, is_wrapper) in wrappers.chain(none.iter().map(|name| (*name, false))) {
        let mut source = format!(
            "#include <stdlib.h>\n#define APART __attribute__((noinline))\nstatic void *volatile \
             kept[99];\nAPART void *{name}(size_t n) {{ void *p = malloc({}); if (!p) abort(); \
             return p; }}\n",
            if none[..5].contains(&name) { "64" } else { "n" }
        );
        let callers = if name == "few_alloc" { 2 } else { 12 };
        for i in 0..callers {
            source += &format!(
                "APART void f{i}(void) {{ kept[{i}] = {name}({} + {i} * 100); }}\n",
                1000
            );
        }
        let calls: String = (0..callers).map(|i| format!("f{i}(); ")).collect();
        source += &format!("int main(void) {{ {calls} return 0; }}\n");
        let built = build(&source, "gcc -g -O1 -fno-optimize-sibling-calls");
        let folder = built.folder.path();
        recorded(folder, &["-o", "p.pb.gz", "./program"]);
        let flag = format!("--wrappers '^{name}$' adds its memory to theirs");
        let top = run(folder, &["top", "p.pb.gz"]).out;
        assert_eq!(top.contains(&flag), is_wrapper, "{name}: {top}");
        let info = run(folder, &["info", "p.pb.gz"]).out;
        assert_eq!(info.contains(&flag), is_wrapper, "{name}: {info}");
        let own = run(
            folder,
            &["top", "--wrappers", &format!("^{name}$"), "p.pb.gz"],
        );
        assert!(
            !own.out.contains("adds its memory to theirs"),
            "{name}: {}",
            own.out
        );
    }
}

/// No row of any report is wider than a screen, except the lines about how the profile was made.
#[test]
fn no_row_is_wider_than_120_columns() {
    for file in valid() {
        let path = file.to_str().unwrap();
        for report in ["top", "tree", "peek", "traces", "leaks"] {
            let pattern: &[&str] = if report == "peek" { &["."] } else { &[] };
            let args = [&[report][..], pattern, &[path]].concat();
            let ran = run(Path::new("."), &args);
            let is_note = |line: &str| line.contains(&name(&file)) || line.contains(" --");
            let table = ran.out.lines().filter(|line| !is_note(line));
            for row in table {
                assert!(row.chars().count() <= 120, "{report} {path}: {row}");
            }
        }
    }
}

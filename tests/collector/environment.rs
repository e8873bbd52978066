//! docs/environment.md contains the library's table of variables, and this table contains all
//! variables that the library reads.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use heapprof_tests::built::{build, example, have};
use heapprof_tests::harness::{expect_file, preloaded, root, run};
use heapprof_tests::waits::wait_until;

use heapprof_abi::environment::{ALL, EnvironmentVariable, VariableSetter};

fn is_ours(variable: &EnvironmentVariable) -> bool {
    variable.setter != VariableSetter::Gperftools
}

fn table(variables: impl Iterator<Item = &'static EnvironmentVariable>) -> String {
    let by = |variable: &EnvironmentVariable| match variable.setter {
        VariableSetter::User | VariableSetter::UserPassthrough | VariableSetter::Gperftools => {
            "you"
        }
        VariableSetter::UserOrRecord => "you, `record`",
        VariableSetter::Record => "`record`",
        VariableSetter::Watch => "`watch`",
    };
    let rows = variables.map(|v| {
        let (name, form, default) = (v.name, v.form, v.default);
        format!(
            "| `{name}` | {form} | {default} | {} | {} |\n",
            by(v),
            v.meaning
        )
    });
    format!(
        "| Variable | Value | Default | Set by | Meaning |\n\
         | :--- | :--- | :--- | :--- | :--- |\n{}",
        rows.collect::<String>()
    )
}

/// The page must equal itself with its tables, which begin at `| Variable |`, generated anew.
#[test]
fn the_page_shows_the_table() {
    let page = root().join("docs/environment.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let mut tables = [true, false].map(|ours| table(ALL.iter().filter(|v| is_ours(v) == ours)));
    let mut tables = tables.iter_mut();
    let mut made = String::new();
    let mut in_table = false;
    for line in text.lines() {
        if line.starts_with("| Variable |") {
            made.push_str(tables.next().expect("two tables"));
            in_table = true;
        }
        in_table &= line.starts_with('|');
        if !in_table {
            made.push_str(line);
            made.push('\n');
        }
    }
    assert!(tables.next().is_none(), "there are two tables");
    expect_file(&page, &made);
}

/// The name of a collector's variable occurs in the table, and nowhere else in the code.
#[test]
fn names_stand_in_the_table_only() {
    let name = regex::Regex::new(r#""(HEAP[A-Z_]+)""#).unwrap();
    let is_in_table = |found: &str| ALL.iter().any(|v| v.name == found);
    for file in heapprof_tests::harness::sources() {
        let place = file.strip_prefix(root()).unwrap().to_owned();
        // Unit tests may write a variable's name as a user would.
        let is_test = place.starts_with("tests") || place.ends_with("tests.rs");
        if is_test || place.ends_with("abi/src/environment.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let found = name.captures_iter(text).find(|c| is_in_table(&c[1]));
        assert!(found.is_none(), "{}: {found:?}", place.display());
    }
    // Each variable is read by a collector.
    let table = root().join("crates/contract/abi/src/environment.rs");
    let table = std::fs::read_to_string(table).unwrap();
    let row = regex::Regex::new(r#"(?m)^    ([A-Z_]+) "HEAP[A-Z_]+","#).unwrap();
    let mut rows = 0;
    let code: String = ["engine/src/setting.rs", "preload/src/environment.rs"]
        .map(|file| root().join("crates/inside").join(file))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .concat();
    for found in row.captures_iter(&table) {
        let uses = [
            format!("variable::{}.", &found[1]),
            format!("setting!({},", &found[1]),
        ];
        assert!(uses.iter().any(|used| code.contains(used)), "{}", &found[1]);
        rows += 1;
    }
    assert_eq!(rows, ALL.len());
    let names: BTreeSet<&str> = ALL.iter().map(|v| v.name).collect();
    assert_eq!(names.len(), ALL.len(), "a variable stands twice");
}

/// In an existing gperftools setup, every allocation is recorded, profiles are in gperftools' text
/// form, and nothing is printed.
#[test]
fn a_gperftools_setup_runs_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    if !example(folder.path(), "shop", "") {
        return;
    }
    let output = preloaded(folder.path().join("shop"))
        .env("HEAPPROFILE", folder.path().join("shop.hprof"))
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0));
    let text = std::fs::read_to_string(folder.path().join("shop.hprof.0001.heap")).unwrap();
    assert_eq!(
        text.lines().next().unwrap(),
        "heap profile:   2000:   224000 [  2001:   232000] @ heapprofile"
    );
    assert!(text.contains("\nMAPPED_LIBRARIES:\n"), "{text}");
    // heapprof reads the file that its collector wrote.
    let symbolized = ["symbolize", "shop.hprof.0001.heap", "-o", "shop.pb.gz"];
    let named = run(folder.path(), &symbolized);
    assert_eq!(named.code, 0, "{}", named.err);
    let top = run(folder.path(), &["top", "-f", "csv", "shop.pb.gz"]);
    assert!(
        top.out.contains("200000,200000,read_customer,"),
        "{}",
        top.out
    );
}

/// Files of an earlier run are removed, and the process id is in a file's name only if the setup
/// asks for it.
#[test]
fn gperftools_names_are_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let files = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let run = |variable: &str, value: &str| {
        let status = preloaded("true")
            .env("HEAPPROFILE", folder.path().join("x"))
            .env(variable, value)
            .status();
        assert!(status.unwrap().success());
    };
    let earlier = |name: &str| std::fs::write(folder.path().join(name), "earlier").unwrap();
    for name in ["x.0001.heap", "x.0002.heap", "x.0003.heap", "x.0009.heap"] {
        earlier(name);
    }
    earlier("x_7.0001.heap");
    run("HEAP_PROFILE_CLEANUP", "0");
    assert_eq!(files().len(), 5);
    run("HEAP_PROFILE_CLEANUP", "true");
    assert_eq!(files(), ["x.0001.heap", "x.0009.heap", "x_7.0001.heap"]);
    run("HEAPPROFILE_USE_PID", "1");
    let name = regex::Regex::new(r"^x_\d+\.0001\.heap$").unwrap();
    let named = files().iter().filter(|file| name.is_match(file)).count();
    assert_eq!((named, files().len()), (2, 4));
}

/// The program maps its memory, and the gperftools setup asks to record mappings.
#[test]
fn gperftools_mmap_is_ours() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <stdlib.h>
#include <sys/mman.h>
int main(void) {
    return mmap(0, 12349440, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}
"#;
    let built = build(source, "gcc");
    for (value, expected) in [("1", true), ("0", false)] {
        let output = preloaded(&built.program)
            .env("HEAPPROFILE", built.path(value))
            .env("HEAP_PROFILE_MMAP", value)
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = std::fs::read_to_string(built.path(&format!("{value}.0001.heap"))).unwrap();
        assert_eq!(text.contains(" 12349440 ["), expected, "{text}");
    }
}

/// In the list, an errno gives the reason for a missing profile, because a text in the user's
/// locale might need the program's malloc.
#[test]
fn what_was_not_written_is_listed_by_errno() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    std::fs::create_dir(&list).unwrap();
    let output = folder.path().join("no such/x.pb.gz");
    let mut child = preloaded("true")
        .env("HEAPPROF_OUTPUT", &output)
        .env("HEAPPROF_LIST", &list)
        .env(
            "HEAPPROF_RECORD",
            format!("{}:{:010}", std::process::id(), 0),
        )
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    let own = std::fs::metadata("/proc/self").unwrap().uid();
    let own = list.join(own.to_string());
    assert_eq!(std::fs::metadata(&own).unwrap().mode() & 0o777, 0o600);
    let listed = std::fs::read_to_string(own).unwrap();
    assert_eq!(listed, format!("!2 {} {}\0", child.id(), output.display()));
    // `record` translates the errno to text.
    let away = ["sh", "-c", "rm -r away; exit 6"];
    std::fs::create_dir(folder.path().join("away")).unwrap();
    let record = ["record", "-o", "away/x.pb.gz", "--follow-children", "no"];
    let found = run(folder.path(), &[&record[..], &away[..]].concat());
    assert_eq!(found.code, 6, "{}", found.err);
    assert!(
        found
            .err
            .contains("/away/x.pb.gz: No such file or directory (os error 2)\n"),
        "{}",
        found.err
    );
}

/// Executed children have file names of their own, as in gperftools: the first process marks its
/// environment, and only the other processes put their ids into the names of their files.
#[test]
fn executed_children_of_a_gperftools_setup_have_names_of_their_own() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <stdlib.h>
#include <string.h>
int main(void) {
    for (int i = 0; i < 250; i++) memset(malloc(1 << 20), 1, 10);
    return system("env true");
}
"#;
    let built = build(source, "gcc -O0");
    for (follow, children) in [("yes", true), ("no", false)] {
        let folder = tempfile::tempdir().unwrap();
        let output = preloaded(&built.program)
            .env("HEAPPROFILE", folder.path().join("x"))
            .env("HEAPPROF_FOLLOW", follow)
            .env("HEAPPROF_VERBOSE", "yes")
            .output()
            .unwrap();
        assert!(output.status.success());
        let names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for number in 1..4 {
            let name = format!("x.{number:04}.heap");
            let text = std::fs::read_to_string(folder.path().join(&name)).unwrap();
            assert!(text.contains("/program\n"), "{name}: {text}");
        }
        let of_children = names.iter().filter(|name| name.starts_with("x_"));
        assert_eq!(of_children.count() > 0, children, "{names:?}");
        // Dumps while the program runs are reported like the last one.
        let reported = String::from_utf8_lossy(&output.stderr);
        // Dumps of a process before and after an exec have the same file name.
        let reported: BTreeSet<&str> = reported.lines().collect();
        assert_eq!(reported.len(), names.len(), "{reported:?}");
    }
}

/// The library handles SIGTERM and SIGINT only under `record`.
#[test]
fn gperftools_setup_leaves_ending_signals_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut sleep = preloaded("sleep")
        .arg("3600")
        .env("HEAPPROFILE", folder.path().join("sleep.hprof"))
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", sleep.id());
    let caught = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let name = text.lines().next().unwrap().to_string();
        let mask = text
            .lines()
            .find_map(|l| l.strip_prefix("SigCgt:"))
            .unwrap();
        let asleep = text.contains("State:\tS");
        (
            asleep && name.ends_with("sleep"),
            u64::from_str_radix(mask.trim(), 16).unwrap(),
        )
    };
    wait_until("the program's sleep", || caught().0);
    let (_, mask) = caught();
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    assert_eq!(mask & (1 << (2 - 1) | 1 << (15 - 1)), 0, "{mask:x}");
}

/// Without `record`, only the library itself can know which process is the first.
#[test]
fn follow_no_records_the_first_process_only() {
    let folder = tempfile::tempdir().unwrap();
    let output = preloaded("sh")
        .args(["-c", "sleep 0; (exit 0); env true; exit 3"])
        .env("HEAPPROF_OUTPUT", folder.path().join("sh.pb.gz"))
        .env("HEAPPROF_MODE", "exact")
        .env("HEAPPROF_FOLLOW", "no")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let written = std::fs::read_dir(folder.path()).unwrap();
    let written: Vec<_> = written.map(|e| e.unwrap().file_name()).collect();
    assert_eq!(written, ["sh.pb.gz"]);
}

/// If heapprof_start is called without an output, it uses the output of the environment.
#[test]
fn start_without_an_output_takes_the_variables() {
    let folder = tempfile::tempdir().unwrap();
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
int main(void) {
    int (*start)(const char *, unsigned long);
    *(void **)&start = dlsym(RTLD_DEFAULT, "heapprof_start");
    return start(NULL, 0);
}
"#;
    let built = build(source, "gcc -Wl,--no-as-needed -ldl");
    for start in ["yes", "no"] {
        let pattern = folder.path().join(format!("{start}.%e.pb.gz"));
        let output = preloaded(&built.program)
            .current_dir(folder.path())
            .env("HEAPPROF_OUTPUT", pattern)
            .env("HEAPPROF_START", start)
            .output()
            .unwrap();
        assert!(output.status.success());
        let written = folder.path().join(format!("{start}.program.pb.gz"));
        assert!(written.is_file(), "{start}");
    }
}

//! Promises of libheapprof.so about its code: how short the path of an allocation is that is not
//! sampled, and which functions the library calls, exports and needs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_tests::built::have;
use heapprof_tests::harness::{expect_file, ok, root};

/// Returns the library that users get: the copy inside the binary.
fn library() -> PathBuf {
    PathBuf::from(ok(&["preload-path"]).trim())
}

/// Returns the output of a binutils tool for the library, or `None` if the tool is missing.
fn said(tool: &str, options: &[&str]) -> Option<String> {
    if !cfg!(target_arch = "x86_64") || !have(&[tool]) {
        return None;
    }
    let output = Command::new(tool).args(options).arg(library()).output();
    let output = output.unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool}: {reported}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Returns the instructions of a function up to and including its first unconditional jump.
fn straight_way(function: &str) -> Option<Vec<String>> {
    let disassemble = format!("--disassemble={function}");
    let text = said("objdump", &["-d", "--no-show-raw-insn", &disassemble])?;
    let head = format!("<{function}>:");
    let lines = text.lines().skip_while(|line| !line.ends_with(&head));
    let mut way = Vec::new();
    for line in lines.skip(1) {
        let (_, instruction) = line.split_once('\t').expect("address, tab, instruction");
        let instruction = instruction.trim();
        way.push(instruction.to_string());
        if instruction.starts_with("jmp") {
            return Some(way);
        }
    }
    panic!("{function} has no tail jump: {text}");
}

fn is_short(function: &str, most: usize) {
    let Some(way) = straight_way(function) else {
        return;
    };
    let text = way.join("\n");
    assert!(way.len() <= most, "{} instructions\n{text}", way.len());
    assert!(!text.contains("call"), "calls\n{text}");
    // No stack memory is touched, so the real function returns directly to the program.
    assert!(!text.contains("push") && !text.contains("rsp"), "{text}");
    let last = way.last().unwrap();
    assert!(last.starts_with("jmp    *"), "not to the real one: {last}");
}

#[test]
fn malloc_that_is_not_sampled_takes_five_instructions() {
    is_short("malloc", 5);
}

#[test]
fn free_of_what_was_not_sampled_takes_seven_instructions() {
    is_short("free", 7);
}

/// In the copy of the library that musl loads into a running program, the slot of a thread is not
/// at a fixed distance from the thread pointer. So each instruction that reads the distance is
/// listed, except the one by which the library learns that it is such a copy.
#[test]
fn each_use_of_the_slots_distance_is_listed() {
    let (Some(relocations), Some(code), Some(sections)) = (
        said("readelf", &["-rW"]),
        said("objdump", &["-d", "--no-show-raw-insn"]),
        said("readelf", &["-SW"]),
    ) else {
        return;
    };
    let mut distances = relocations.lines().filter(|line| line.contains("TPOFF64"));
    let (Some(distance), None) = (distances.next(), distances.next()) else {
        panic!("one word has the distance: {relocations}");
    };
    let word = distance.split_whitespace().next().unwrap();
    let comment = format!("# {} ", word.trim_start_matches('0'));
    let uses = code.lines().filter(|line| line.contains(&comment)).count();
    let sites = sections
        .lines()
        .find(|line| line.contains("heapprof_slot_sites"));
    let sites = sites.unwrap_or_else(|| panic!("{sections}"));
    let columns = sites.split("PROGBITS").nth(1).unwrap();
    let len = columns.split_whitespace().nth(2).unwrap();
    let listed = usize::from_str_radix(len, 16).unwrap() / 8;
    assert!(uses > 100, "{uses}");
    assert_eq!(uses, listed + 1);
}

/// Returns the names of the dynamic symbols, without their versions.
fn symbols(which: &str) -> Option<BTreeSet<String>> {
    let text = said("nm", &["-D", which])?;
    let names = text.lines().filter_map(|l| l.split_whitespace().last());
    let names = names.map(|name| name.split('@').next().unwrap().to_string());
    Some(names.collect())
}

/// Returns the imported names that may be missing.
fn weak_imports() -> BTreeSet<String> {
    let text = said("nm", &["-D", "--undefined-only"]).unwrap_or_default();
    let weak = text.lines().filter_map(|line| {
        let (kind, name) = line.trim().split_once(' ')?;
        matches!(kind, "w" | "v").then(|| name.split('@').next().map(String::from))?
    });
    weak.collect()
}

#[test]
fn nothing_is_called_that_allocates_or_locks_behind_our_back() {
    let Some(called) = symbols("--undefined-only") else {
        return;
    };
    assert!(called.contains("__libc_malloc"), "{called:?}");
    let never = [
        "__tls_get_addr",
        "pthread_mutex_lock",
        "malloc",
        "calloc",
        "realloc",
        "free",
    ];
    for name in never {
        assert!(!called.contains(name), "{name}");
    }
    assert!(!called.iter().any(|name| name.starts_with("_Unwind")));
}

/// The list of imported functions says when each may be called. Each function is bound to libc's
/// own (`imports.rs`), and a program that exports all of them proves it (`linkage_imports.c`).
#[test]
fn what_is_imported_is_on_the_list_and_in_the_program_that_exports_it() {
    let Some(imported) = symbols("--undefined-only") else {
        return;
    };
    let text = std::fs::read_to_string(root().join("tests/imports.txt")).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let listed: Vec<(&str, &str)> = lines
        .clone()
        .map(|line| line.split_once(' ').expect("NAME WHEN"))
        .map(|(name, rest)| (name, rest.split_whitespace().next().expect("WHEN")))
        .collect();
    let names: BTreeSet<String> = listed.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names.len(), listed.len(), "one is listed twice");
    let new: Vec<_> = imported.difference(&names).collect();
    let gone: Vec<_> = names.difference(&imported).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "tests/imports.txt: {new:?} not there, {gone:?} not needed"
    );
    let is_weak = |line: &&str| line.ends_with(" weak");
    let weak: BTreeSet<String> = lines
        .filter(is_weak)
        .filter_map(|line| line.split_once(' '))
        .map(|(name, _)| name.to_string())
        .collect();
    assert_eq!(weak_imports(), weak, "what may be missing");
    let program = std::fs::read_to_string(root().join("tests/programs/linkage_imports.c")).unwrap();
    for (name, when) in listed {
        let is_exported = program.contains(&format!("X({name})"));
        match when {
            "event" | "dump" | "fork" | "end" | "start" | "hook" | "set-up" => {
                assert!(is_exported, "{name}: the program does not export it");
            }
            "variable" | "address" | "nobody" => assert!(!is_exported, "{name}: is no function"),
            _ => panic!("{name}: what is {when}?"),
        }
    }
}

#[test]
fn what_is_exported_is_on_the_list() {
    let Some(exported) = symbols("--defined-only") else {
        return;
    };
    let list: String = exported.iter().map(|name| format!("{name}\n")).collect();
    expect_file(&root().join("tests/exports.txt"), &list);
}

/// The library exports every function that the header declares.
#[test]
fn the_headers_functions_are_exported() {
    let Some(exported) = symbols("--defined-only") else {
        return;
    };
    let header = std::fs::read_to_string(root().join("include/heapprof.h")).unwrap();
    let declared = regex::Regex::new(r"(?m)^\w[\w ]*[ *](\w+)\(.*\);$").unwrap();
    let declared: Vec<String> = declared
        .captures_iter(&header)
        .map(|c| c[1].to_string())
        .collect();
    assert_eq!(declared.len(), 18, "{declared:?}");
    for name in declared {
        assert!(exported.contains(&name), "{name}");
    }
}

#[test]
fn the_library_needs_libc_alone_and_no_text_relocations() {
    let Some(text) = said("objdump", &["-p"]) else {
        return;
    };
    let needed = text.lines().filter_map(|l| l.trim().strip_prefix("NEEDED"));
    for library in needed.map(str::trim) {
        assert!(
            ["libc.so.6", "ld-linux-x86-64.so.2"].contains(&library),
            "{library}"
        );
    }
    assert!(!text.contains("TEXTREL"), "{text}");
}

/// The oldest glibc on which the library loads is the documented one, or older.
#[test]
fn the_oldest_glibc_is_the_documented_one() {
    let Some(text) = said("objdump", &["-p"]) else {
        return;
    };
    let versions = text
        .lines()
        .filter_map(|l| l.trim().rsplit_once(" GLIBC_2."));
    let newest = versions.map(|(_, n)| n.split('.').next().unwrap().parse::<u32>().unwrap());
    let newest = newest.max().unwrap();
    let page = std::fs::read_to_string(root().join("docs/platforms.md")).unwrap();
    let stated = regex::Regex::new(r"needs\s+glibc\s+2\.(\d+)\s+or\s+later").unwrap();
    let stated: u32 = stated.captures(&page).expect("the page says it")[1]
        .parse()
        .unwrap();
    assert!(newest <= stated, "it needs 2.{newest}");
}

/// The header compiles on its own, as C and as C++.
#[test]
fn the_header_compiles() {
    let header = ok(&["preload-path", "--header"]);
    let header = Path::new(header.trim());
    let name = header.file_name().unwrap().to_string_lossy();
    assert_eq!(name, "heapprof.h");
    for (compiler, language) in [("gcc", "c"), ("g++", "c++")] {
        if have(&[compiler]) {
            let options = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"];
            let mut command = Command::new(compiler);
            let output = command.args(options).args(["-x", language]).arg(header);
            let output = output.output().unwrap();
            let reported = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{compiler}: {reported}");
        }
    }
}

/// Exit handlers and threads refer to the library, so dlclose must not unmap it.
#[test]
fn who_opens_the_library_and_closes_it_does_not_unmap_it() {
    let Some(text) = said("readelf", &["-d"]) else {
        return;
    };
    let flags = text.lines().find(|line| line.contains("(FLAGS_1)"));
    assert!(
        flags.is_some_and(|flags| flags.contains("NODELETE")),
        "{text}"
    );
}

//! The functions of include/heapprof.h, called by programs that link the library or look the functions up.

use std::path::Path;
use std::process::Command;

use heapprof_profile::{Profile, decode};

use crate::built::example;
use crate::harness::{ok, root};

/// The value of `sample_type`, over all samples.
fn total(profile: &Profile, sample_type: &str) -> i64 {
    let column = profile.find_sample_type(sample_type).unwrap();
    let samples = &profile.samples;
    (0..samples.len()).map(|i| samples.values(i)[column]).sum()
}

/// The profile that a file holds; `comment` must be in it.
fn read(path: &Path, comment: &str) -> Profile {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let profile = decode(file).unwrap();
    let mut comments = profile.comment.iter().map(|&c| profile.text(c));
    assert!(comments.any(|c| c == comment), "{comment}");
    profile
}

/// Runs a program of the examples in its folder; what it printed.
fn run(folder: &Path, name: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(folder.join(name));
    for variable in ["HEAPPROF_OUTPUT", "HEAPPROFILE", "LD_PRELOAD"] {
        command.env_remove(variable);
    }
    let output = command
        .current_dir(folder)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {err}");
    assert_eq!(err, "", "{name}");
    String::from_utf8(output.stdout).unwrap()
}

/// The library and its header beside each other, as -I and -L want them; the options to link with it.
fn linked(folder: &Path) -> String {
    for option in [&["preload-path"][..], &["preload-path", "--header"]] {
        let path = ok(option);
        let path = Path::new(path.trim());
        std::fs::copy(path, folder.join(path.file_name().unwrap())).unwrap();
    }
    "-I. -L. -lheapprof -Wl,-rpath,$ORIGIN".to_string()
}

#[test]
fn the_page_shows_the_programs_and_the_header() {
    let page = std::fs::read_to_string(root().join("docs/c-api.md")).unwrap();
    for name in ["ask", "report"] {
        let source = root().join(format!("docs/examples/{name}.c"));
        let source = std::fs::read_to_string(source).unwrap();
        assert!(page.contains(&format!("```c\n{source}```\n")), "{name}.c");
    }
    let header = std::fs::read_to_string(root().join("include/heapprof.h")).unwrap();
    let declared = regex::Regex::new(r"(?m)^(\w[\w ]*[ *]\w+\(.*\));$").unwrap();
    for found in declared.captures_iter(&header) {
        assert!(page.contains(&format!("`{}`", &found[1])), "{}", &found[1]);
    }
}

#[test]
fn a_program_looks_the_functions_up() {
    let folder = tempfile::tempdir().unwrap();
    if !example(folder.path(), "ask", "-ldl") {
        return;
    }
    let alone = run(folder.path(), "ask", &[]);
    assert_eq!(alone, "not recorded: libheapprof.so is not loaded\n");
    let library = ok(&["preload-path"]);
    let out = run(folder.path(), "ask", &[("LD_PRELOAD", library.trim())]);
    assert_eq!(out, "half.pb.gz: written\n");
    let half = read(&folder.path().join("half.pb.gz"), "dump: request");
    // The block of 1,000 came before the start, that of 2,000 after it.
    for (sample_type, expected) in [
        ("alloc_objects", 1),
        ("alloc_space", 2000),
        ("inuse_objects", 1),
        ("inuse_space", 2000),
    ] {
        assert_eq!(total(&half, sample_type), expected, "{sample_type}");
    }
    let end = read(&folder.path().join("ask.pb.gz"), "dump: exit");
    assert_eq!(end.period, 1);
    // stdout's buffer besides.
    assert!(total(&end, "alloc_space") > 2000);
    assert!(total(&end, "peak_space") >= 2000);
}

#[test]
fn a_program_links_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let options = linked(folder.path());
    if !example(folder.path(), "report", &options) {
        return;
    }
    let out = run(folder.path(), "report", &[]);
    let mut lines = out.lines();
    // As gperftools' readers want it: in use, then allocated, in objects and bytes.
    assert_eq!(
        lines.next().unwrap(),
        "heap profile:      3:     3000 [     4:     4000] @ heapprofile"
    );
    let stacks: Vec<&str> = lines.by_ref().take_while(|l| !l.is_empty()).collect();
    assert!(!stacks.is_empty());
    for stack in stacks {
        assert!(stack.contains("] @ 0x"), "{stack}");
    }
    assert_eq!(lines.next().unwrap(), "MAPPED_LIBRARIES:");
    assert!(lines.any(|l| l.ends_with("/report")), "{out}");
    let dumped = folder.path().join("report.hprof.0001.heap");
    let dumped = std::fs::read_to_string(dumped).unwrap();
    assert!(
        dumped.starts_with("heap profile:      3:     3000 [     4:     4000] @ heapprofile\n"),
        "{dumped}"
    );
    // It was stopped before the end, so there is no last one.
    assert!(!folder.path().join("report.hprof.0002.heap").exists());
    let pprof = read(&folder.path().join("report.pb.gz"), "mode: exact");
    assert_eq!(total(&pprof, "inuse_space"), 3000);
    assert_eq!(total(&pprof, "alloc_objects"), 4);
    assert_eq!(total(&pprof, "temporary_objects"), 1);
}

//! Python programs that could fail under a profiler: they must print the same and end the same,
//! however they are recorded.

use std::path::Path;
use std::process::{Command, Stdio};

use heapprof_tests::built::have;
use heapprof_tests::harness::{command, root};

use crate::python::pythons;

/// The programs of tests/python/hazards, and the exit code of each. The folder's README describes
/// them.
const PROGRAMS: [(&str, i32); 16] = [
    ("recursion.py", 3),
    ("signals.py", 4),
    ("finalizers.py", 5),
    ("leave.py", 6),
    ("threads.py", 7),
    ("processes.py", 8),
    ("execs.py", 9),
    ("interpreters.py", 12),
    ("unfinished.py", 13),
    ("tracing.py", 14),
    ("tracemallocs.py", 15),
    ("collector.py", 16),
    ("dropped.py", 17),
    ("memory_error.py", 18),
    ("faults.py", 19),
    ("native.py", 20),
];

const RECORDINGS: [&[&str]; 3] = [
    &["--period", "4KiB"],
    &["--exact"],
    &["--exact", "--python-objects=yes", "--frames=both"],
];

/// Returns the stdout of a command, and its exit code.
fn end_of(command: &mut Command) -> (String, i32) {
    let done = command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    (out, done.status.code().unwrap_or(-1))
}

/// Returns a command that records another one.
fn recording(folder: &Path, options: &[&str], program: &Path) -> Command {
    let mut recorded = command(folder);
    recorded
        .args(["record", "--quiet", "--no-symbolize", "-o", "p.pb.gz"])
        .args(options)
        .arg("--")
        .arg(program);
    recorded
}

fn compare(python: &Path, program: &str, code: i32, setup: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let script = root().join("tests/python/hazards").join(program);
    let mut arguments = vec!["-W", "ignore", script.to_str().unwrap()];
    let mut bare = Command::new(python);
    let bare = bare.args(&arguments).envs(setup.iter().copied());
    let expected = end_of(bare.current_dir(folder.path()));
    assert_eq!(expected.1, code, "{python:?} {program}: {}", expected.0);
    for options in RECORDINGS {
        let is_all = options.len() > 2;
        // In this case each allocation walks 4,096 frames. A debug build would take minutes for a
        // hundred thousand.
        let shallow = program == "recursion.py" && is_all;
        let expected = if shallow {
            arguments.push("10000");
            let mut bare = Command::new(python);
            end_of(bare.args(&arguments).envs(setup.iter().copied()))
        } else {
            expected.clone()
        };
        let mut recorded = recording(folder.path(), options, python);
        recorded.args(&arguments).envs(setup.iter().copied());
        let found = end_of(&mut recorded);
        assert_eq!(
            found, expected,
            "{python:?} {program} {options:?} {setup:?}"
        );
    }
}

#[test]
fn hazards_end_as_without_a_recording() {
    if !have(&["python3"]) {
        return;
    }
    for python in pythons() {
        for (program, code) in PROGRAMS {
            compare(&python, program, code, &[]);
        }
    }
}

#[test]
#[ignore = "takes minutes for each python; HEAPPROF_PYTHONS names more of them"]
fn hazards_end_the_same_in_each_setup() {
    let setups = [
        ("PYTHONMALLOC", "debug"),
        ("PYTHONMALLOC", "malloc"),
        ("PYTHONDEVMODE", "1"),
    ];
    for python in pythons() {
        for setup in setups {
            for (program, code) in PROGRAMS {
                compare(&python, program, code, &[setup]);
            }
        }
    }
}

/// C programs with an embedded Python: one that is linked with it, and one that loads and unloads
/// it.
#[test]
fn embedded_pythons_end_as_without_a_recording() {
    if !have(&["python3", "python3-config", "gcc"]) {
        return;
    }
    let asked = |arguments: &[&str]| {
        let done = Command::new(arguments[0]).args(&arguments[1..]).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{arguments:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_string()
    };
    let paths = "import sys, sysconfig as s; print(sys.prefix); print(s.get_config_var('LIBDIR') + \
                 '/' + s.get_config_var('INSTSONAME'))";
    let reported = asked(&["python3", "-c", paths]);
    let (home, library) = reported.split_once('\n').unwrap();
    let includes = asked(&["python3-config", "--includes"]);
    let links = asked(&["python3-config", "--embed", "--ldflags"]);
    let folder = tempfile::tempdir().unwrap();
    let sources = root().join("tests/python/hazards");
    let words =
        |text: &'_ str| -> Vec<String> { text.split_whitespace().map(str::to_string).collect() };
    let build = |name: &str, options: Vec<String>| {
        let program = folder.path().join(name);
        let mut gcc = Command::new("gcc");
        gcc.arg("-o").arg(&program);
        gcc.arg(sources.join(format!("{name}.c"))).args(options);
        let done = gcc.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{said}");
        program
    };
    let embed = [words(&includes), words(&links), words("-lpthread")].concat();
    let programs = [
        (build("embed", embed), 21, vec![]),
        (build("dlopen", words("-ldl")), 22, vec![library]),
    ];
    let folder_of = Path::new(library).parent().unwrap();
    for (program, code, arguments) in &programs {
        let mut bare = Command::new(program);
        bare.args(arguments)
            .env("PYTHONHOME", home)
            .env("LD_LIBRARY_PATH", folder_of);
        let expected = end_of(&mut bare);
        assert_eq!(expected.1, *code, "{program:?}: {}", expected.0);
        for options in RECORDINGS {
            let mut recorded = recording(folder.path(), options, program);
            recorded
                .args(arguments)
                .env("PYTHONHOME", home)
                .env("LD_LIBRARY_PATH", folder_of);
            assert_eq!(end_of(&mut recorded), expected, "{program:?} {options:?}");
        }
    }
}

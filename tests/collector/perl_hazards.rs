//! Perl programs that could break a stack profiler: under heapprof they behave as without it.

use std::path::Path;
use std::process::Command;

use heapprof_tests::built::have;
use heapprof_tests::harness::command;
use heapprof_tests::needs::perl_options;

use crate::scripts::{Sample, comments, has_threads, program, read, samples};

/// A program that checks whether it is recorded notices nothing.
#[test]
fn hostile_perls_behave_as_bare() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = program("hostile.pl");
    let smaller = [("DEEP", "20000"), ("EVALS", "20000")];
    let ways = [
        &["--exact"][..],
        &["--period=4096"],
        &["--exact", "--frames=both"],
    ];
    behaves_as_bare_with(folder.path(), &["perl", &script], &ways, &smaller);
}

/// Checks that a program behaves as without heapprof in each kind of recording, and that heapprof
/// goes on reading its stacks. Returns the samples of the first recording.
fn behaves_as_bare(folder: &Path, words: &[&str]) -> Vec<Sample> {
    let ways = [
        &["--exact"][..],
        &["--period=2048"],
        &["--exact", "--frames=both"],
    ];
    behaves_as_bare_with(folder, words, &ways, &[])
}

fn behaves_as_bare_with(
    folder: &Path,
    words: &[&str],
    ways: &[&[&str]],
    environment: &[(&str, &str)],
) -> Vec<Sample> {
    let bare = Command::new(words[0])
        .args(&words[1..])
        .envs(environment.iter().copied())
        .current_dir(folder)
        .output()
        .unwrap();
    let mut first = None;
    for &options in ways {
        let args = [&["record", "-o", "p.pb.gz"], options, &["--"], words].concat();
        let mut recorded = command(folder);
        recorded.args(args).envs(environment.iter().copied());
        let done = recorded.output().unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr),
        );
        assert_eq!(done.status.code(), bare.status.code(), "{options:?}: {err}");
        assert_eq!(
            out,
            String::from_utf8_lossy(&bare.stdout),
            "{options:?}: {err}"
        );
        assert!(!err.contains("native frames only"), "{options:?}: {err}");
        first.get_or_insert_with(|| samples(&read(&folder.join("p.pb.gz"))));
    }
    first.unwrap()
}

/// Returns the bytes allocated by stacks with this innermost function.
fn allocated_in(samples: &[Sample], function: &str) -> i64 {
    let of = samples
        .iter()
        .filter(|s| s.frames.first().is_some_and(|f| f.0 == function));
    of.map(|s| s.allocated[1]).sum()
}

/// Joining a thread destroys its interpreter in the joining thread. Shared data belongs to an
/// interpreter that runs no code.
#[test]
fn threads_that_are_joined_leave_stacks_right() {
    if !has_threads() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = program("joins.pl");
    let samples = behaves_as_bare(folder.path(), &["perl", &script]);
    for sample in &samples {
        let names: Vec<&str> = sample.frames.iter().map(|f| f.0.as_str()).collect();
        if names.first() == Some(&"main::inner") {
            let subs = ["main::inner", "main::outer", "main::nested", "(main)"];
            assert_eq!(names, subs, "{:?}", sample.labels);
        }
    }
    // Shared texts are charged to the line that set them.
    let texts = allocated_in(&samples, "main::inner");
    assert!(texts > 40 * (10_000 + 5_000), "{texts}");
}

/// A stack may refer to freed code, and Perl may be between two frames.
#[test]
fn code_that_is_freed_is_not_read() {
    if !has_threads() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let required = folder.path().join("required.pl");
    std::fs::write(&required, "my @list = map { \"r$_\" } 1 .. 20;\n1;\n").unwrap();
    let script = program("freed.pl");
    let required = required.display().to_string();
    for options in [&["--exact"][..], &["--period=64"]] {
        let words = ["perl", &script, &required];
        let samples = behaves_as_bare_with(folder.path(), &words, &[options], &[]);
        let mut frames = samples.iter().flat_map(|s| &s.frames);
        let strange = frames.find(|f| !(0..100_000).contains(&f.2));
        assert_eq!(strange, None);
        assert!(allocated_in(&samples, "main::work") > 0);
    }
}

/// Returns the options to compile and link a program with an embedded perl; `None` if that is
/// impossible.
pub(crate) fn embed_options() -> Option<String> {
    perl_options(true)
}

/// Whether modules can be compiled for the perl in PATH.
pub(crate) fn has_headers() -> bool {
    perl_options(false).is_some()
}

/// Compiles a program of `tests/perl`.
pub(crate) fn compile(folder: &Path, before: &str, source: &str, after: &str) {
    let line = format!("{before} {} {after}", program(source));
    let built = Command::new("gcc")
        .args(line.split_whitespace())
        .current_dir(folder)
        .status()
        .unwrap();
    assert!(built.success(), "{line}");
}

/// Interpreters are created and destroyed in one program, linked and loaded.
#[test]
fn embedded_perls_may_go() {
    let folder = tempfile::tempdir().unwrap();
    let Some(options) = embed_options() else {
        return;
    };
    let compile = |before: &str, source: &str, after: &str| {
        compile(folder.path(), before, source, after);
    };
    compile("-w -O1 -o embedded", "embedded.c", &options);
    compile(
        "-w -O1 -shared -fPIC -DPLUGIN -o libembedded.so",
        "embedded.c",
        &options,
    );
    compile("-w -O1 -o loads", "loads.c", "-ldl");
    let script = program("called.pl");
    for (words, rounds) in [(["./embedded", &script], 3), (["./loads", &script], 6)] {
        let samples = behaves_as_bare(folder.path(), &words);
        assert_eq!(
            allocated_in(&samples, "main::called"),
            rounds * 50_002,
            "{words:?}"
        );
        assert_eq!(
            allocated_in(&samples, "main::helper"),
            rounds * 90_002,
            "{words:?}"
        );
        // The program's own allocations are not charged to Perl.
        let own = samples
            .iter()
            .filter(|s| s.frames.first().is_some_and(|f| f.0 == "in_c"));
        let own: Vec<_> = own.map(|s| s.allocated).collect();
        assert!(
            own.iter().map(|o| o[1]).sum::<i64>() >= 77_777 * 4 * rounds / 3,
            "{own:?}"
        );
        // Every interpreter's compile frames have lines, not only those of the first one.
        let mut frames = samples.iter().flat_map(|s| &s.frames);
        let lineless = frames.find(|f| f.0 == "(compile)" && f.1.is_empty());
        assert_eq!(lineless, None, "{words:?}");
        let wrong = samples.iter().find(|s| {
            s.frames.iter().any(|f| f.0 == "in_c")
                && s.frames.iter().any(|f| f.0.starts_with("main::"))
        });
        assert!(wrong.is_none(), "{:?}", wrong.unwrap().frames);
        // A perl that is loaded again has the provider of the one before.
        let profile = read(&folder.path().join("p.pb.gz"));
        let comments = comments(&profile);
        let providers = comments.iter().filter(|text| text.ends_with("of perl"));
        assert_eq!(providers.count(), 1, "{words:?}: {comments:?}");
    }
}

/// An interpreter's stack is read by the thread that runs it, and by no other thread that has the
/// interpreter as its own.
#[test]
fn interpreters_are_read_by_who_runs_them() {
    if !has_threads() {
        return;
    }
    let Some(options) = embed_options() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    compile(
        folder.path(),
        "-w -O1 -pthread -o handed",
        "handed.c",
        &options,
    );
    let samples = behaves_as_bare(folder.path(), &["./handed", &program("handed.pl")]);
    let has = |sample: &Sample, names: &[&str]| {
        let mut found = sample.frames.iter().map(|f| f.0.as_str());
        names.iter().all(|name| found.any(|found| found == *name))
    };
    let of = |names: &[&str]| -> i64 {
        let of = samples.iter().filter(|sample| has(sample, names));
        of.map(|sample| sample.allocated[0]).sum()
    };
    // Both interpreters that were handed to another thread are read in the thread that runs them.
    let fresh = of(&["main::fresh", "main::work"]);
    assert!((2 * 200..2 * 220).contains(&fresh), "{fresh}");
    assert!(of(&["in_c"]) > 0);
    assert_eq!(of(&["in_c", "main::work"]), 0);
}

/// The frames of a waiting interpreter are not those of the running code.
#[test]
fn what_the_host_does_is_its_own() {
    let Some(options) = embed_options() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "-w -O1 -o hosts", "hosts.c", &options);
    let samples = behaves_as_bare(folder.path(), &["./hosts"]);
    let objects = |is: &dyn Fn(&Sample) -> bool| -> i64 {
        let of = samples.iter().filter(|sample| is(sample));
        of.map(|sample| sample.allocated[0]).sum()
    };
    for sub in ["main::one", "main::two"] {
        let made = objects(&|sample| {
            let names: Vec<&str> = sample.frames.iter().map(|f| f.0.as_str()).collect();
            names.len() >= 2 && names[..2] == [sub, "main::keep"]
        });
        // These are the arrays, and the array that refers to them.
        assert!((200..240).contains(&made), "{sub}: {made}");
    }
    let own = objects(&|sample| sample.frames[0].0 == "in_c");
    assert_eq!(own, 300);
}

/// Free lists that the program damaged do not crash heapprof.
#[test]
fn damaged_free_lists_are_survived() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    behaves_as_bare(folder.path(), &["perl", &program("damaged.pl")]);
}

#[test]
fn too_many_interpreters_are_said() {
    let Some(options) = embed_options() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "-w -O1 -o many", "many.c", &options);
    behaves_as_bare(folder.path(), &["./many"]);
    let info = command(folder.path())
        .args(["info", "p.pb.gz"])
        .output()
        .unwrap();
    let info = String::from_utf8_lossy(&info.stdout);
    let wanted = "perl: more than 64 interpreters at once: the others have only native frames";
    assert!(info.contains(wanted), "{info}");
}

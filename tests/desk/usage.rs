//! Messages about command lines that heapprof can't parse, and odd command lines that it does
//! accept.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use heapprof_tests::harness::{Run, command, commands, ok, run, sample_profiles};

#[test]
fn an_empty_variable_names_no_database() {
    let mut top = command(&sample_profiles());
    top.args(["top", "valid/go.leaky.after.pb.gz"]);
    let output = top.env("HEAPPROF_DB", "").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Users who give options of other tools are told heapprof's names for them.
#[test]
fn habits_are_told_what_they_are_called_here() {
    for (args, expected) in [
        (
            &["top", "--cum"][..],
            "unexpected argument '--cum' found; here that is --sort cum",
        ),
        (
            &["top", "-sample_index=alloc_space"],
            "invalid value 'ample_index=alloc_space' for '--sort <ORDER>': \
             \"ample_index=alloc_space\" is not one of flat, cum; pprof's own flags are for \
             heapprof pprof; --help says more",
        ),
        (
            &["top", "-n", "-1"],
            "unexpected argument '-1' found; --help says more",
        ),
        (
            &["top", "--granularit", "lines"],
            "unexpected argument '--granularit' found; tip: a similar argument exists: \
             '--granularity'; --help says more",
        ),
        (
            &["record", "--pid", "1"],
            "unexpected argument '--pid' found; here that is heapprof attach, with the process",
        ),
        // The advice must name neither a word after the wrong option, nor an option that the
        // command does not have.
        (
            &["record", "--perio", "5", "--", "find", ".", "-name", "x"],
            "unexpected argument '--perio' found; tip: a similar argument exists: '--period'; \
             --help says more",
        ),
        (
            &["tpo", "a"],
            "unrecognized subcommand 'tpo'; perhaps heapprof top; --help says more",
        ),
        (
            &["summary", "a"],
            "unrecognized subcommand 'summary'; here that is heapprof info stats; --help says more",
        ),
        (
            &["flame", "--diff-base", "a"],
            "unexpected argument '--diff-base' found; here that is --base",
        ),
        (
            &[
                "sql",
                "-p",
                "valid/go.leaky.after.pb.gz",
                "--",
                "-- nothing",
            ],
            "the statement: is empty; write a SELECT",
        ),
    ] {
        let found = run(&sample_profiles(), args);
        assert_eq!(
            (found.code, found.err),
            (2, format!("heapprof: {expected}\n"))
        );
    }
}

/// A word that is not UTF-8 in a wrong command line must not cause a panic.
#[test]
fn usage_errors_survive_what_is_no_text() {
    let mut top = command(&sample_profiles());
    top.arg("top").arg(OsStr::from_bytes(b"\xff")).arg("--cum");
    let found = Run::from(top.output().unwrap());
    let expected = "heapprof: unexpected argument '--cum' found; here that is --sort cum\n";
    assert_eq!((found.code, found.err.as_str()), (2, expected));
}

/// A file alone is a question about its functions, and old names of commands go on working.
#[test]
fn a_file_alone_and_old_names_are_understood() {
    let file = "valid/made.plain.pb";
    assert_eq!(ok(&[file, "-n", "2"]), ok(&["top", file, "-n", "2"]));
    for (old, new) in [
        (&["schema"][..], &["db", "schema"][..]),
        (&["man", "top"], &["setup", "man", "top"]),
        (&["completions", "fish"], &["setup", "completions", "fish"]),
        (&["preload-path"], &["setup", "preload-path"]),
    ] {
        assert_eq!(ok(old), ok(new), "{old:?}");
    }
    for (old, new) in [
        ("load", "db load"),
        ("ls", "db ls"),
        ("series", "db series"),
        ("prune", "db prune"),
        ("rm", "db rm"),
        ("export", "db export"),
        ("import", "db import"),
        ("perl-install", "setup perl-install"),
        ("listen", "alive listen"),
        ("wiretap", "alive wiretap"),
    ] {
        let words: Vec<&str> = new.split(' ').collect();
        let of_new = ok(&[&words[..], &["-h"]].concat());
        let of_old = ok(&[old, "-h"]);
        assert_eq!(
            of_old.replace(&format!("heapprof {old} "), &format!("heapprof {new} ")),
            of_new
        );
    }
    for old in ["detach", "ps", "jeprof", "google-pprof"] {
        assert!(ok(&[old, "--help"]).contains("Usage: heapprof "), "{old}");
    }
    let options = ok(&["help", "options"]);
    assert!(options.contains("--max-inflated <SIZE>") && options.contains("A PROFILE is"));
}

/// Old names are understood behind options with values, and in `help`.
#[test]
fn old_names_stand_for_the_present_words() {
    let folder = tempfile::tempdir().unwrap();
    for (line, code) in [
        ("--db db ls", 2),
        ("--db ls ls", 2),
        ("--color never schema", 0),
        ("--color=never schema", 0),
        ("db stats", 2),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let found = run(folder.path(), &words);
        let is_unknown = found.err.contains("unrecognized");
        assert_eq!(
            (found.code, is_unknown),
            (code, line == "db stats"),
            "{line}: {}",
            found.err
        );
    }
    for (old, new) in [
        ("ps", "proc"),
        ("detach", "attach"),
        ("stats", "info stats"),
        ("heapwalk", "heap blocks"),
    ] {
        let of_old = ok(&["help", old]);
        assert!(
            of_old.contains(&format!("Usage: heapprof {new} ")),
            "{old}: {of_old}"
        );
    }
}

/// The short help of a command has its own options, without the two dozen options of all commands.
#[test]
fn help_begins_with_what_is_a_commands_own() {
    for name in commands().iter().filter(|name| !name.ends_with("prof")) {
        let words: Vec<&str> = name.split(' ').collect();
        let help = |option| ok(&[&words[..], &[option]].concat());
        let (short, long) = (help("-h"), help("--help"));
        for common in ["--max-inflated", "--db <FILE>", "--focus", "--show-sql"] {
            assert!(!short.contains(common), "{name} -h has {common}: {short}");
        }
        assert!(
            short.contains("(see more with '--help')"),
            "{name}: {short}"
        );
        assert!(short.lines().count() <= 50, "{name}: {short}");
        let at = |text: &str| {
            long.find(text)
                .unwrap_or_else(|| panic!("{name}: {text}: {long}"))
        };
        let everywhere = at("For every command:");
        for common in [
            "--color <WHEN>",
            "--db <FILE>",
            "--max-inflated",
            "--values",
            "--sum",
        ] {
            assert!(
                at(&format!("      {common}")) > everywhere,
                "{name}: {common}: {long}"
            );
        }
        if long.contains("Question:") {
            assert!(
                at("Options:") < at("Question:") && at("Output:") < everywhere,
                "{name}: {long}"
            );
        }
    }
    let top = ok(&["top", "-h"]);
    for own in [
        "--wide",
        "--width",
        "--limit",
        "--sort",
        "--sample-type",
        "--format",
    ] {
        assert!(top.contains(own), "{top}");
    }
}

//! `heapprof shell` on a pipe: its streams, its exit codes, and what its lines mean.

use std::path::Path;

use heapprof_tests::fixtures::in_use;
use heapprof_tests::harness::{Run, command};

/// Runs a shell whose standard input is a text.
fn shell(folder: &Path, args: &[&str], script: &[u8]) -> Run {
    let input = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(input.path(), script).unwrap();
    let mut shell = command(folder);
    shell.args(args).stdin(input.reopen().unwrap());
    Run::from(shell.output().unwrap())
}

/// Makes a folder with two profiles.
fn two_profiles() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    in_use(folder.path(), "a.pb.gz", &[("main;left", &[100])]);
    in_use(folder.path(), "b.pb.gz", &[("main;right", &[20])]);
    folder
}

/// Standard input has the commands, so it has no profile.
#[test]
fn a_dash_is_refused() {
    let folder = two_profiles();
    let path = folder.path();
    let refused = "heapprof: - (stdin) has the commands of this shell; give a file\n";
    for line in ["top -", "top -#1", "top /dev/stdin", "leaks --log -"] {
        let run = shell(path, &["shell", "a.pb.gz"], format!("{line}\n").as_bytes());
        assert_eq!(run.code, 2, "{line}: {}", run.err);
        assert!(run.err.contains(refused), "{line}: {}", run.err);
    }
    let profile = std::fs::read(path.join("a.pb.gz")).unwrap();
    let own = shell(path, &["shell", "-"], &profile);
    assert_eq!((own.code, own.err.as_str()), (2, refused));
}

/// Data and talk are apart, so the output of a script can be read by programs.
#[test]
fn prompts_are_no_data() {
    let folder = two_profiles();
    let run = shell(folder.path(), &["shell", "a.pb.gz"], b"top -f json\n");
    let top: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(top["net"], 100);
    assert_eq!(run.err, "(heapprof) (heapprof) ");
}

/// The exit code of a script is that of its last command, whatever number that is.
#[test]
fn exit_codes_are_those_of_the_commands() {
    let folder = two_profiles();
    for (script, code) in [
        ("top\n", 0),
        ("top\nleaks --fail-if 'inuse_space > 1'\n", 1),
        ("top --no-such-option\n", 2),
        ("nosuch\ntop\nquit\n", 0),
        ("record -o r.pb.gz -- sh -c 'exit 7'\n", 7),
        ("record -o r.pb.gz -- no-such-program\n", 127),
    ] {
        let run = shell(folder.path(), &["shell", "a.pb.gz"], script.as_bytes());
        assert_eq!(run.code, code, "{script}: {}", run.err);
    }
}

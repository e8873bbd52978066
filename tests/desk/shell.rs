//! `heapprof shell` on a pipe: its streams, its exit codes, and what its lines mean.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use heapprof_tests::fixtures::in_use;
use heapprof_tests::harness::{Run, command, run};

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
        (
            "top\ndiff b.pb.gz a.pb.gz --fail-if 'inuse_space > +10%'\n",
            1,
        ),
        ("top --no-such-option\n", 2),
        ("nosuch\ntop\nquit\n", 0),
        ("record -o r.pb.gz -- sh -c 'exit 7'\n", 7),
        ("record -o r.pb.gz -- no-such-program\n", 127),
    ] {
        let run = shell(folder.path(), &["shell", "a.pb.gz"], script.as_bytes());
        assert_eq!(run.code, code, "{script}: {}", run.err);
    }
}

/// Every command that names no profile is about the source, whatever the source is.
#[test]
fn commands_are_about_the_source() {
    let folder = two_profiles();
    let path = folder.path();
    run(path, &["db", "load", "--db", "a.db", "a.pb.gz"]);
    // It is the newest recording here.
    in_use(path, "heapprof.new.1.pb.gz", &[("main;new", &[7])]);
    let both = ["shell", "a.pb.gz", "b.pb.gz"];
    let names = "sql \"SELECT name FROM function WHERE name LIKE '%t'\"";
    for (args, line, code, says) in [
        (&both[..], "top", 0, "total 120B"),
        (&both, "why", 0, "a.pb.gz + b.pb.gz"),
        (&both, names, 0, "left"),
        (&both, names, 0, "right"),
        (&["shell", "a.db"], "top", 2, "a.db: no PROFILE is given"),
        (&["shell", "a.db"], "why", 2, "a.db: no PROFILE is given"),
        (&["shell", "a.db"], "top a", 0, "total 100B"),
        (&["shell", "a.db"], "sql 'SELECT 5 + 6'", 0, "11"),
        (&["shell", "a.pb.gz"], "why", 0, "a.pb.gz"),
        (&["shell", "a.pb.gz"], names, 0, "left"),
        (&["shell", "a.pb.gz"], "b.pb.gz", 0, "total 20B"),
        (&["shell", "a.pb.gz"], "help options", 0, "--max-inflated"),
        (&["shell"], "top", 0, "total 7B"),
    ] {
        let run = shell(path, args, format!("{line}\n").as_bytes());
        assert_eq!(run.code, code, "{args:?} {line}: {}", run.err);
        let said = format!("{}{}", run.out, run.err);
        assert!(said.contains(says), "{args:?} {line}: {said}");
    }
}

/// The options of the shell's own command line are defaults of its commands.
#[test]
fn options_of_the_shell_are_those_of_its_commands() {
    let folder = two_profiles();
    let path = folder.path();
    run(path, &["db", "load", "--db", "x.db", "a.pb.gz"]);
    run(path, &["db", "load", "--db", "y.db", "b.pb.gz"]);
    std::fs::write(path.join("c.folded"), "main;c 5\n").unwrap();
    let colour = "\u{1b}[";
    for (args, line, says) in [
        (&["--db", "x.db", "shell", "b.pb.gz"][..], "db ls", "a "),
        (&["shell", "--db", "x.db", "b.pb.gz"], "top a", "total 100B"),
        (&["--db", "x.db", "shell", "a"], "db ls --db y.db", "b "),
        (&["shell", "--color", "always", "a.pb.gz"], "top", colour),
        (
            &["shell", "--values", "inuse_space/bytes", "c.folded"],
            "top",
            "total 5B",
        ),
        (
            &["shell", "--max-inflated", "1k", "a.pb.gz"],
            "top big.folded",
            "1024 bytes",
        ),
        (
            &["shell", "a.pb.gz", "--from", "none"],
            "db load a.pb.gz",
            "--from has no effect",
        ),
        (
            &["shell", "x.db", "--db", "y.db"],
            "top a",
            "x.db: is a database; leave out --db y.db",
        ),
    ] {
        let big = "main;big 1\n".repeat(1000);
        std::fs::write(path.join("big.folded"), big).unwrap();
        let run = shell(path, args, format!("{line}\n").as_bytes());
        let said = format!("{}{}", run.out, run.err);
        assert!(said.contains(says), "{args:?} {line}: {said}");
    }
    let never = ["shell", "--color", "always", "a.pb.gz"];
    let run = shell(path, &never, b"top --color never\n");
    assert!(!run.out.contains(colour), "{}", run.out);
}

/// A command does not outlive its shell.
#[test]
fn a_command_ends_with_its_shell() {
    let folder = two_profiles();
    let mut shell = command(folder.path());
    shell.args(["shell", "a.pb.gz"]);
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    // Nobody writes into the pipe, so the command waits for it. It opens the pipe when it runs.
    let pipe = folder.path().join("pipe.folded");
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
    shell
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"top pipe.folded\n")
        .unwrap();
    let writer = std::fs::File::options().write(true).open(&pipe).unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    // The command has the streams of the shell open, so they end when it ends.
    let mut said = String::new();
    shell
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    drop(writer);
    assert_eq!(said, "(heapprof) ");
}

/// A command with another option for reading reads the source again.
#[test]
fn a_command_reads_the_source_as_it_says() {
    let folder = two_profiles();
    let path = folder.path();
    std::fs::write(path.join("c.folded"), "main;c 5\n".repeat(1000)).unwrap();
    let args = ["shell", "c.folded"];
    for (line, code, says) in [
        ("top --max-inflated 1k", 2, "1024 bytes"),
        ("top --values inuse_space/bytes", 0, "inuse_space"),
        ("top --max-inflated 4GiB", 0, "5000"),
    ] {
        let run = shell(path, &args, format!("{line}\n").as_bytes());
        let said = format!("{}{}", run.out, run.err);
        assert_eq!(run.code, code, "{line}: {said}");
        assert!(said.contains(says), "{line}: {said}");
        let direct = heapprof_tests::harness::run(path, &words(line, "c.folded"));
        assert_eq!(direct.out, run.out, "{line}");
    }
}

fn words<'a>(line: &'a str, file: &'a str) -> Vec<&'a str> {
    line.split(' ').chain([file]).collect()
}

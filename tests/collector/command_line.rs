//! The parts of a command line that profiles contain: only the script, unless the user asks for
//! more.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use flate2::read::MultiGzDecoder;
use heapprof_tests::harness::{Run, command, run};

/// A script that ends, is killed, or waits for a line. It ignores its other words.
const SCRIPT: &str =
    "x=$(echo y)\ncase $1 in\nkill) kill -9 $$;;\nwait) echo on; read line;;\nesac\n";
const PASSWORD: &[u8] = b"--password=hunter2\nand\xffmore";

/// Returns the words after `sh`.
fn words(how: &str) -> [&OsStr; 4] {
    let password = OsStr::from_bytes(PASSWORD);
    [
        OsStr::new("./work.sh"),
        OsStr::new(how),
        password,
        OsStr::new(""),
    ]
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("work.sh"), SCRIPT).unwrap();
    folder
}

fn recorded(folder: &Path, options: &[&str], how: &str) {
    let mut record = command(folder);
    record.args(["record", "--exact", "--no-symbolize", "-o", "p.pb.gz"]);
    record.args(options).args(["--", "sh"]).args(words(how));
    let done = Run::from(record.output().unwrap());
    let code = if how == "kill" { 137 } else { 0 };
    assert_eq!(done.code, code, "{}", done.err);
}

/// Whether a profile contains this text anywhere.
fn has(folder: &Path, text: &[u8]) -> bool {
    let mut bytes = Vec::new();
    let file = File::open(folder.join("p.pb.gz")).unwrap();
    MultiGzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes.windows(text.len()).any(|window| window == text)
}

/// Returns the comments of a kind, from JSON. The text form has them, too.
fn comments(folder: &Path, kind: &str) -> Vec<String> {
    let info = run(folder, &["info", "-f", "json", "p.pb.gz"]);
    let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
    let all = info["comments"].as_array().unwrap().iter();
    let all = all.filter_map(|comment| comment.as_str()?.strip_prefix(kind)?.strip_prefix(": "));
    let all: Vec<String> = all.map(String::from).collect();
    let shown = run(folder, &["info", "p.pb.gz"]).out;
    for comment in &all {
        assert!(shown.contains(&format!("{kind}: {comment}")), "{shown}");
    }
    all
}

/// A profile has the command line only if the user asks for it. This holds for a killed program,
/// too, about which the kernel reports nothing any more.
#[test]
fn a_command_line_is_told_only_if_somebody_asks() {
    let folder = folder();
    let folder = folder.path();
    for how in ["end", "kill"] {
        recorded(folder, &[], how);
        assert!(!has(folder, b"hunter2"), "{how}");
        assert_eq!(comments(folder, "script"), ["work.sh"], "{how}");
        assert_eq!(comments(folder, "command line"), [""; 0], "{how}");

        recorded(folder, &["--command-line"], how);
        let expected = format!(r"sh ./work.sh {how} $'--password=hunter2\nand\xffmore' ''");
        assert_eq!(comments(folder, "command line"), [expected], "{how}");
        assert_eq!(comments(folder, "script"), ["work.sh"], "{how}");
    }
}

#[test]
fn a_long_command_line_is_cut() {
    let folder = folder();
    let long = "x".repeat(100_000);
    let record = ["record", "--exact", "--command-line", "-o", "p.pb.gz"];
    let words = ["--", "sh", "./work.sh", "end", &long];
    let done = run(folder.path(), &[&record[..], &words].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    let [line] = &comments(folder.path(), "command line")[..] else {
        panic!("{}", done.err);
    };
    assert!(line.starts_with("sh ./work.sh end xxx"), "{line}");
    assert!(line.ends_with("xxx (cut after 16384 bytes)"), "{line}");
    assert!(line.len() < 16_500, "{}", line.len());
}

/// `attach` stores the command line only if the user asks for it, even if the program ends before
/// attach detaches.
#[test]
fn attach_tells_it_only_if_somebody_asks() {
    let folder = folder();
    let folder = folder.path();
    for (option, ends) in [(None, false), (Some("--command-line"), false), (None, true)]
        .into_iter()
        .chain([(Some("--command-line"), true)])
    {
        let mut program = std::process::Command::new("sh");
        program.args(words("wait")).current_dir(folder);
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.spawn().unwrap();
        let mut output = BufReader::new(program.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let mut attach = command(folder);
        attach.args(["attach", &program.id().to_string(), "-o", "p.pb.gz"]);
        attach.args(option);
        if !ends {
            attach.args(["--for", "100ms"]);
        }
        let mut attach = attach.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(attach.stderr.take().unwrap());
        let mut text = String::new();
        said.read_line(&mut text).unwrap();
        if ends {
            assert!(text.contains("recording"), "{text}");
            drop(program.stdin.take());
            program.wait().unwrap();
        }
        said.read_to_string(&mut text).unwrap();
        assert!(attach.wait().unwrap().success(), "{text}");
        drop(program.stdin.take());
        program.wait().unwrap();
        let what = format!("{option:?} {ends} {text}");
        assert_eq!(comments(folder, "script"), ["work.sh"], "{what}");
        assert_eq!(has(folder, b"hunter2"), option.is_some(), "{what}");
        let found = comments(folder, "command line");
        assert_eq!(found.len(), usize::from(option.is_some()), "{what}");
        for line in found {
            let expected = r"sh ./work.sh wait $'--password=hunter2\nand\xffmore' ''";
            assert_eq!(line, expected, "{what}");
        }
    }
}

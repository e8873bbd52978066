//! `heapprof pprof` prints what the real pprof prints: golden cases of each report, and the command
//! line.
//!
//! The real pprof wrote the expected files.
//! `HEAPPROF_BLESS=1 HEAPPROF_PPROF=/path/to/pprof cargo test -p heapprof-tests pprof` writes them,
//! and the fixtures, anew. Each file is the output of this command in sample-profiles/pprof:
//! `TZ=UTC pprof -symbolize=none -trim=true -compact_labels -nodecount=20 -nodefraction=0.05
//! -edgefraction=0.01 -divide_by=1 -unit=minimum FLAGS FIXTURE.pb.gz`. More profiles and flags are
//! compared in `oracle.rs`.

mod fixtures;
mod remote;
mod viewers;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use heapprof_profile::encode;

use heapprof_tests::built::have;
use heapprof_tests::harness::{bless, command, heapprof, ok, root, run, sample_profiles};

const COMMON: [&str; 8] = [
    "-symbolize=none",
    "-trim=true",
    "-compact_labels",
    "-nodecount=20",
    "-nodefraction=0.05",
    "-edgefraction=0.01",
    "-divide_by=1",
    "-unit=minimum",
];

/// The 48 cases of pprof's own suite that can be given on a command line, as a fixture and flags.
const CASES: [(&str, &str); 48] = [
    ("cpu", "-text -functions -flat"),
    ("cpu", "-text -functions -noinlines -flat"),
    ("cpu", "-text -filefunctions -noinlines -flat"),
    ("cpu", "-text -addresses -noinlines -flat"),
    ("cpu-small", "-tree -addresses -flat -nodecount=4"),
    ("unknown", "-text -functions -flat -nodecount=5 -call_tree"),
    ("heap-alloc", "-text -alloc_objects -flat"),
    ("heap", "-text -files -flat"),
    ("heap", "-text -files -flat -focus=[12]00 -taghide=[X3]00"),
    ("heap", "-text -inuse_objects -flat"),
    ("heap", "-text -inuse_objects -flat -all_frames"),
    ("cpu", "-text -lines -cum -hide=step[X3]0"),
    ("cpu", "-text -lines -cum -show=[12]00"),
    ("cpu", "-text -lines -cum -hide=step[X3]0 -focus=[12]00"),
    ("cpu-mangled", "-topproto -lines -cum -hide=mangled[X3]0"),
    ("cpu-mangled", "-topproto -lines"),
    ("heap", "-tree -lines -cum -focus=[24]00"),
    ("heap", "-tree -relative_percentages -cum -focus=[24]00"),
    ("cpu", "-tree -lines -cum -show_from=step2"),
    ("cpu", "-callgrind"),
    ("cpu", "-callgrind -call_tree"),
    ("heap", "-callgrind"),
    ("cpu", "-dot -functions -flat"),
    ("cpu", "-dot -functions -flat -call_tree"),
    ("heap", "-dot -lines -flat -focus=[12]00"),
    ("heap-sizetags", "-dot -unit=minimum"),
    (
        "contention",
        "-dot -addresses -flat -ignore=[X3]002 -focus=[X1]000",
    ),
    ("contention", "-dot -files -cum"),
    ("cpu", "-comments -add_comment=some-comment"),
    ("heap", "-comments"),
    ("cpu", "-tags"),
    ("cpu", "-tags -tagignore=a[13] -tagfocus=load|save"),
    ("heap", "-tags"),
    ("heap", "-tags -unit=bytes"),
    ("cpu", "-traces"),
    ("cpu", "-traces -addresses"),
    ("heap-tags", "-traces"),
    ("heap-alloc", "-dot -alloc_space -flat -focus=[234]00"),
    ("heap-alloc", "-dot -alloc_space -flat -tagshow=[2]00"),
    ("heap-alloc", "-dot -alloc_space -flat -hide=step.*1?23?"),
    ("heap", "-dot -inuse_space -flat -tagfocus=1mb:2gb"),
    (
        "heap",
        "-dot -inuse_space -flat -tagfocus=30kb: -tagignore=1mb:2mb",
    ),
    ("cpu", "-peek=step.*01"),
    ("heap-request", "-tags -tagfocus=400kb:"),
    ("heap-request", "-tags -tagfocus=+400kb:"),
    (
        "heap-request",
        "-tags -relative_percentages -tagfocus=400kb:",
    ),
    ("long-names", "-dot"),
    ("long-names", "-text"),
];

fn folder() -> PathBuf {
    sample_profiles().join("pprof")
}

/// Returns a command of `heapprof pprof`, in the fixtures' folder.
fn ours() -> Command {
    let mut command = command(&folder());
    command.arg("pprof").env("TZ", "UTC");
    command
}

fn real() -> Option<Command> {
    let mut command = Command::new(std::env::var_os("HEAPPROF_PPROF")?);
    command.current_dir(folder()).env("TZ", "UTC");
    Some(command)
}

/// Returns the output of a pprof for a case. If it writes a profile, that is shown with `-raw` of
/// the same pprof.
fn printed(pprof: &dyn Fn() -> Command, fixture: &str, flags: &str) -> String {
    let print = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{fixture} {flags}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut command = pprof();
    command.args(COMMON).args(flags.split(' '));
    let file = format!("{fixture}.pb.gz");
    if !flags.contains("-topproto") {
        return print(command.arg(file));
    }
    let written = tempfile::tempdir().unwrap();
    let target = written.path().join("rows.pb.gz");
    let output = format!("-output={}", target.display());
    print(command.arg(output).arg(file));
    print(pprof().args(["-symbolize=none", "-raw"]).arg(&target))
}

fn golden(fixture: &str, flags: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '.' };
    let mut name: String = format!("{fixture}.{flags}").chars().map(plain).collect();
    while name.contains("..") {
        name = name.replace("..", ".");
    }
    let name = name.trim_end_matches('.');
    root()
        .join("tests/golden/pprof")
        .join(format!("{name}.txt"))
}

#[test]
fn fixtures_are_current() {
    for (name, profile) in fixtures::all() {
        let path = folder().join(format!("{name}.pb.gz"));
        if bless() {
            let mut bytes = Vec::new();
            encode(&profile, &mut bytes).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        let kept = heapprof_profile::decode(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(kept, profile, "{name}");
    }
}

#[test]
fn reports_are_pprofs_to_the_byte() {
    for (i, (fixture, flags)) in CASES.iter().enumerate() {
        assert!(!CASES[..i].contains(&(fixture, flags)), "{fixture} {flags}");
        let path = golden(fixture, flags);
        if let (true, Some(_)) = (bless(), real()) {
            let text = printed(&|| real().unwrap(), fixture, flags);
            for _ in 0..5 {
                let again = printed(&|| real().unwrap(), fixture, flags);
                assert_eq!(again, text, "{fixture} {flags}: pprof's own output changes");
            }
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        let expected = std::fs::read_to_string(&path);
        let expected = expected.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let found = printed(&ours, fixture, flags);
        assert_eq!(found, expected, "{fixture} {flags}");
    }
}

/// Whether a report has more than its head.
fn says_something(flags: &str, text: &str) -> bool {
    let has = |start: &str| text.lines().any(|line| line.starts_with(start));
    let behind = |head: &str, end: &str| {
        let rows = text.split(end).next().unwrap_or_default();
        let rows = rows.split_once(head).map_or("", |(_, rows)| rows);
        let mut rows = rows.lines().skip(1);
        rows.any(|row| row.contains(|c: char| c.is_ascii_alphanumeric()))
    };
    match flags.split(' ').next().unwrap_or_default() {
        "-dot" => has("N1 ["),
        "-text" | "-tree" => behind("sum%        cum   cum%", "\n\n"),
        "-topproto" => behind("\nSamples:\ncum", "\nLocations\n"),
        "-callgrind" => has("fn="),
        "-traces" => behind("-----------+---", "\n\n"),
        "-tags" => behind(": Total ", "\n\n"),
        "-comments" => !text.trim().is_empty(),
        _ => text.contains("| step"),
    }
}

/// No golden may be empty, because two empty reports are equal, whatever is wrong.
#[test]
fn no_golden_is_an_empty_report() {
    for (fixture, flags) in CASES {
        let text = std::fs::read_to_string(golden(fixture, flags)).unwrap();
        let nothing = text.contains("Showing nodes accounting for 0, 0% of");
        assert!(
            !nothing && says_something(flags, &text),
            "{fixture} {flags}: {text}"
        );
    }
}

/// Runs `heapprof pprof` in the folder of the samples.
fn pprof(args: &[&str]) -> heapprof_tests::harness::Run {
    let all: Vec<&str> = ["pprof"].into_iter().chain(args.iter().copied()).collect();
    run(&sample_profiles(), &all)
}

const AFTER: &str = "valid/go.leaky.after.pb.gz";
const BEFORE: &str = "valid/go.leaky.before.pb.gz";

#[test]
fn what_cannot_be_done_is_one_line() {
    let table: [(&[&str], &str); 25] = [
        (
            &["-bananas", AFTER],
            "flag provided but not defined: -bananas",
        ),
        (
            &["-nodecount=x", AFTER],
            "invalid value \"x\" for flag -nodecount",
        ),
        (
            &["-cum=maybe", AFTER],
            "invalid boolean value \"maybe\" for -cum",
        ),
        (&["-unit"], "flag needs an argument: -unit"),
        (
            &["-top", "-tree", AFTER],
            "must set at most one output format",
        ),
        (
            &["-top", "-cum", "-flat", AFTER],
            "conflicting options set: [flat cum]",
        ),
        (
            &["-top", "-lines", "-files", AFTER],
            "conflicting options set: [files lines]",
        ),
        (
            &["-top", "-base=a", "-diff_base=b", AFTER],
            "-base and -diff_base flags cannot both be specified",
        ),
        (
            &["-top", "-normalize", AFTER],
            "must have base profile to normalize by",
        ),
        (
            &["-top", "-sample_index=9", AFTER],
            "sample_index 9 is outside the range [0..3]",
        ),
        (
            &["-top", "-sample_index=x", AFTER],
            "must be one of: [alloc_objects alloc_space inuse_objects inuse_space]",
        ),
        (&["-top", "-divide_by=0", AFTER], "zero divisor specified"),
        (
            &["-top", "-focus=(", AFTER],
            "-focus \"(\": not a regular expression",
        ),
        (&["-peek=(", AFTER], "-peek \"(\": not a regular expression"),
        (
            &["-peek=bananas", AFTER],
            "no matches found for regexp: bananas",
        ),
        (
            &["-list=bananas", AFTER],
            "no matches found for regexp: bananas",
        ),
        (
            &["-top", "-tagfocus=99999999999999999999", AFTER],
            "beyond what a 64-bit number holds",
        ),
        (&["-http=0.0.0.0:8080", AFTER], "this machine only"),
        (&["-http=8080", AFTER], "give a port"),
        (&["-http=:x", AFTER], "the port is not a number"),
        (
            &["-http=:", "-top", AFTER],
            "not compatible with an output format",
        ),
        (
            &["-no_browser", "-top", AFTER],
            "-no_browser only makes sense with -http",
        ),
        (
            &["-weblist=bananas", AFTER],
            "no matches found for regexp: bananas",
        ),
        (
            &["-disasm=bananas", AFTER],
            "no matches found for regexp bananas",
        ),
        (
            &["-top", "-output=nowhere/x.txt", AFTER],
            "nowhere/x.txt: cannot be written",
        ),
    ];
    for (args, says) in table {
        let run = pprof(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.err);
        assert_eq!(run.out, "", "{args:?}");
        let last = run.err.lines().last().unwrap_or_default();
        assert!(last.starts_with("heapprof: "), "{args:?}: {}", run.err);
        assert!(last.contains(says), "{args:?}: {}", run.err);
    }
    // A file that can't be read is named, and the others are reported.
    let run = pprof(&["-top", "-symbolize=none", "nowhere.pb.gz", AFTER]);
    assert_eq!(run.code, 0);
    assert!(
        run.err.contains("nowhere.pb.gz: there is no such file"),
        "{}",
        run.err
    );
    assert!(
        run.err.contains("Fetched 1 source profiles out of 2"),
        "{}",
        run.err
    );
    let run = pprof(&["-top", "nowhere.pb.gz"]);
    assert_eq!(run.code, 2);
    assert!(
        run.err.ends_with("failed to fetch any source profiles\n"),
        "{}",
        run.err
    );
    // Without sources, the help is printed, as in pprof.
    let run = pprof(&["-top"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("Usage: heapprof pprof"), "{}", run.err);
    assert!(
        run.err.ends_with("no profile source specified\n"),
        "{}",
        run.err
    );
}

#[test]
fn what_is_mended_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("odd.pb");
    let mut parts = heapprof_tests::wire::Parts::default();
    parts
        .strings
        .extend(heapprof_tests::wire::len(6, [b'a', 0xff]));
    std::fs::write(&file, parts.bytes()).unwrap();
    let run = pprof(&["-top", "-symbolize=none", file.to_str().unwrap()]);
    assert_eq!(run.code, 0);
    let said = run
        .err
        .lines()
        .filter(|line| line.contains("odd.pb: 1 strings are not UTF-8"));
    assert_eq!(said.count(), 1, "{}", run.err);
}

#[test]
fn filters_that_match_nothing_are_said() {
    let table = [
        ("-focus=bananas", "Focus"),
        ("-ignore=bananas", "Ignore"),
        ("-hide=bananas", "Hide"),
        ("-show=bananas", "Show"),
        ("-show_from=bananas", "ShowFrom"),
        ("-tagfocus=bananas", "TagFocus"),
        ("-tagignore=bananas", "TagIgnore"),
        ("-tagshow=bananas", "TagShow"),
        ("-taghide=bananas", "TagHide"),
        ("-tagroot=bananas", "TagRoot"),
        ("-tagleaf=bananas", "TagLeaf"),
    ];
    for (flag, name) in table {
        let run = pprof(&["-symbolize=none", "-traces", flag, AFTER]);
        assert_eq!(run.code, 0, "{flag}");
        let says = format!("heapprof: {name} expression matched no samples\n");
        assert!(run.err.contains(&says), "{flag}: {}", run.err);
    }
    let run = pprof(&["-symbolize=none", "-tags", "-tagfocus=1kb", AFTER]);
    assert!(
        run.err.contains("Interpreted '1kb' as range, not regexp"),
        "{}",
        run.err
    );
}

/// A link named `pprof`, `jeprof` or `google-pprof` to heapprof runs that command.
#[cfg(unix)]
#[test]
fn a_program_called_pprof_is_pprof() {
    let folder = tempfile::tempdir().unwrap();
    for (name, args) in [
        ("pprof", &["-top", "-symbolize=none"][..]),
        ("jeprof", &["--text", "--show_bytes"]),
        ("google-pprof", &["--text", "--show_bytes"]),
    ] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(heapprof(), &link).unwrap();
        let output = Command::new(&link)
            .args(args)
            .arg(AFTER)
            .current_dir(sample_profiles())
            .output()
            .unwrap();
        assert!(output.status.success());
        let all: Vec<&str> = [name]
            .into_iter()
            .chain(args.iter().copied())
            .chain([AFTER])
            .collect();
        assert_eq!(String::from_utf8_lossy(&output.stdout), ok(&all));
    }
}

#[test]
fn reports_go_to_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.txt");
    let flag = format!("-output={}", file.display());
    let run = pprof(&["-top", "-symbolize=none", &flag, AFTER]);
    assert_eq!((run.code, run.out.as_str()), (0, ""));
    assert!(run.err.contains("Generating report in "), "{}", run.err);
    let printed = pprof(&["-top", "-symbolize=none", AFTER]).out;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), printed);
    // The written file is a profile like any other.
    let flag = format!("-output={}", folder.path().join("p.pb.gz").display());
    assert_eq!(pprof(&["-proto", "-symbolize=none", &flag, AFTER]).code, 0);
    let copy = folder.path().join("p.pb.gz");
    let again = pprof(&["-top", "-symbolize=none", copy.to_str().unwrap()]);
    assert_eq!(again.out, printed);
}

/// If the first word is the file of a program, it is not a source.
#[test]
fn the_binary_comes_before_the_sources() {
    let run = pprof(&["-raw", "-symbolize=none", "programs/basket", BEFORE]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains(" programs/basket "), "{}", run.out);
    let run = pprof(&[
        "-raw",
        "-symbolize=none",
        "-buildid=abc",
        "valid/made.plain.pb",
    ]);
    assert!(run.out.ends_with("0x0  abc \n"), "{}", run.out);
}

/// Addresses get the names that `heapprof convert symbolize` finds, shortened as in pprof.
#[test]
fn addresses_are_symbolized() {
    let raw = |flag: &str| pprof(&["-raw", flag, "programs/basket", "programs/basket.pb.gz"]).out;
    assert!(
        !raw("-symbolize=none").contains("basket.c:"),
        "{}",
        raw("-symbolize=none")
    );
    if cfg!(target_arch = "x86_64") {
        let named = raw("-symbolize=local");
        assert!(
            named.contains("main ") && named.contains("basket.c:"),
            "{named}"
        );
    }
}

/// Serves `body` for one request. Returns the address, and a handle that gives the request.
fn serve(body: Vec<u8>) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        )
        .unwrap();
        stream.write_all(&body).unwrap();
        let head = String::from_utf8(head).unwrap();
        head.lines().next().unwrap_or_default().to_string()
    });
    (address, server)
}

#[test]
fn servers_are_asked_and_their_answer_is_kept() {
    let body = std::fs::read(sample_profiles().join(AFTER)).unwrap();
    let (address, server) = serve(body);
    let folder = tempfile::tempdir().unwrap();
    let source = format!("{address}/debug/pprof/heap?gc=1");
    let output = command(&sample_profiles())
        .args(["pprof", "-top", "-symbolize=none", "-seconds=2", &source])
        .env("PPROF_TMPDIR", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let asked = server.join().unwrap();
    assert_eq!(asked, "GET /debug/pprof/heap?gc=1&seconds=2 HTTP/1.1");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, pprof(&["-top", "-symbolize=none", AFTER]).out);
    let saved = folder
        .path()
        .join("pprof.leaky.alloc_objects.alloc_space.inuse_objects.inuse_space.001.pb.gz");
    assert!(said.contains("Saved profile in "), "{said}");
    let again = pprof(&["-top", "-symbolize=none", saved.to_str().unwrap()]);
    assert_eq!(again.out, printed);
}

/// Pictures need Graphviz; without it a line says so.
#[test]
fn pictures_need_graphviz() {
    let empty = tempfile::tempdir().unwrap();
    let output = ours()
        .args(["-symbolize=none", "-svg", "cpu.pb.gz"])
        .env("PATH", empty.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Graphviz is not installed"), "{said}");
    if !have(&["dot"]) {
        return;
    }
    for (flag, start) in [("-svg", "<?xml"), ("-png", "\u{fffd}PNG"), ("-pdf", "%PDF")] {
        let output = ours()
            .args(["-symbolize=none", flag, "cpu.pb.gz"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with(start), "{flag}");
    }
}

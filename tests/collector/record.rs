//! How `record` starts a program, what it passes on, and what it reports about the program's end.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use heapprof_profile::decode;

use heapprof_tests::built::{build, have};
use heapprof_tests::executables::{copy_program, write_program};
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{Run, command, heapprof, run};
use heapprof_tests::needs;
use heapprof_tests::watched::with_default_signals;

/// A program that counts the signals of one kind, from its start to 0.3 seconds after the first.
const COUNT: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static volatile sig_atomic_t count;
static void counted(int signal) { (void)signal; count++; }
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
int main(int argc, char **argv) {
    signal(argc > 1 ? atoi(argv[1]) : SIGINT, counted);
    printf("ready %d\n", (int)getppid());
    fflush(stdout);
    long until = now() + 300000;
    for (int seen = 0; now() < until; usleep(10000))
        if (count && !seen) {
            seen = 1;
            until = now() + 300;
        }
    printf("count %d\n", (int)count);
    return 0;
}
"#;

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

/// Waits for the counting program, and then calls `act` with the process id of `record`, its
/// parent. Returns how many signals came.
fn counted(mut command: Command, act: impl FnOnce(&mut dyn Write, &str)) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut act = Some(act);
    let mut count = String::new();
    while let Some(Ok(line)) = lines.next() {
        if let Some(parent) = line.trim().strip_prefix("ready ")
            && let Some(act) = act.take()
        {
            act(&mut input, parent);
        }
        // The terminal may have shown ^C before this text.
        if let Some((_, found)) = line.trim().split_once("count ") {
            count = found.to_string();
        }
    }
    drop(input);
    child.wait().unwrap();
    count
}

fn kill(signal: &str, process: &str) {
    let status = Command::new("kill").args([signal, process]).status();
    assert!(status.unwrap().success());
}

/// The terminal sends Ctrl-C to both processes, regardless of stdin. A signal sent only to `record`
/// reaches the program, too.
#[test]
fn signals_reach_the_program_once() {
    if !have(&["gcc", "script"]) {
        return;
    }
    let built = build(COUNT, "gcc -O1");
    let on_terminal = |redirected: &str| {
        let line = format!(
            // The tests may have been started in the background, where signals are ignored.
            "exec env --default-signal=INT,QUIT,HUP {} record --no-symbolize -o out.pb.gz -- \
             ./program {redirected}",
            quoted(heapprof())
        );
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]);
        command.current_dir(built.folder.path());
        command
    };
    // Two signals that arrive at once count as one. More rounds make such a case unlikely.
    for redirected in ["</dev/null", "</dev/null", "</dev/null", ""] {
        let count = counted(on_terminal(redirected), |terminal, _| {
            terminal.write_all(b"\x03").unwrap();
            terminal.flush().unwrap();
        });
        assert_eq!(count, "1", "Ctrl-C {redirected}");
    }
    for redirected in ["</dev/null", ""] {
        let count = counted(on_terminal(redirected), |_, record| kill("-INT", record));
        assert_eq!(count, "1", "kill -INT {redirected}");
    }
    for (name, number) in [("-USR1", "10"), ("-USR2", "12"), ("-HUP", "1")] {
        let mut record = command(built.folder.path());
        record.args(["record", "--no-symbolize", "-o", "out.pb.gz"]);
        record.args(["--", "./program", number]);
        let record = with_default_signals(&record);
        let count = counted(record, |_, record| kill(name, record));
        assert_eq!(count, "1", "{name}");
    }
}

/// Signals that were ignored or blocked when `record` began are ignored or blocked in the program,
/// too.
#[test]
fn ignored_and_blocked_signals_stay_so() {
    if !have(&["python3"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shown = |signals: &str, before: &[&str]| {
        let program =
            format!("import os, signal, sys\n{signals}\nos.execvp(sys.argv[1], sys.argv[1:])\n");
        let output = Command::new("python3")
            .current_dir(folder.path())
            .args(["-c", &program])
            .args(before)
            .args(["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let heapprof = heapprof().to_str().unwrap();
    let recorded = [heapprof, "record", "--no-symbolize", "-o", "a.pb.gz", "--"];
    for signals in [
        "signal.signal(signal.SIGPIPE, signal.SIG_IGN)",
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nsignal.signal(signal.SIGHUP, \
         signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGUSR1])",
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    ] {
        let bare = shown(signals, &[]);
        assert!(bare.contains("SigBlk:"), "{bare}");
        assert_eq!(shown(signals, &recorded), bare, "{signals}");
    }
}

/// Returns the names of the profiles in a folder and its subfolders, sorted.
fn profiles(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let below = profiles(&path).into_iter();
            found.extend(below.map(|below| format!("{name}/{below}")));
        } else {
            found.push(name);
        }
    }
    found.sort();
    found
}

/// A percent sign in the name of an existing folder has no special meaning.
#[test]
fn folders_may_have_percent_signs() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("50%p");
    std::fs::create_dir_all(here.join("70%")).unwrap();
    let record = |out: &str, expected: &str| {
        let args = ["record", "--exact", "--no-symbolize", "-o", out];
        let found = run(&here, &[&args[..], &["--", "true"]].concat());
        assert_eq!(found.code, 0, "{}", found.err);
        let names = profiles(&here);
        let wanted = regex::Regex::new(&format!("^{expected}$")).unwrap();
        assert!(
            names.len() == 1 && wanted.is_match(&names[0]),
            "{out}: {names:?} {}",
            found.err
        );
        std::fs::remove_file(here.join(&names[0])).unwrap();
    };
    let absolute = here.join("70%/out.pb.gz");
    record("out.pb.gz", r"out\.pb\.gz");
    record("70%/out.pb.gz", r"70%/out\.pb\.gz");
    record(absolute.to_str().unwrap(), r"70%/out\.pb\.gz");
    record("70%", r"70%/heapprof\.true\.\d+\.pb\.gz");
    record("70%/%e.pb.gz", r"70%/true\.pb\.gz");
    record("%e-80%%.pb.gz", r"true-80%\.pb\.gz");
    record("90%.pb.gz", r"90%\.pb\.gz");
    record("new%/", r"new%/heapprof\.true\.\d+\.pb\.gz");
}

/// A program is named as it was started. A script is named after its interpreter, and a program
/// that executes itself again is named after its file.
#[test]
fn programs_are_called_as_they_were_started() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let truth = ["/bin/true", "/usr/bin/true"].map(Path::new);
    let truth = truth.into_iter().find(|path| path.is_file()).unwrap();
    std::os::unix::fs::symlink(truth, here.join("nickname")).unwrap();
    script(
        here,
        "a-script",
        format!("#!{}\n", truth.display()).as_bytes(),
    );
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    let shell = shell.file_name().unwrap().to_str().unwrap();
    let again = ["/bin/sh", "-c", "exec /proc/self/exe -c 'exit 0'"];
    let cases: [(&[&str], &str); 4] = [
        (&["true"], "true"),
        (&["./nickname"], "nickname"),
        (&["./a-script"], "true"),
        (&again, shell),
    ];
    for (i, (program, expected)) in cases.into_iter().enumerate() {
        let out = format!("{i}/%e.pb.gz");
        std::fs::create_dir(here.join(i.to_string())).unwrap();
        let args = ["record", "--exact", "--no-symbolize", "-o", &out, "--"];
        let found = run(here, &[&args[..], program].concat());
        assert_eq!(found.code, 0, "{}", found.err);
        let path = here.join(format!("{i}/{expected}.pb.gz"));
        let name = format!("program: {expected}");
        let profile = decode(std::fs::File::open(path).unwrap()).unwrap();
        let mut comments = profile.comment.iter().map(|&text| profile.text(text));
        assert!(comments.any(|comment| comment == name), "{program:?}");
    }
}

/// Only a percent sign with a meaning makes a name a pattern. In other names, the process id and
/// the number are inserted.
#[test]
fn percent_signs_alone_make_no_pattern() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("50%");
    std::fs::create_dir(&here).unwrap();
    let args = [
        "record",
        "--exact",
        "--no-symbolize",
        "--keep-small",
        "-o",
        "a%%.pb.gz",
    ];
    let grown = [
        "--on-growth",
        "1KiB",
        "--",
        "sh",
        "-c",
        "true | env true; exit 0",
    ];
    let found = run(&here, &[&args[..], &grown[..]].concat());
    assert_eq!(found.code, 0, "{}", found.err);
    let names = profiles(&here);
    assert!(names.contains(&"a%.pb.gz".to_string()), "{names:?}");
    assert!(names.contains(&"a%.0001.pb.gz".to_string()), "{names:?}");
    // The name of a child's profile has the process id, before a number.
    let child = regex::Regex::new(r"^a%\.children/\w+\.\d{2,}\.\d+\.pb\.gz$").unwrap();
    let children = names.iter().filter(|name| child.is_match(name));
    assert!(children.count() >= 1, "{names:?}");
}

/// `-#12` names a part of the input on stdin. After `record` it belongs to the program, wherever
/// other options stand.
#[test]
fn the_program_gets_its_arguments_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    for before in [&[][..], &["--color", "never"]] {
        let args = ["record", "--no-symbolize", "-o", "e.pb.gz", "echo", "-#12"];
        let found = run(folder.path(), &[before, &args[..]].concat());
        assert_eq!((found.code, found.out.as_str()), (0, "-#12\n"));
    }
}

fn script(folder: &Path, name: &str, text: &[u8]) {
    write_program(&folder.join(name), text);
}

/// Scripts run as in a shell. If a shell can't run a script, the exit code is the shell's.
#[test]
fn scripts_run_as_from_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let record = |name: &str| -> Run {
        let mut record = command(here);
        let path = std::env::var("PATH").unwrap();
        record.env("PATH", format!("{}:{path}", here.display()));
        record.args(["record", "--no-symbolize", "-o", "out.pb.gz", "--", name]);
        record.args(["a b", "c"]).output().unwrap().into()
    };
    script(here, "plain", b"echo \"$0\" \"$1\"; exit 7\n");
    for name in ["./plain", "plain"] {
        let found = record(name);
        assert_eq!(found.code, 7, "{}", found.err);
        assert!(found.out.ends_with("/plain a b\n"), "{}", found.out);
        assert!(here.join("out.pb.gz").is_file());
    }
    script(here, "binary", b"\x7fELF\x02\x01\x01\0\0\0\n");
    let found = record("./binary");
    assert_eq!(found.code, 126);
    assert!(found.err.contains("Exec format error"), "{}", found.err);
    script(here, "missing", b"#!/no/such -x\n");
    let found = record("./missing");
    assert_eq!(found.code, 127);
    assert_eq!(
        found.err,
        "heapprof: ./missing: /no/such, which should run it, is not there: install it, or name \
         another one in the file\n"
    );
    if have(&["gcc"]) {
        let built = build("int main(void) { return 0; }", "gcc -Wl,-I/no/loader.so");
        copy_program(&built.program, &here.join("loaderless"));
        let found = record("./loaderless");
        assert_eq!(found.code, 127);
        assert!(found.err.contains("/no/loader.so, which"), "{}", found.err);
    }
}

/// The signal of `--on-signal` makes a dump, whether it is sent to the program or to `record`.
#[test]
fn a_signal_writes_a_profile() {
    let folder = tempfile::tempdir().unwrap();
    let script = "kill -USR2 $PPID; until [ -e out.0001.pb.gz ]; do sleep 0.1; done; \
                  kill -USR2 $$; exit 4";
    let args = [
        "record",
        "--exact",
        "--no-symbolize",
        "--follow-children",
        "no",
        "-o",
        "out.pb.gz",
    ];
    for name in ["USR2", "sigusr2", "12"] {
        let signal = ["--on-signal", name, "--", "sh", "-c", script];
        let found = run(folder.path(), &[&args[..], &signal[..]].concat());
        assert_eq!(found.code, 4, "{}", found.err);
        let names = profiles(folder.path());
        let expected = ["out.0001.pb.gz", "out.0002.pb.gz", "out.pb.gz"];
        assert_eq!(names, expected, "{name}: {}", found.err);
        for name in names {
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
    }
    for (name, why) in [
        ("NONE", "no such signal; USR2 is one"),
        ("0", "no such signal; USR2 is one"),
        ("KILL", "a program can't catch it"),
    ] {
        let found = run(folder.path(), &["record", "--on-signal", name, "true"]);
        assert_eq!(found.code, 2);
        assert!(found.err.contains(why), "{}", found.err);
    }
}

/// The loader preloads nothing into a program that has more rights than its user, and `record`
/// reports this.
#[test]
fn programs_with_rights_of_their_own_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("true");
    copy_program(Path::new("/bin/true"), &file);
    // Only root can change the owner of a file.
    if chown(&file, Some(12345), Some(12345)).is_err() {
        needs::cannot("root, who gives files away");
        return;
    }
    for (mode, what) in [(0o4755, "is setuid, so"), (0o2755, "is setgid, so")] {
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let found = run(folder.path(), &["record", "--", "./true"]);
        assert_eq!(found.code, 0, "{}", found.err);
        assert!(found.err.contains(what), "{}", found.err);
    }
    std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    let set = Command::new("setcap")
        .arg("cap_net_raw+ep")
        .arg(&file)
        .output();
    if !set.is_ok_and(|output| output.status.success()) {
        needs::cannot("capabilities of files (setcap)");
        return;
    }
    let found = run(folder.path(), &["record", "-o", "a.pb.gz", "--", "./true"]);
    // Capabilities give root no further rights.
    assert!(!found.err.contains("capabilities"), "{}", found.err);
    let heapprof = folder.path().join("heapprof");
    copy_program(heapprof_tests::harness::heapprof(), &heapprof);
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let output = Command::new(&heapprof)
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .args(["record", "--", "./true"])
        .uid(12345)
        .gid(12345)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("has capabilities, so"), "{err}");
}

/// Reports begin at the program's own functions, not at `operator new`. The stacks still have all
/// frames.
#[test]
fn allocators_are_cut_from_reports() {
    if !have(&["g++", "rustc"]) {
        return;
    }
    let cxx = "#include <new>\n#include <vector>\n__attribute__((noinline)) char *plain() { \
               return new char[5000]; }\n__attribute__((noinline)) char *quiet() { return new \
               (std::nothrow) char[5000]; }\n__attribute__((noinline)) void \
               fill(std::vector<char> &v) { v.reserve(5000); }\nint main() { volatile auto p = \
               plain(); volatile auto q = quiet(); (void)p; (void)q; fill(*new \
               std::vector<char>); }\n";
    let rust = "#[inline(never)] fn boxed() -> Box<[u8; 5000]> { Box::new([1; 5000]) \
                }\n#[inline(never)] fn fill(v: &mut Vec<u8>) { v.reserve_exact(5000) }\nfn main() \
                { std::mem::forget(boxed()); let mut v = Vec::new(); fill(&mut v); \
                std::mem::forget(v); }\n";
    let cases = [
        (cxx, "g++ -g -O0", &["plain()", "quiet()", "reserve"][..]),
        (cxx, "g++ -g -O1", &["plain()", "quiet()", "reserve"]),
        (rust, "rustc -g -Copt-level=0", &["boxed", "reserve_exact"]),
    ];
    for (text, compile, expected) in cases {
        let built = build(text, compile);
        let folder = built.folder.path();
        let recorded = run(folder, &["record", "--exact", "-o", "p.pb.gz", "./program"]);
        assert_eq!(recorded.code, 0, "{}", recorded.err);
        let leaves = |more: &[&str]| -> Vec<String> {
            let args = [
                "top",
                "--all-code",
                "--focus",
                "^main$|::main$",
                "-f",
                "json",
                "p.pb.gz",
            ];
            let top = json(folder, &[&args[..], more].concat());
            let rows = top["rows"].as_array().unwrap().iter();
            let rows = rows.filter(|row| row["flat"] == 5000);
            rows.map(|row| row["function"].as_str().unwrap().to_string())
                .collect()
        };
        let cut = leaves(&[]);
        assert_eq!(cut.len(), expected.len(), "{compile}: {cut:?}");
        for name in expected {
            assert!(
                cut.iter().any(|leaf| leaf.contains(name)),
                "{compile}: {cut:?}"
            );
        }
        let whole = run(folder, &["top", "--all-frames", "-f", "csv", "p.pb.gz"]).out;
        assert!(
            whole.contains("operator new") || whole.contains("alloc::alloc"),
            "{whole}"
        );
    }
}

/// Of a deep stack, only both ends are kept. They are copied from the remembered last stack, or
/// found by unwinding. Either way the stack is the same.
#[test]
fn deep_stacks_are_one_stack_however_they_are_found() {
    if !have(&["gcc"]) {
        return;
    }
    let text = "#include <stdlib.h>\n__attribute__((noinline)) int deep(int n) { char *p = \
                malloc(32); __asm__ volatile(\"\" : \"+r\"(p)); int r = n ? deep(n - 1) + 1 : 0; \
                free(p); return r; }\nint main() { int r = 0; for (volatile int i = 0; i < 3; \
                i++) r = deep(12000); return r == 12000 ? 7 : 1; }\n";
    let built = build(text, "gcc -g -O1 -fno-optimize-sibling-calls");
    let folder = built.folder.path();
    let recorded = run(folder, &["record", "--exact", "-o", "p.pb.gz", "./program"]);
    assert_eq!(recorded.code, 7, "{}", recorded.err);
    let file = std::fs::File::open(folder.join("p.pb.gz")).unwrap();
    let profile = heapprof_profile::decode(file).unwrap();
    let objects = profile.find_sample_type("alloc_objects").unwrap();
    let mut counts: Vec<i64> = (0..profile.samples.len())
        .filter(|&i| profile.samples.stack(i).len() > 500)
        .map(|i| profile.samples.values(i)[objects])
        .collect();
    counts.sort_unstable();
    // There are three times 12,001 levels. Levels up to about 510 deep have their own stacks.
    let deepest = counts.pop().unwrap();
    assert!(
        deepest > 3 * 11_480 && counts.iter().all(|&n| n == 3),
        "{deepest} {counts:?}"
    );
}

/// Functions of a stripped program have addresses instead of names. If these are most of the
/// profile, `record` reports it.
#[test]
fn a_stripped_program_is_said() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r"
#include <stdlib.h>
static void *volatile kept;
__attribute__((noinline)) static int inner(int n) { kept = malloc(n); return n + 1; }
__attribute__((noinline)) static int middle(int n) { return inner(n) + 1; }
__attribute__((noinline)) static int outer(int n) { return middle(n) + 1; }
int main(void) { return outer(100) == 103 && outer(7) == 10 ? 0 : 1; }
";
    for (options, said) in [("-O1", false), ("-O1 -s", true)] {
        let built = build(source, &format!("gcc {options}"));
        let folder = tempfile::tempdir().unwrap();
        let recorded = command(folder.path())
            .args(["record", "--exact", "-o", "p.pb.gz", "--"])
            .arg(&built.program)
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&recorded.stderr);
        assert_eq!(recorded.status.code(), Some(0), "{err}");
        let note = "is held by code without names, most of it in ";
        assert_eq!(err.contains(note), said, "{options}: {err}");
        assert_eq!(err.contains("--debug-dir DIR p.pb.gz"), said, "{err}");
    }
}

/// An alarm that was set before `record` was executed belongs to the program. A pipe is not a
/// program. `record` does not preload its library before a sanitizer's runtime, which has to come
/// first.
#[test]
fn what_comes_to_record_in_place_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    if have(&["perl", "mkfifo"]) {
        // An alarm before the program runs ends `record`. Then a later alarm is tried.
        let alarmed = |seconds: u32| {
            let mut command = Command::new("perl");
            command
                .args(["-e", &format!("alarm {seconds}; exec @ARGV")])
                .arg(heapprof())
                .args(["record", "-o", "p.pb.gz", "sleep", "3600"])
                .current_dir(folder.path());
            command.output().unwrap()
        };
        let mut outputs = [1, 5, 25, 125].into_iter().map(alarmed);
        let output = outputs.find(|output| output.status.code().is_some());
        let output = output.expect("the alarm is the program's");
        assert_eq!(output.status.code(), Some(142), "{output:?}");
        let mut mkfifo = Command::new("mkfifo");
        mkfifo
            .args(["-m", "755", "pipe"])
            .current_dir(folder.path());
        assert!(mkfifo.status().unwrap().success());
        let piped = run(folder.path(), &["record", "-o", "p.pb.gz", "./pipe"]);
        assert_eq!(piped.code, 126, "{}", piped.err);
    }
    let output = command(folder.path())
        .args(["record", "-o", "p.pb.gz", "true"])
        .env("LD_PRELOAD", "/usr/lib/libasan.so.8")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("libasan.so.8"),
        "{said}"
    );
}

//! Tests of heapprof-alloc in programs that count their own allocations: over two allocators, on
//! every way to a profile, and with several kinds of builds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use heapprof_profile::decode;

use heapprof_tests::executables::copy_program;
use heapprof_tests::expectations::check;
use heapprof_tests::harness::{command, heapprof, root};
use heapprof_tests::listener::Listener;
use heapprof_tests::needs;
use heapprof_tests::waits::{HANG_TIMEOUT, ended, wait_for};

/// Arguments of cargo for an optimized program.
const OPTIMIZED: &[&str] = &["--profile", "optimized"];

/// Builds an example of heapprof-alloc with `flags` of its own. Returns the path of the binary,
/// which is named `name`, or `None` if it can't be built here.
fn build(example: &str, name: &str, cargo: &[&str], flags: &[&str]) -> Option<PathBuf> {
    // Each build of an example replaces the one before it.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let target = heapprof().parent().and_then(Path::parent).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["rustc", "-q", "--offline", "-p", "heapprof-alloc"])
        .args(["--example", example, "--target-dir"])
        .arg(target)
        .args(cargo)
        .arg("--")
        .args(flags)
        .current_dir(root())
        .output()
        .unwrap();
    if !output.status.success() {
        eprintln!("{name}: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    let mut built = target.to_path_buf();
    if let Some(at) = cargo.iter().position(|word| *word == "--target") {
        built.push(cargo[at + 1]);
    }
    let is_optimized = cargo.contains(&"optimized");
    built.push(if is_optimized { "optimized" } else { "debug" });
    let folder = target.join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    let own = folder.join(name);
    // The new binary is renamed into place as a whole, because another test run may be using the
    // old one.
    let new = folder.join(format!("{name}.{}", std::process::id()));
    copy_program(&built.join("examples").join(example), &new);
    std::fs::rename(&new, &own).unwrap();
    Some(own)
}

/// The collector's own allocations do not fail when the program runs out of memory, and they never
/// end the program.
#[test]
fn dumps_of_a_program_without_memory() {
    for (name, cargo) in [
        ("alloc_short", &[][..]),
        ("alloc_short.optimized", OPTIMIZED),
    ] {
        let program = build("alloc_short", name, cargo, &[]).expect("alloc_short builds");
        for road in ["none", "dump", "profile", "peak", "growth", "interval"] {
            let folder = tempfile::tempdir().unwrap();
            let run = Command::new(&program)
                .args([road, "last.pb.gz"])
                .current_dir(folder.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&run.stderr);
            assert!(run.status.success() && said.is_empty(), "{road}: {said}");
            for entry in std::fs::read_dir(folder.path()).unwrap() {
                let path = entry.unwrap().path();
                // The end of the program may interrupt an interval's dump, which leaves its draft.
                if path.extension().is_some_and(|ending| ending == "tmp") {
                    continue;
                }
                let profile = decode(&*std::fs::read(&path).unwrap());
                assert!(profile.is_ok(), "{road}: {}", path.display());
            }
            let last = folder.path().join("last.pb.gz");
            let profile = decode(&*std::fs::read(last).unwrap()).unwrap();
            assert!(!profile.samples.is_empty(), "{road}");
        }
    }
}

/// heapprof does not call a program's own clock, which may wait for a lock that the program has
/// taken.
#[test]
fn a_clock_of_the_programs_own_is_not_asked() {
    let program = build("alloc_clock", "alloc_clock", &[], &[]).expect("it is built");
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("clock.pb.gz");
    let mut command = Command::new(&program);
    command.arg(&profile).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    assert!(ended(&mut child).success());
    let mut calls = String::new();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_string(&mut calls).unwrap();
    assert_eq!(calls, "0\n");
    let profile = decode(&*std::fs::read(&profile).unwrap()).unwrap();
    let column = profile.find_sample_type("inuse_space").unwrap();
    let all = (0..profile.samples.len()).map(|i| profile.samples.values(i)[column]);
    assert!(all.sum::<i64>() >= 1_000_000);
    // The recording has the kernel's time.
    assert!(profile.time_nanos > 1_000_000_000_000_000_000);
}

/// libc removes fork handlers when the program ends. That may happen between the handler before a
/// fork and the handler after it.
#[test]
fn a_program_that_ends_while_it_forks() {
    let program = build("alloc_ending", "alloc_ending", &[], &[]).expect("alloc_ending builds");
    let mut run = Command::new(program).spawn().unwrap();
    assert!(ended(&mut run).success());
}

fn counted(name: &str, cargo: &[&str], flags: &[&str]) -> PathBuf {
    build("alloc_counted", name, cargo, flags).expect("alloc_counted builds")
}

/// Symbolizes every profile in the folder.
fn symbolize(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "gz") {
            let run = command(folder)
                .args(["symbolize", "-o"])
                .args([&path, &path])
                .output()
                .unwrap();
            assert!(
                run.status.success(),
                "{}",
                String::from_utf8_lossy(&run.stderr)
            );
        }
    }
}

fn leaves_right_numbers(program: &Path, roads: &[&str]) {
    for road in roads {
        let folder = tempfile::tempdir().unwrap();
        let run = Command::new(program)
            .args([road, "out.pb.gz"])
            .current_dir(folder.path())
            .env("HEAPPROF_TEST_EXPECT", folder.path().join("expect"))
            .env("HEAPPROF_OUTPUT", "environment.pb.gz")
            .env("HEAPPROF_MODE", "exact")
            .env_remove("LD_PRELOAD")
            .env_remove("HEAPPROF_RECORD")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{program:?} {road}: {said}");
        assert!(run.stdout.is_empty() && said.is_empty(), "{road}: {said}");
        symbolize(folder.path());
        let mode = if *road == "sampled" {
            "sampled"
        } else {
            "exact"
        };
        if let Err(wrong) = check(folder.path(), true, mode) {
            panic!("{program:?} {road}: {wrong}");
        }
    }
}

const ROADS: &[&str] = &[
    "demand",
    "sampled",
    "stop",
    "bytes",
    "environment",
    "exit",
    "fork",
];

#[test]
fn every_road_to_a_profile_has_the_programs_numbers() {
    let program = counted("alloc_counted", OPTIMIZED, &[]);
    leaves_right_numbers(&program, ROADS);
}

#[test]
fn numbers_hold_over_another_allocator() {
    let program = counted("alloc_counted.bump", OPTIMIZED, &["--cfg", "bump"]);
    leaves_right_numbers(&program, &["demand", "exit", "sampled"]);
}

#[test]
fn numbers_hold_without_optimization() {
    let program = counted("alloc_counted.debug", &[], &[]);
    leaves_right_numbers(&program, &["demand", "exit"]);
}

#[test]
fn numbers_hold_with_and_without_frame_pointers() {
    for choice in ["yes", "no"] {
        let flag = format!("force-frame-pointers={choice}");
        let flags = ["-C", &flag, "-C", "opt-level=3"];
        let program = counted(&format!("alloc_counted.fp-{choice}"), OPTIMIZED, &flags);
        leaves_right_numbers(&program, &["demand", "sampled"]);
    }
}

/// The numbers are right in a static executable, too, into which no library can be preloaded.
#[test]
fn numbers_hold_in_a_static_executable() {
    for (name, model) in [("static-pie", "pie"), ("static", "static")] {
        let model = format!("relocation-model={model}");
        let flags = ["-C", "target-feature=+crt-static", "-C", &model];
        let program = counted(&format!("alloc_counted.{name}"), OPTIMIZED, &flags);
        leaves_right_numbers(&program, ROADS);
    }
}

#[test]
fn numbers_hold_with_musl() {
    const TARGET: &str = "x86_64-unknown-linux-musl";
    let libraries = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    let there = libraries.is_ok_and(|found| {
        let folder = String::from_utf8_lossy(&found.stdout).trim().to_string();
        Path::new(&folder).is_dir()
    });
    if !there {
        return needs::miss("musl", "");
    }
    let program = counted(
        "alloc_counted.musl",
        &["--profile", "optimized", "--target", TARGET],
        &[],
    );
    leaves_right_numbers(&program, ROADS);
}

/// A program that is killed when the test ends.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fetch(address: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(HANG_TIMEOUT))?;
    write!(
        connection,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    Ok(answer)
}

#[test]
fn the_example_serves_profiles_as_go_does() {
    let program = build("pprof_endpoint", "pprof_endpoint", OPTIMIZED, &[]).unwrap();
    let mut example = Command::new(&program);
    example.arg("127.0.0.1:0").stderr(Stdio::piped());
    let mut served = Served(example.spawn().unwrap());
    let mut said = String::new();
    let mut lines = BufReader::new(served.0.stderr.take().unwrap());
    lines.read_line(&mut said).unwrap();
    let url = said.trim().strip_prefix("profiles at ").expect(&said);
    let address = url.split('/').nth(2).unwrap();
    let end = b"\r\n\r\n";
    let head_of = |answer: &[u8]| answer.windows(4).position(|w| w == end).unwrap();
    // The cache grows until one of its allocations is sampled. Earlier answers may have samples of
    // other code.
    let folder = tempfile::tempdir().unwrap();
    let found = wait_for("an answer with samples of the cache", || {
        assert!(served.0.try_wait().unwrap().is_none(), "it ended");
        let answer = fetch(address, "/debug/pprof/heap?debug=0").unwrap();
        let body = &answer[head_of(&answer) + end.len()..];
        let profile = decode(body).unwrap();
        let mut in_use = (0..profile.samples.len()).map(|i| profile.samples.values(i)[3]);
        if !in_use.any(|bytes| bytes > 0) {
            return None;
        }
        std::fs::write(folder.path().join("heap.pb.gz"), body).unwrap();
        symbolize(folder.path());
        let named = std::fs::File::open(folder.path().join("heap.pb.gz")).unwrap();
        let profile = decode(named).unwrap();
        let mut functions = profile.function.iter().map(|f| profile.text(f.name));
        functions
            .any(|name| name == "pprof_endpoint::remember")
            .then_some(answer)
    });
    let missing = fetch(address, "/").unwrap();
    assert!(missing.starts_with(b"HTTP/1.1 404 "));

    let head = head_of(&found);
    assert!(found.starts_with(b"HTTP/1.1 200 OK\r\n"));
    let body = &found[head + end.len()..];
    let profile = decode(body).unwrap();
    let kinds: Vec<&str> = profile
        .sample_type
        .iter()
        .map(|kind| profile.text(kind.r#type))
        .collect();
    assert!(
        kinds.starts_with(&[
            "alloc_objects",
            "alloc_space",
            "inuse_objects",
            "inuse_space"
        ]),
        "{kinds:?}"
    );

    // `heapprof top` reads the profile from the server.
    let top = command(folder.path()).args(["top", url]).output().unwrap();
    assert!(
        top.status.success(),
        "{}",
        String::from_utf8_lossy(&top.stderr)
    );
}

/// `alive!` reports that code ran, and where.
#[test]
fn code_that_ran_is_heard_of() {
    let program = build("alloc_alive", "alloc_alive", &[], &[]).expect("alloc_alive builds");
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::start(folder.path(), &[]);
    let status = Command::new(program)
        .env("HEAPPROF_WIRETAP", &listener.address)
        .status();
    assert!(status.unwrap().success());
    let report = listener.report();
    assert_eq!(report["rows"][0]["name"], "orders.cancel", "{report}");
    assert_eq!(report["rows"][0]["count"], 3);
    let place = report["rows"][0]["places"][0].as_str().unwrap();
    assert!(place.ends_with("alive.rs:10"), "{place}");
    assert_eq!(report["senders"]["ended"], 1);
}

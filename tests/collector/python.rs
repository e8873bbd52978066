//! Python functions and lines, compared with the results of `sys._getframe`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_tests::built::have;
use heapprof_tests::harness::{Run, command, root};

use crate::scripts::{Frame, Sample, read, samples};

fn script(name: &str) -> String {
    root().join("tests/python").join(name).display().to_string()
}

/// Returns the pythons to test: the first one in PATH, and those in HEAPPROF_PYTHONS, separated by
/// colons. A name in PATH may be a script that starts another python, so each is asked for its
/// executable.
pub(crate) fn pythons() -> Vec<PathBuf> {
    let more = std::env::var("HEAPPROF_PYTHONS").unwrap_or_default();
    let named = std::iter::once("python3").chain(more.split(':').filter(|name| !name.is_empty()));
    let ask = |name: &str| {
        let asked = Command::new(name)
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        let reported = asked.unwrap_or_else(|error| panic!("{name}: {error}"));
        PathBuf::from(String::from_utf8(reported.stdout).unwrap().trim())
    };
    named.map(ask).collect()
}

/// Whether a Python has a GIL. A Python without one allocates all objects from its own mimalloc,
/// and has no other setup that heapprof records.
pub(crate) fn has_gil(python: &Path) -> bool {
    let question = "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)";
    let asked = Command::new(python)
        .args(["-c", question])
        .output()
        .unwrap();
    String::from_utf8(asked.stdout).unwrap().trim() == "0"
}

/// Records a script of tests/python, which writes the expected stacks to `expected`, with a log in
/// `p.log`. Returns the folder of both, and the messages.
fn recorded(
    python: &Path,
    name: &str,
    arguments: &[&str],
    options: &[&str],
    environment: &[(&str, &str)],
) -> (tempfile::TempDir, Run) {
    let script = [&script(name), "expected"];
    let words = ["-W", "ignore"].iter().chain(&script).chain(arguments);
    let words: Vec<&str> = words.copied().collect();
    logged(python, &words, options, environment)
}

/// Records a python with these words in a new folder, as [`recorded`] does.
fn logged(
    python: &Path,
    words: &[&str],
    options: &[&str],
    environment: &[(&str, &str)],
) -> (tempfile::TempDir, Run) {
    let folder = tempfile::tempdir().unwrap();
    let done: Run = command(folder.path())
        .args(["record", "--no-symbolize", "-o", "p.pb.gz"])
        .args(options)
        .args(["--log", "p.log", "--"])
        .arg(python)
        .args(words)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
        .into();
    let what = format!("{} {environment:?}", python.display());
    assert_eq!(done.code, 0, "{what}: {}", done.err);
    (folder, done)
}

/// Returns a log of a script that has all events: they fit into a recording's ring if Python does
/// not load the packages of `site`.
fn whole_log(
    python: &Path,
    name: &str,
    option: &str,
    environment: &[(&str, &str)],
) -> (tempfile::TempDir, String) {
    let words = ["-S", "-W", "ignore", &script(name), "expected"];
    let (folder, _) = logged(python, &words, &[option], environment);
    let log = std::fs::read_to_string(folder.path().join("p.log")).unwrap();
    let last = log.lines().last().unwrap_or_default();
    let is_whole = last.contains(" exited ") && last.ends_with(" dropped 0");
    assert!(is_whole, "{name} {environment:?}: {last}");
    (folder, log)
}

/// Records a script, and returns the number of allocations that were compared with the expected
/// ones. On a busy machine, the log drops some, because it is not read in time.
fn compared(python: &Path, name: &str, arguments: &[&str]) -> usize {
    let (folder, done) = recorded(python, name, arguments, &[], &[]);
    assert!(!done.err.contains("native frames only"), "{}", done.err);
    let expected = std::fs::read_to_string(folder.path().join("expected")).unwrap();
    let split = |line: &'_ str| {
        let (size, frames) = line.split_once('\t').unwrap();
        (size.to_string(), frames.to_string())
    };
    // A forked child continues its parent's count, so a size may occur twice.
    let mut wanted: HashMap<String, Vec<String>> = HashMap::new();
    for (size, frames) in expected.lines().map(split) {
        wanted.entry(size).or_default().push(frames);
    }
    let (mut stacks, mut compared) = (HashMap::new(), 0);
    let log = std::fs::read_to_string(folder.path().join("p.log")).unwrap();
    for line in log.lines() {
        if let Some((number, frames)) = line.strip_prefix("stack ").and_then(|l| l.split_once('\t'))
        {
            stacks.insert(number, frames);
        }
        let Some(event) = line.strip_prefix("+ ") else {
            continue;
        };
        let words: Vec<&str> = event.split(' ').collect();
        if let Some(wanted) = wanted.get(words[3]) {
            let found = stacks[words[4]].to_string();
            assert!(wanted.contains(&found), "{python:?}: {found}\n{wanted:#?}");
            compared += 1;
        }
    }
    compared
}

/// Returns how many of `count` allocations have to be compared. Without the GIL, the log has small
/// objects, too, and so drops more.
fn least(python: &Path, count: usize) -> usize {
    if has_gil(python) { count } else { count / 10 }
}

#[test]
fn stacks_are_what_getframe_says() {
    if !have(&["python3"]) {
        return;
    }
    for python in pythons() {
        let count = compared(&python, "constructs.py", &["6"]);
        assert!(count > least(&python, 2000), "{python:?}: {count}");
    }
}

#[test]
#[ignore = "takes minutes for each python; HEAPPROF_PYTHONS names more of them"]
fn many_stacks_are_what_getframe_says() {
    for python in pythons() {
        let count = compared(&python, "constructs.py", &["580"]);
        eprintln!("{}: {count} stacks", python.display());
        assert!(count > least(&python, 200_000), "{python:?}: {count}");
        let reused = compared(&python, "reused.py", &["20000"]);
        assert!(reused > least(&python, 10_000), "{python:?}: {reused}");
    }
}

#[test]
fn code_at_the_place_of_other_code_is_told_apart() {
    if !have(&["python3"]) {
        return;
    }
    for python in pythons() {
        let count = compared(&python, "reused.py", &["1000"]);
        assert!(count > least(&python, 1800), "{python:?}: {count}");
    }
}

/// Python's frames are between the native frames where native code entered them, even if the same
/// functions are entered in another order.
#[test]
fn native_frames_lie_between_python_s() {
    if !have(&["python3"]) {
        return;
    }
    for python in pythons() {
        let options = ["--exact", "--frames=both"];
        let (folder, _) = recorded(&python, "merged.py", &[], &options, &[]);
        let samples = samples(&read(&folder.path().join("p.pb.gz")));
        for (size, is_outer) in [(2_000_001, true), (2_000_002, false)] {
            // A bytearray has one byte more.
            let is_of_size = |bytes: i64| bytes % (size + 1) == 0 && bytes > 0;
            let of_size = samples.iter().filter(|s| is_of_size(s.allocated[1]));
            let mut count = 0;
            // From 3.11 on, instructions are specialized after some calls, so native frames differ.
            for sample in of_size {
                count += sample.allocated[0];
                check_merged(sample, is_outer);
            }
            assert_eq!(count, 50, "{python:?}: {size}");
        }
    }
}

fn check_merged(sample: &Sample, is_outer: bool) {
    let at = |name: &str| {
        let is_it = |f: &Frame| f.0 == name && f.1.ends_with("merged.py");
        let place = sample.frames.iter().position(is_it);
        place.unwrap_or_else(|| panic!("no {name} in {sample:?}"))
    };
    let [a, b, c] = ["a", "b", "c"].map(at);
    let (inner, outer) = (b - a, c - b);
    assert!(
        if is_outer {
            inner < outer
        } else {
            inner > outer
        },
        "{sample:?}"
    );
}

/// The log has each block of Python's allocators once, with the requested bytes, in every setup of
/// the allocators. Debug hooks add 24 bytes once or twice, 16 of them before the block, and the
/// hook of malloc sees these as a part of the block. There, a request for zero bytes is a request
/// for one byte.
#[test]
fn small_objects_are_recorded_once() {
    if !have(&["python3"]) {
        return;
    }
    let setups = [
        &[][..],
        &[("PYTHONMALLOC", "malloc")],
        &[("PYTHONMALLOC", "debug")],
        &[("PYTHONMALLOC", "malloc_debug")],
        &[("PYTHONDEVMODE", "1")],
        &[("PYTHONTRACEMALLOC", "1")],
    ];
    for (python, setup) in pythons()
        .iter()
        .flat_map(|p| setups.iter().map(move |s| (p, *s)))
    {
        let is_possible = setup.is_empty() || setup[0].0 == "PYTHONTRACEMALLOC";
        if !is_possible && !has_gil(python) {
            continue;
        }
        let what = format!("{} {setup:?}", python.display());
        let (folder, log) = whole_log(python, "objects.py", "--python-objects=yes", setup);
        let mark = log
            .find(" 1234567 ")
            .unwrap_or_else(|| panic!("{what}: {log}"));
        let mut live: HashMap<u64, u64> = HashMap::new();
        let mut seen: HashMap<(&str, u64, u64), usize> = HashMap::new();
        for line in log[mark..].lines().skip(1) {
            let words: Vec<&str> = line.split(' ').collect();
            if !matches!(words[0], "+" | "-") {
                continue;
            }
            let address = u64::from_str_radix(&words[3][2..], 16).unwrap();
            let size = words[4].parse().unwrap();
            *seen.entry((words[0], address, size)).or_default() += 1;
            if words[0] == "-" {
                live.remove(&address);
            } else {
                let before = live.insert(address, size);
                assert_eq!(before, None, "{what}: {line}: is there twice");
            }
        }
        let expected = std::fs::read_to_string(folder.path().join("expected")).unwrap();
        let mut events = Events {
            left: seen,
            of: HashMap::new(),
        };
        let lines: Vec<Vec<&str>> = expected.lines().map(|l| l.split(' ').collect()).collect();
        for line in &lines {
            let [address, size] = [1, 2].map(|i: usize| line[i].parse::<u64>().unwrap());
            let wanted = [
                (address, size.max(1)),
                (address - 16, size + 24),
                (address - 32, size + 48),
            ];
            let wanted = wanted.map(|(address, size)| (line[0], address, size));
            let is_there = events.give(wanted, &mut Vec::new());
            assert!(
                is_there,
                "{what}: {line:?}{}",
                not_in(&log, address, folder.path())
            );
        }
        let count = lines.len();
        assert!(count > 1000, "{what}: {count}");
        let info = command(folder.path())
            .args(["info", "p.pb.gz"])
            .output()
            .unwrap();
        let info = String::from_utf8(info.stdout).unwrap();
        assert!(!info.contains("came again"), "{what}: {info}");
    }
}

/// An event: whether a block was allocated or freed, its address, and its size in bytes.
type Wanted<'a> = (&'a str, u64, u64);

/// Assigns events to expectations. Each expectation accepts any of three events. One expectation
/// may take an event that another needs, because hooks of later blocks may begin where earlier
/// blocks began.
struct Events<'a> {
    left: HashMap<Wanted<'a>, usize>,
    /// The expectations to which each event was assigned.
    of: HashMap<Wanted<'a>, Vec<[Wanted<'a>; 3]>>,
}

impl<'a> Events<'a> {
    /// Assigns one of the wanted events. For that, other expectations may have to change to another
    /// event. Returns false if no event is left. Events in `tried` are skipped.
    fn give(&mut self, wanted: [Wanted<'a>; 3], tried: &mut Vec<Wanted<'a>>) -> bool {
        for event in wanted {
            if tried.contains(&event) {
                continue;
            }
            tried.push(event);
            if let Some(left @ 1..) = self.left.get_mut(&event) {
                *left -= 1;
                self.of.entry(event).or_default().push(wanted);
                return true;
            }
            for i in 0..self.of.get(&event).map_or(0, Vec::len) {
                if self.give(self.of[&event][i], tried) {
                    self.of.get_mut(&event).unwrap()[i] = wanted;
                    return true;
                }
            }
        }
        false
    }
}

#[test]
fn an_event_is_given_to_whoever_has_no_other() {
    let [a, b, c, d] = [1, 2, 3, 4].map(|at| ("+", at, 8));
    let mut events = Events {
        left: HashMap::from([(a, 1), (b, 1), (c, 1)]),
        of: HashMap::new(),
    };
    for wanted in [[a, b, d], [a, d, d], [b, c, d]] {
        assert!(events.give(wanted, &mut Vec::new()));
    }
    assert!(!events.give([a, b, c], &mut Vec::new()));
}

/// Returns a message about a block that is missing in a log: the log's end, its events near that
/// address, and what the recording lacks.
fn not_in(log: &str, address: u64, folder: &Path) -> String {
    let is_near = |line: &&str| {
        let at = line
            .split(' ')
            .nth(3)
            .and_then(|word| word.strip_prefix("0x"));
        let at = at.and_then(|at| u64::from_str_radix(at, 16).ok());
        at.is_some_and(|at| at.abs_diff(address) <= 64)
    };
    let near: Vec<&str> = log.lines().filter(is_near).collect();
    let last = log.lines().last();
    let info = command(folder).args(["info", "p.pb.gz"]).output().unwrap();
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    format!(" ({address:#x}) is not in the log: {near:?} {last:?}\n{info}")
}

/// From the middle on, debug hooks are above our wrappers, and tracemalloc is above the debug
/// hooks. Without `site`, the first check of the allocators comes while Python has replaced one of
/// them temporarily.
#[test]
fn small_objects_are_recorded_below_two_hooks() {
    if !have(&["python3"]) {
        return;
    }
    let program = "import tracemalloc\nkept = [b'%0100d' % i for i in range(9000)]\n\
                   tracemalloc.start()\nmore = [b'%0100d' % i for i in range(9000)]";
    for (python, site) in pythons()
        .iter()
        .flat_map(|p| [&[][..], &["-S"]].map(|site| (p, site)))
    {
        let what = format!("{} {site:?}", python.display());
        let hooks = if has_gil(python) {
            &["-X", "dev"][..]
        } else {
            &[]
        };
        let folder = tempfile::tempdir().unwrap();
        let done: Run = command(folder.path())
            .args(["record", "--exact", "--python-objects=yes", "-o", "p.pb.gz"])
            .args(["--no-symbolize", "--"])
            .arg(python)
            .args(site)
            .args(hooks)
            .args(["-c", program])
            .output()
            .unwrap()
            .into();
        assert_eq!(done.code, 0, "{what}: {}", done.err);
        let profile = read(&folder.path().join("p.pb.gz"));
        let comments = crate::scripts::comments(&profile);
        let is_recorded = |text: &&str| text.starts_with("python: small objects: recorded");
        assert!(comments.iter().any(is_recorded), "{what}: {comments:?}");
        // Each of these lines keeps 9,000 objects of 133 bytes.
        for line in [2, 4] {
            let is_there = |frame: &Frame| frame.1 == "<string>" && frame.2 == line;
            let samples = samples(&profile);
            let of_line = samples.iter().filter(|s| s.frames.iter().any(is_there));
            let bytes: i64 = of_line.map(|sample| sample.allocated[1]).sum();
            assert!(bytes >= 9000 * 133, "{what}: {line}: {bytes}");
        }
    }
}

/// A Python without the GIL has all objects, of every size, in its own allocator. They are recorded
/// unless an option excludes them, and then this is reported.
#[test]
fn objects_of_a_python_without_the_gil_are_recorded() {
    if !have(&["python3"]) {
        return;
    }
    let known = ["python3.13t", "python3.14t"].map(PathBuf::from);
    let runs = |python: &PathBuf| Command::new(python).arg("-V").output().is_ok();
    let mut pythons: Vec<PathBuf> = known.into_iter().filter(runs).collect();
    pythons.extend(
        self::pythons()
            .into_iter()
            .filter(|python| !has_gil(python)),
    );
    if pythons.is_empty() {
        eprintln!("no python without the GIL: oracle/build-free-threaded.sh builds some");
        return;
    }
    // Threads allocate large and small objects, and free objects of other threads.
    let program = "import queue, threading\n\
                   kept, given = [], queue.SimpleQueue()\n\
                   def large(): kept.append(bytearray(5_000_000))\n\
                   def small(): kept.append([b'%0100d' % i for i in range(50_000)])\n\
                   def both():\n    large(); small()\n    \
                   for i in range(20_000): given.put(bytes(3000 + i % 7))\n    \
                   for i in range(20_000): given.get()\n\
                   all = [threading.Thread(target=both) for _ in range(4)]\n\
                   [t.start() for t in all]; [t.join() for t in all]\n\
                   ";
    for python in pythons {
        let recorded = |options: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            let done: Run = command(folder.path())
                .args(["record", "-o", "p.pb.gz"])
                .args(options)
                .arg("--")
                .arg(&python)
                .args(["-c", program])
                .output()
                .unwrap()
                .into();
            assert_eq!(done.code, 0, "{python:?}: {}", done.err);
            (read(&folder.path().join("p.pb.gz")), done.err)
        };
        for options in [&["--exact"][..], &["--exact", "--python-objects=yes"]] {
            let (profile, said) = recorded(options);
            let is_wrong = |said: &str| said.contains("-objects") || said.contains("of its own");
            assert!(!is_wrong(&said), "{python:?}: {said}");
            let samples = samples(&profile);
            let of = |name: &str| {
                let is_it = |frame: &Frame| frame.0 == name && frame.1 == "<string>";
                let all = samples
                    .iter()
                    .filter(|s| s.frames.first().is_some_and(is_it));
                all.fold([0, 0], |sum: [i64; 2], s| {
                    [sum[0] + s.allocated[0], sum[1] + s.allocated[1]]
                })
            };
            // A bytearray has one byte more. An object of 100 bytes has 49 bytes for its header and
            // end.
            assert!(
                of("large")[1] >= 4 * 5_000_001,
                "{python:?}: {:?}",
                of("large")
            );
            assert!(
                of("large")[1] < 4 * 5_100_000,
                "{python:?}: {:?}",
                of("large")
            );
            let [objects, bytes] = of("small");
            assert!(objects >= 200_000, "{python:?}: {objects}");
            assert!(bytes >= 200_000 * 149, "{python:?}: {bytes}");
            assert!(
                of("both")[1] >= 80_000 * 3000,
                "{python:?}: {:?}",
                of("both")
            );
        }
        let (profile, said) = recorded(&["--exact", "--python-objects=no"]);
        let comments = crate::scripts::comments(&profile);
        let is_said = |text: &&str| {
            text.starts_with("python: small objects: missing, like all other objects")
        };
        assert!(comments.iter().any(is_said), "{python:?}: {comments:?}");
        assert!(said.contains("without the GIL"), "{python:?}: {said}");
    }
}

/// CPython contains mimalloc since 3.13. In other programs, such an allocator is an obstacle.
#[test]
fn the_allocator_inside_a_python_is_no_obstacle() {
    if !have(&["gcc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (source, is_obstacle) in [
        ("void *mi_malloc(unsigned long n) { return 0; }", true),
        (
            "void *mi_malloc(unsigned long n) { return 0; }\n\
             void *PyObject_Malloc(unsigned long n) { return 0; }",
            false,
        ),
    ] {
        let text = format!("{source}\nint main(void) {{ return 0; }}\n");
        std::fs::write(folder.path().join("p.c"), text).unwrap();
        let built = Command::new("gcc")
            .args(["-o", "p", "p.c"])
            .current_dir(folder.path())
            .status();
        assert!(built.unwrap().success());
        let done: Run = command(folder.path())
            .args(["record", "-o", "p.pb.gz", "--", "./p"])
            .output()
            .unwrap()
            .into();
        let is_said = done.err.contains("the blocks of mimalloc inside");
        assert_eq!(is_said, is_obstacle, "{source}: {}", done.err);
    }
}

//! `heapprof attach` and `heapprof detach`: programs that were started without heapprof, and each
//! hazard of docs/dev/attach.md. `attach/refused.rs` tests which programs are refused.

mod container;
mod entries;
mod python;
mod refused;
mod state;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use heapprof_tests::built::{Built, build, have, library};
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{Run, command, is_root, root, run};
use heapprof_tests::needs;

/// A program that waits for lines on its input.
pub(crate) struct Waiting {
    pub(crate) folder: tempfile::TempDir,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Waiting {
    pub(crate) fn start(mut command: Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        output.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self {
            folder,
            child,
            input,
            output,
        }
    }

    pub(crate) fn new(program: &Path, how: &str) -> Self {
        let mut command = Command::new(program);
        command.arg(how);
        Self::start(command)
    }

    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn ask(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        said
    }

    /// Lets the program work once, and checks that it succeeds.
    pub(crate) fn work(&mut self) {
        self.ask();
        assert_eq!(self.answer(), "done\n");
    }

    fn run(&self, words: &[&str]) -> Run {
        run(self.folder.path(), words)
    }

    /// Attaches, lets the program work `times`, and detaches. Returns the output of attach.
    fn attached(&mut self, times: usize) -> Run {
        let attach = Attach::begin(self.folder.path(), &self.pid(), &["--exact"]);
        for _ in 0..times {
            self.work();
        }
        attach.leave()
    }

    /// Returns the total of a sample type in the profile.
    pub(crate) fn total(&self, sample_type: &str) -> i64 {
        total(self.folder.path(), "p.pb.gz", sample_type)
    }

    pub(crate) fn end(mut self) -> ExitStatus {
        self.input = None;
        self.child.wait().unwrap()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn total(folder: &Path, profile: &str, sample_type: &str) -> i64 {
    let words = ["top", "-n", "1", "-t", sample_type, "-f", "json", profile];
    json(folder, &words)["total"].as_i64().unwrap()
}

/// A running `heapprof attach`.
pub(crate) struct Attach {
    child: Child,
    errors: BufReader<std::process::ChildStderr>,
    said: String,
}

impl Attach {
    /// Attaches, and waits until the recording runs.
    pub(crate) fn begin(folder: &Path, pid: &str, options: &[&str]) -> Self {
        let mut attach = Self::spawn(folder, pid, options, "p.pb.gz");
        assert!(attach.waits_until_it_records(), "{}", attach.said);
        attach
    }

    fn spawn(folder: &Path, pid: &str, options: &[&str], profile: &str) -> Self {
        let mut attach = command(folder);
        attach
            .arg("attach")
            .args(options)
            .args(["-o", profile, pid]);
        let mut child = attach.stderr(Stdio::piped()).spawn().unwrap();
        Self {
            errors: BufReader::new(child.stderr.take().unwrap()),
            child,
            said: String::new(),
        }
    }

    /// Waits until attach records. Returns false if it ends before.
    fn waits_until_it_records(&mut self) -> bool {
        while !self.said.contains("recording") {
            if self.errors.read_line(&mut self.said).unwrap() == 0 {
                return false;
            }
        }
        true
    }

    /// Makes attach detach, as Ctrl-C does.
    pub(crate) fn leave(self) -> Run {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status().unwrap();
        self.finish()
    }

    /// Waits until attach has ended.
    fn finish(mut self) -> Run {
        use std::io::Read;
        self.errors.read_to_string(&mut self.said).unwrap();
        let status = self.child.wait().unwrap();
        Run {
            code: status.code().unwrap_or(-1),
            out: String::new(),
            err: self.said,
        }
    }
}

const HOSTILE: &str = include_str!("../attach/hostile.c");

/// Builds the hostile program with these options, and its libraries.
pub(crate) fn hostile(options: &str) -> Built {
    attachable("gcc", HOSTILE, options)
}

/// Builds a program with a compiler and these options, and the library that it loads.
fn attachable(compiler: &str, source: &str, options: &str) -> Built {
    let line = format!("{compiler} -O1 -g -fno-builtin -pthread -Wl,-rpath,$ORIGIN {options}");
    let built = build(source, &line);
    let plugin = root().join("tests/attach/plugin.c");
    built.run(&format!(
        "{compiler} -O1 -g -shared -fPIC -fno-builtin {} -o libplugin.so",
        plugin.display()
    ));
    built
}

/// Returns the compilers of this machine: that of its own libc, and that of musl, which has none of
/// the kernel's headers itself.
fn compilers() -> impl Iterator<Item = &'static str> {
    let musl = "musl-gcc -Wl,--eh-frame-hdr -idirafter /usr/include \
                -idirafter /usr/include/x86_64-linux-gnu";
    let all = [("gcc", "gcc"), ("musl-gcc", musl)].into_iter();
    all.filter_map(|(name, line)| have(&[name]).then_some(line))
}

#[test]
fn what_happens_while_somebody_is_attached_is_counted_and_nothing_else() {
    let options = ["-pie -fPIE", "-no-pie -fno-pie", "-fno-plt -Wl,-z,now"];
    let builds = compilers().flat_map(|gcc| options.map(|options| (gcc, options)));
    for (compiler, options) in builds {
        let built = attachable(compiler, HOSTILE, options);
        let mut program = Waiting::new(&built.path("program"), "");
        for _ in 0..3 {
            let said = program.attached(5);
            assert_eq!(said.code, 0, "{}", said.err);
            // Frees of blocks from before the recording do not count.
            assert_eq!(
                program.total("alloc_objects"),
                50,
                "{compiler} {options}: {}",
                said.err
            );
            let in_use = program.total("inuse_space");
            assert_eq!(in_use, 10_000, "{compiler} {options}");
            // Now no recording counts.
            program.work();
        }
        let info = program.run(&["info", "p.pb.gz"]).out;
        assert!(
            info.contains("blocks allocated before are not in it"),
            "{info}"
        );
        assert_eq!(program.end().code(), Some(7));
    }
}

#[test]
fn other_allocators_are_attached_to() {
    if !have(&["gcc"]) {
        return;
    }
    let built = hostile("-no-pie -fno-pie");
    for name in [
        "libjemalloc.so.2",
        "libtcmalloc_minimal.so.4",
        "libmimalloc.so.2",
    ] {
        let Some(path) = library(name) else {
            continue;
        };
        let linked = hostile(&format!("-Wl,--no-as-needed {path}"));
        let mut preloaded = Command::new(built.path("program"));
        preloaded.arg("").env("LD_PRELOAD", &path);
        for mut program in [
            Waiting::start(preloaded),
            Waiting::new(&linked.path("program"), ""),
        ] {
            let said = program.attached(5);
            assert_eq!(program.total("alloc_objects"), 50, "{name}: {}", said.err);
            assert_eq!(program.end().code(), Some(7), "{name}");
        }
    }
}

#[test]
fn libraries_that_come_later_are_found_as_the_program_finds_them_and_counted() {
    compilers().for_each(load_later);
}

fn load_later(compiler: &str) {
    let built = attachable(compiler, HOSTILE, "");
    let mut program = Waiting::new(&built.path("program"), "plugin");
    for _ in 0..3 {
        let said = program.attached(3);
        assert_eq!(said.code, 0, "{}", said.err);
        // Each time, the plugin keeps ten blocks, and loading it allocates, too.
        let made = |name: &str| {
            let words = ["peek", "-t", "alloc_objects", name, "p.pb.gz"];
            program.run(&words).out
        };
        let top = program.run(&["top", "-t", "alloc_objects", "p.pb.gz"]).out;
        assert!(
            top.contains("plugin_make"),
            "{top}\n{}",
            made("plugin_make")
        );
        let of = |function: &str| {
            let line = top.lines().find(|line| line.ends_with(function));
            let first = line.and_then(|line| line.split_whitespace().next());
            first.unwrap_or("0").parse::<i64>().unwrap()
        };
        assert_eq!((of("plugin_make"), of("work")), (600, 330), "{top}");
        // Everything that the plugin allocated was freed, by the plugin or by the program.
        let inuse = program.run(&["top", "-t", "inuse_objects", "p.pb.gz"]).out;
        assert!(!inuse.contains("plugin_make"), "{inuse}");
    }
    assert_eq!(program.end().code(), Some(7));
}

#[test]
fn a_program_that_checks_itself_finds_nothing() {
    compilers().for_each(check_itself);
}

fn check_itself(compiler: &str) {
    let source = include_str!("../attach/checks_itself.c");
    let built = attachable(compiler, source, "-O2 -Wl,--no-as-needed -lm");
    let mut command = Command::new(built.path("program"));
    command.arg("0");
    let mut program = Waiting::start(command);
    for round in 0..12 {
        let mode: &[&str] = match round % 3 {
            0 => &["--period", "4KiB"],
            _ => &["--exact"],
        };
        let pid = program.pid();
        let words = [&["attach"], mode, &["--for", "50ms", "-o", "p.pb.gz", &pid]].concat();
        let said = program.run(&words);
        assert_eq!(said.code, 0, "{}", said.err);
    }
    Command::new("kill").arg(program.pid()).status().unwrap();
    let mut said = String::new();
    while program.output.read_line(&mut said).unwrap() > 0 {}
    assert_eq!(program.child.wait().unwrap().code(), Some(0), "{said}");
    // No wait of any kind was interrupted.
    let mut waits = said.lines().filter(|line| line.contains("interrupted"));
    assert_eq!(waits.clone().count(), 10, "{compiler}: {said}");
    assert!(waits.all(|line| line.ends_with(" 0")), "{compiler}: {said}");
}

#[test]
fn threads_that_change_their_user_do_not_wait_for_a_diverted_thread() {
    for compiler in compilers() {
        let source = include_str!("../attach/changes_user.c");
        let built = attachable(compiler, source, "");
        let program = Waiting::new(&built.path("program"), "");
        for _ in 0..5 {
            let words = ["attach", &program.pid(), "--for", "20ms", "-o", "p.pb.gz"];
            let said = program.run(&words);
            assert_eq!(said.code, 0, "{compiler}: {}", said.err);
            let is_left = !said.err.contains("not finished");
            assert!(is_left, "{compiler}: {}", said.err);
        }
        assert_eq!(program.end().code(), Some(7), "{compiler}");
    }
}

#[test]
fn small_stacks_are_enough() {
    for compiler in compilers() {
        let built = attachable(compiler, HOSTILE, "");
        let mut program = Waiting::new(&built.path("program"), "small");
        let said = program.attached(4);
        let made = program.total("alloc_objects");
        assert_eq!(made, 40, "{compiler}: {}", said.err);
        assert_eq!(program.end().code(), Some(7));
    }
}

#[test]
fn children_are_not_recorded_and_work_as_ever() {
    for compiler in compilers() {
        let built = attachable(compiler, HOSTILE, "");
        let mut program = Waiting::new(&built.path("program"), "fork");
        let said = program.attached(5);
        let made = program.total("alloc_objects");
        assert_eq!(made, 50, "{compiler}: {}", said.err);
        assert_eq!(program.end().code(), Some(7));
    }
}

#[test]
fn a_profile_is_written_when_the_program_ends_or_becomes_another() {
    compilers().for_each(end_while_attached);
}

fn end_while_attached(compiler: &str) {
    let built = attachable(compiler, HOSTILE, "");
    for (how, end) in [
        ("kill", "has ended"),
        ("exec", "another program"),
        ("", "has ended"),
    ] {
        let mut program = Waiting::new(&built.path("program"), how);
        let attach = Attach::begin(program.folder.path(), &program.pid(), &["--exact"]);
        program.work();
        program.input = None;
        let said = attach.finish();
        assert_eq!(said.code, 0, "{how}: {}", said.err);
        assert!(said.err.contains(end), "{how}: {}", said.err);
        assert_eq!(program.total("alloc_objects"), 10, "{how}: {}", said.err);
        let top = program.run(&["top", "--sort", "cum", "p.pb.gz"]).out;
        assert!(top.contains("keep"), "{how}: {top}");
    }
}

#[test]
fn what_is_left_attached_is_seen_taken_over_and_left() {
    compilers().for_each(leave_attached);
}

fn leave_attached(compiler: &str) {
    let built = attachable(compiler, HOSTILE, "");
    let mut program = Waiting::new(&built.path("program"), "");
    let pid = program.pid();
    let said = program.run(&["detach", &pid]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("no process is attached"), "{}", said.err);
    let mut attach = Attach::begin(program.folder.path(), &pid, &["--exact"]);
    let second = program.run(&["attach", &pid, "--for", "1s"]);
    assert_eq!(second.code, 2);
    assert!(
        second.err.contains("is already attached to it"),
        "{}",
        second.err
    );
    program.work();
    assert_eq!(
        total(
            program.folder.path(),
            &format!("pid:{pid}"),
            "alloc_objects"
        ),
        10
    );
    attach.child.kill().unwrap();
    attach.child.wait().unwrap();
    program.work();
    let taken = program.attached(2);
    assert!(taken.err.contains("without detaching"), "{}", taken.err);
    assert_eq!(program.total("alloc_objects"), 20);
    let mut attach = Attach::begin(program.folder.path(), &pid, &["--exact"]);
    attach.child.kill().unwrap();
    attach.child.wait().unwrap();
    let said = program.run(&["detach", &pid]);
    assert_eq!(said.code, 0, "{}", said.err);
    // Another process detaches while attach waits.
    let attach = Attach::begin(program.folder.path(), &pid, &["--exact"]);
    program.work();
    let read = ["dump", &pid, "-o", "read.pb.gz"];
    let before = program.run(&read);
    assert!(!before.err.contains("has ended"), "{}", before.err);
    assert_eq!(program.run(&["detach", &pid]).code, 0);
    let said = attach.finish();
    assert!(
        said.err
            .contains("another heapprof has ended its recording"),
        "{}",
        said.err
    );
    assert_eq!(program.total("alloc_objects"), 10);
    // The recording is still there, and commands that read it report that it has ended.
    for words in [&read[..], &["top", &format!("pid:{pid}")]] {
        let after = program.run(words);
        assert_eq!(after.code, 0, "{}", after.err);
        let is_told = after.err.contains("its recording has ended");
        assert!(is_told, "{words:?}: {}", after.err);
    }
    assert_eq!(program.end().code(), Some(7));
}

#[test]
fn filters_are_read_by_root_and_kept_to() {
    if !have(&["gcc"]) {
        return;
    }
    if !is_root() {
        needs::cannot("root, who reads filters of system calls");
        return;
    }
    let built = hostile("");
    let mut program = Waiting::new(&built.path("program"), "harmless-filter");
    let said = program.attached(2);
    assert_eq!(program.total("alloc_objects"), 20, "{}", said.err);
    assert_eq!(program.end().code(), Some(7));
    // A filter that the program installs later is detected before it takes effect.
    let mut program = Waiting::new(&built.path("program"), "filter");
    let said = program.attached(1);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(program.end().code(), Some(7), "{}", said.err);
}

#[test]
fn perl_has_its_own_frames() {
    if !have(&["perl"]) {
        return;
    }
    let mut command = Command::new("perl");
    let script = "$| = 1; print \"ready\\n\"; \
        sub hoard { push @all, 'x' x 10000 for 1 .. 10 } \
        while (<STDIN>) { hoard(); print \"done\\n\" }";
    command.args(["-e", script]);
    let mut program = Waiting::start(command);
    program.work();
    let said = program.attached(5);
    assert_eq!(said.code, 0, "{}", said.err);
    let top = program.run(&["top", "p.pb.gz"]).out;
    assert!(top.contains("main::hoard"), "{top}");
    assert_eq!(program.end().code(), Some(0));
}

#[test]
fn the_pages_show_what_is_said() {
    let folder = tempfile::tempdir().unwrap();
    if !heapprof_tests::built::example(folder.path(), "sessions", "") {
        return;
    }
    let mut sessions = Command::new(folder.path().join("sessions"));
    let mut sessions = sessions.arg("60").spawn().unwrap();
    let pid = sessions.id().to_string();
    let words = ["attach", &pid, "--exact", "--for", "3s", "-o", "now.pb.gz"];
    let said = run(folder.path(), &words);
    sessions.kill().unwrap();
    sessions.wait().unwrap();
    let top = run(folder.path(), &["top", "now.pb.gz"]).out;
    let words = ["traces", "-t", "alloc_objects", "--ascending", "now.pb.gz"];
    let traces = run(folder.path(), &words)
        .out
        .replace("now.pb.gz", "x.pb.gz");
    // The documented output contains local names of libc, too.
    if !traces.contains("__libc_start_call_main") {
        needs::miss("debug information of libc", "libc6-dbg");
        return;
    }
    // Numbers differ from run to run, and so do the widths of their columns.
    let numbers = regex::Regex::new(r"[0-9.]+(KiB|MiB|B)?").unwrap();
    let spaces = regex::Regex::new(r"[ ]+").unwrap();
    let plain = |text: &str| {
        let text = numbers.replace_all(text, "N").into_owned();
        spaces.replace_all(&text, " ").into_owned()
    };
    let page = |name: &str| {
        let text = std::fs::read_to_string(root().join("docs").join(name)).unwrap();
        plain(&text)
    };
    let guide = page("guide/running-programs.md");
    let command = page("commands/attach.md");
    for (shown, page) in [
        (&said.err, &guide),
        (&top, &guide),
        (&said.err, &command),
        (&traces, &command),
    ] {
        assert!(page.contains(&plain(shown)), "{}", plain(shown));
    }
}

/// If two processes attach at once to a program that was never attached to, one of them is refused
/// because of the other.
#[test]
fn of_two_who_attach_at_once_one_is_told_of_the_other() {
    if !have(&["gcc"]) {
        return;
    }
    let built = hostile("-pie -fPIE");
    for _ in 0..5 {
        let mut program = Waiting::new(&built.path("program"), "");
        let folder = program.folder.path();
        let both = ["a.pb.gz", "b.pb.gz"];
        let mut both = both.map(|name| Attach::spawn(folder, &program.pid(), &[], name));
        let records = both.each_mut().map(Attach::waits_until_it_records);
        assert!(records[0] != records[1], "{:?}", both.map(|one| one.said));
        program.work();
        let [winner, loser] = match (records, both) {
            ([true, _], [a, b]) => [a, b],
            (_, [a, b]) => [b, a],
        };
        let refused = loser.finish();
        assert_eq!(refused.code, 2, "{}", refused.err);
        let said = [
            "is already attached to it",
            "another heapprof is attaching to it",
        ];
        let is_told = said.iter().any(|text| refused.err.contains(text));
        assert!(is_told, "{}", refused.err);
        let left = winner.leave();
        assert_eq!(left.code, 0, "{}", left.err);
        program.work();
        assert_eq!(program.end().code(), Some(7));
    }
}

//! Recorded processes, read from outside while they run, and the core file of one.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::fixtures::row_of;
use heapprof_tests::harness::{Run, command, is_root, preloaded, program_of, run};
use heapprof_tests::waits::{ended, wait_for};
use serde_json::Value;

/// Threads allocate and end. Then the program obeys lines on its input: `d` makes a dump, and `a`
/// allocates some more.
const BARRIER: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static void *volatile kept[64][3000];
    __attribute__((noinline)) void *leaf(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    __attribute__((noinline)) void *deep(int n, size_t size) {
        void *p = n ? deep(n - 1, size) : leaf(size);
        __asm__ volatile("" ::: "memory");
        return p;
    }
    __attribute__((noinline)) void *work(void *number) {
        long t = (long)number;
        for (int i = 0; i < 3000; i++) {
            kept[t][i] = deep(i % 20, 16 + i % 900);
            if (i % 3 == 0) { free((void *)kept[t][i]); kept[t][i] = 0; }
            free(leaf(64));
            /* The stack of one of these is the oldest part of the other's. */
            void *(*volatile ways[2])(size_t) = { leaf, malloc };
            free(ways[i & 1](24));
        }
        return 0;
    }
    int main(int argc, char **argv) {
        int threads = atoi(argv[1]);
        pthread_t ids[64];
        for (long i = 0; i < threads; i++) pthread_create(&ids[i], 0, work, (void *)i);
        for (int i = 0; i < threads; i++) pthread_join(ids[i], 0);
        static char line[100], buffer[1000];
        setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
        setvbuf(stdin, 0, _IONBF, 0);
        write(1, "ready\n", 6);
        while (read(0, line, sizeof line) > 0) {
            if (*line == 'd') {
                int (*dump)(const char *);
                *(void **)&dump = dlsym(RTLD_DEFAULT, "heapprof_dump");
                if (dump) dump("barrier.pb.gz");
            }
            if (*line == 'a') for (int i = 0; i < 1000; i++) leaf(1000);
            write(1, "done\n", 5);
        }
        return 0;
    }
"#;

/// A program that waits for lines.
struct Waiting {
    folder: tempfile::TempDir,
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
    pid: u32,
}

impl Waiting {
    fn new(built: &Built, options: &[&str], words: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = built.path("program");
        let mut record = command(folder.path());
        record
            .arg("record")
            .args(options)
            .args(["-o", "p.pb.gz", "--"]);
        record.arg(&program).args(words);
        record
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = record.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        output.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let pid = program_of(child.id());
        Self {
            folder,
            child,
            input,
            output,
            pid,
        }
    }

    fn say(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).unwrap();
        let mut done = String::new();
        self.output.read_line(&mut done).unwrap();
        assert_eq!(done, "done\n");
    }

    fn run(&self, words: &[&str]) -> Run {
        run(self.folder.path(), words)
    }

    fn name(&self) -> String {
        format!("pid:{}", self.pid)
    }

    /// Makes the program write a dump, and returns it with names.
    fn dumped(&mut self) -> PathBuf {
        self.say("dump\n");
        let folder = self.folder.path();
        let dump = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().contains("barrier"))
            .unwrap();
        let named = folder.join("named.pb.gz");
        let words = [
            "symbolize",
            dump.to_str().unwrap(),
            "-o",
            named.to_str().unwrap(),
        ];
        assert_eq!(run(folder, &words).code, 0);
        named
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.pid.to_string()).status();
        let _ = self.child.wait();
    }
}

fn program() -> Option<Built> {
    have(&["gcc"]).then(|| {
        build(
            BARRIER,
            "gcc -O1 -g -pthread -fno-builtin -fno-optimize-sibling-calls",
        )
    })
}

/// Returns the output of a command for a profile, without parts that depend on a name or a moment.
fn said(waiting: &Waiting, words: &[&str], profile: &str) -> Value {
    let words: Vec<&str> = words
        .iter()
        .map(|&word| if word == "PROFILE" { profile } else { word })
        .collect();
    let run = waiting.run(&words);
    assert_eq!(run.code, 0, "{words:?}: {}", run.err);
    let mut value: Value =
        serde_json::from_str(&run.out).unwrap_or_else(|_| Value::String(run.out.clone()));
    forget(&mut value);
    value
}

/// Removes from an answer the parts in which two readings of one moment may differ.
fn forget(value: &mut Value) {
    const CHANGES: [&str; 11] = [
        "dump",
        "profile",
        "name",
        "time_nanos",
        "start_nanos",
        "duration_nanos",
        "rss",
        "peak_rss",
        // The peak may be at this very moment.
        "peak_since_nanos",
        "comments",
        "micros",
    ];
    match value {
        Value::Object(members) => {
            members.retain(|key, _| !CHANGES.contains(&key.as_str()));
            members.values_mut().for_each(forget);
        }
        Value::Array(all) => all.iter_mut().for_each(forget),
        _ => {}
    }
}

/// Ten commands give the same answers about a process and about the dump that it made at the same
/// moment.
#[test]
fn a_process_that_waits_is_read_as_it_dumps() {
    let Some(built) = program() else { return };
    for (options, threads) in [
        (&["--exact"][..], "1"),
        (&["--exact", "--threads"], "4"),
        (&["--period", "4KiB"], "3"),
    ] {
        let mut waiting = Waiting::new(&built, options, &[threads]);
        let dump = waiting.dumped();
        let (dump, name) = (dump.to_str().unwrap().to_string(), waiting.name());
        for words in [
            &["top", "-n", "0", "-f", "json", "PROFILE"][..],
            &[
                "top",
                "-n",
                "0",
                "-f",
                "json",
                "-t",
                "alloc_objects",
                "-g",
                "lines",
                "PROFILE",
            ],
            &[
                "top",
                "-n",
                "0",
                "-f",
                "json",
                "-t",
                "peak_space",
                "PROFILE",
            ],
            &["tree", "--full", "-f", "json", "PROFILE"],
            &["peek", "-f", "json", "leaf", "PROFILE"],
            &["list", "-f", "json", "deep", "PROFILE"],
            &["traces", "-n", "0", "-f", "json", "PROFILE"],
            &["tags", "-f", "json", "PROFILE"],
            &["stats", "-f", "json", "PROFILE"],
            &["leaks", "-n", "0", "-f", "json", "PROFILE"],
            &["flame", "-f", "folded", "PROFILE"],
        ] {
            let (of_process, of_dump) =
                (said(&waiting, words, &name), said(&waiting, words, &dump));
            assert_eq!(of_process, of_dump, "{options:?}: {words:?}");
        }
        let diff = waiting.run(&["diff", "-f", "json", &dump, &name]);
        let diff: Value = serde_json::from_str(&diff.out).unwrap();
        assert_eq!(diff["total"]["delta"], 0, "{diff}");
        // The process goes on, and its numbers grow.
        let before = said(&waiting, &["top", "-f", "json", "PROFILE"], &name);
        waiting.say("allocate\n");
        let after = said(&waiting, &["top", "-f", "json", "PROFILE"], &name);
        assert!(
            after["total"].as_i64() > before["total"].as_i64(),
            "{after}"
        );
    }
}

/// A process of an interpreter is listed with its script, but with no other part of its command
/// line.
#[test]
fn a_script_is_listed_beside_its_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let script = "until test -e go; do sleep 0.05; done";
    std::fs::write(folder.path().join("worker.sh"), script).unwrap();
    let mut record = command(folder.path());
    record.args(["record", "-q", "--", "sh", "./worker.sh", "--password=x"]);
    let mut record = record.spawn().unwrap();
    let row = wait_for("the script in the list", || {
        let list = run(folder.path(), &["ps", "-f", "json"]).out;
        let list: Value = serde_json::from_str(&list).ok()?;
        let mut rows = list.as_array()?.iter();
        rows.find(|row| row["called"] == "worker.sh").cloned()
    });
    std::fs::write(folder.path().join("go"), "").unwrap();
    assert!(ended(&mut record).success());
    assert!(!row.to_string().contains("password"), "{row}");
}

/// `ps` lists the process, `dump` writes a profile of it, and its name finds it.
#[test]
fn recorded_processes_are_listed_and_dumped() {
    let Some(built) = program() else { return };
    let waiting = Waiting::new(&built, &["--exact"], &["2"]);
    let list = waiting.run(&["ps", "-f", "json"]);
    let list: Value = serde_json::from_str(&list.out).unwrap();
    let list = list.as_array().unwrap();
    let own = list.iter().find(|row| row["pid"] == waiting.pid).unwrap();
    assert_eq!(
        (&own["program"], &own["mode"]),
        (&"program".into(), &"exact".into())
    );
    assert!(own["inuse_space"].as_i64() > Some(1_000_000), "{own}");
    let text = waiting.run(&["ps"]).out;
    assert!(text.contains("program") && text.contains("exact"), "{text}");

    let dumped = waiting.run(&["dump", &waiting.pid.to_string()]);
    assert_eq!(dumped.code, 0, "{}", dumped.err);
    let file = format!("heapprof.program.{}.1.pb.gz", waiting.pid);
    let path = waiting.folder.path().join(&file);
    assert_eq!(
        std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap()) & 0o777,
        0o600
    );
    let top = ["top", "-n", "0", "-f", "json", "PROFILE"];
    assert_eq!(
        said(&waiting, &top, &file),
        said(&waiting, &top, &waiting.name())
    );
    // Another dump gets another name.
    assert_eq!(waiting.run(&["dump", &waiting.name()]).code, 0);
    assert!(
        waiting
            .folder
            .path()
            .join(format!("heapprof.program.{}.2.pb.gz", waiting.pid))
            .exists()
    );

    // Without a terminal, `live` prints blocks of lines.
    let mut live = command(waiting.folder.path());
    live.args(["live", &waiting.pid.to_string()])
        .stdin(Stdio::null());
    let mut live = live.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(live.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("leaf")));
    live.kill().unwrap();
    live.wait().unwrap();
}

/// A target that can't be read is reported in one line, and nothing changes.
#[test]
fn what_is_not_recorded_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
    let pid = format!("pid:{}", sleeper.id());
    std::fs::write(folder.path().join("text"), "no core").unwrap();
    for (name, wanted) in [
        (pid.as_str(), "is not recorded by heapprof"),
        ("pid:999999999", "there is no such process"),
        ("pid:no such program", "no process with this name"),
        ("pid:", "does not name a process"),
        ("core:nothing", "cannot be read"),
        ("core:text", "not a readable core file"),
        ("core:/bin/sh", "another kind of ELF file"),
    ] {
        let run = run(folder.path(), &["top", name]);
        assert_eq!(run.code, 2, "{name}: {}", run.err);
        assert!(run.err.contains(wanted), "{name}: {}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{name}: {}", run.err);
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    // An existing file with such a name is read as a file.
    let sample = heapprof_tests::harness::sample_profiles().join("valid/go.leaky.after.pb.gz");
    std::fs::copy(sample, folder.path().join("pid:1")).unwrap();
    assert_eq!(run(folder.path(), &["top", "pid:1"]).code, 0);
}

/// A core file gives the same answers as its process.
#[test]
fn a_core_file_is_read_as_its_process() {
    let Some(built) = program() else { return };
    if !have(&["gdb"]) {
        return;
    }
    let waiting = Waiting::new(&built, &["--exact"], &["2"]);
    let core = waiting.folder.path().join("core");
    let made = Command::new("gcore")
        .arg("-o")
        .arg(&core)
        .arg(waiting.pid.to_string())
        .output();
    assert!(made.unwrap().status.success());
    let name = format!("core:{}.{}", core.display(), waiting.pid);
    let top = ["top", "-n", "0", "-f", "json", "PROFILE"];
    assert_eq!(
        said(&waiting, &top, &name),
        said(&waiting, &top, &waiting.name())
    );
}

/// Reading a program that does everything at once never gives an impossible result.
#[test]
fn a_program_in_motion_is_read() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(
        r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void *volatile sink;
        static int full;
        __attribute__((noinline)) void *leaf(size_t n) { void *p = malloc(n); sink = p; return p; }
        __attribute__((noinline)) void nest(int n) { if (n) nest(n - 1); else free(leaf(100)); __asm__ volatile(""); }
        static void *churn(void *x) {
            void *held[200] = {0};
            for (unsigned i = 0;; i++) {
                if (i == 200 && __atomic_add_fetch(&full, 1, __ATOMIC_SEQ_CST) == 3) close(creat("full", 0600));
                nest(i % 50);
                free(held[i % 200]);
                held[i % 200] = leaf(10 + i % 3000);
            }
            return x;
        }
        static void *brief(void *x) { free(leaf(7)); return x; }
        int main(void) {
            pthread_t ids[3];
            write(1, "begun\n", 6);
            for (int i = 0; i < 3; i++) pthread_create(&ids[i], 0, churn, 0);
            for (unsigned i = 0;; i++) {
                pthread_t one;
                if (pthread_create(&one, 0, brief, 0) == 0) pthread_join(one, 0);
                void *library = dlopen("libm.so.6", RTLD_NOW);
                if (library) dlclose(library);
                if (i % 10 == 0) {
                    pid_t child = fork();
                    if (child == 0) { for (int n = 0; n < 1000; n++) free(leaf(50)); _exit(0); }
                    waitpid(child, 0, 0);
                }
            }
        }
        "#,
        "gcc -O1 -g -pthread -fno-builtin",
    );
    let folder = tempfile::tempdir().unwrap();
    let mut program = preloaded(built.path("program"));
    program
        .current_dir(folder.path())
        .env("HEAPPROF_MODE", "exact")
        .env("HEAPPROF_OUTPUT", "p.pb.gz");
    let mut program = program.stdout(Stdio::piped()).spawn().unwrap();
    let mut begun = String::new();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    output.read_line(&mut begun).unwrap();
    let name = format!("pid:{}", program.id());
    let rounds = std::env::var("HEAPPROF_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(60);
    let is_full = || folder.path().join("full").exists();
    let (mut read, mut full) = (0, 0);
    // It may take a while until the program's threads have all their blocks.
    while read < rounds || full < rounds / 2 {
        let was_full = is_full();
        let run = run(
            folder.path(),
            &["top", "-n", "0", "-t", "inuse_objects", "-f", "json", &name],
        );
        assert_eq!(run.code, 0, "{}", run.err);
        let value: Value = serde_json::from_str(&run.out).unwrap();
        // Each of the three threads keeps 200 blocks, and libc keeps some for all of them.
        let total = value["total"].as_i64().unwrap();
        let least = if was_full { 500 } else { 0 };
        assert!((least..1000).contains(&total), "{value}");
        read += 1;
        full += usize::from(was_full);
    }
    assert!(program.try_wait().unwrap().is_none(), "the program goes on");
    program.kill().unwrap();
    program.wait().unwrap();
    let run = run(folder.path(), &["top", &name]);
    assert!(run.err.contains("there is no such process"), "{}", run.err);
}

/// A program that forbids its user to read it, and waits.
const CLOSED: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <unistd.h>
    static void *volatile kept[1000];
    __attribute__((noinline)) void *leaf(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    int main(void) {
        for (int i = 0; i < 1000; i++) kept[i] = leaf(100);
        prctl(PR_SET_DUMPABLE, 0);
        write(1, "ready\n", 6);
        pause();
    }
"#;

/// If the kernel keeps a user from reading one of their own processes, its `record` answers, but
/// only to that user.
#[test]
fn record_answers_for_a_process_that_may_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root() || !have(&["gcc", "setpriv"]) {
        return;
    }
    let built = build(CLOSED, "gcc -O1 -g -fno-builtin");
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [
        (heapprof_tests::harness::heapprof(), "heapprof"),
        (&built.path("program"), "program"),
    ] {
        std::fs::copy(from, folder.path().join(to)).unwrap();
    }
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let as_user = |user: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--clear-groups", "./heapprof"]);
        command.args(words).current_dir(folder.path());
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", "/nonexistent");
        command
    };
    let words = ["record", "--exact", "-o", "p.pb.gz", "--", "./program"];
    let mut record = as_user("65534", &words);
    record.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut record = record.spawn().unwrap();
    let mut ready = String::new();
    let mut output = BufReader::new(record.stdout.take().unwrap());
    output.read_line(&mut ready).unwrap();
    let pid = program_of(record.id()).to_string();
    let own = record.id().to_string();
    let mut end = Ends(record, pid.clone());
    let ask = |user: &str, words: &[&str]| Run::from(as_user(user, words).output().unwrap());
    let name = format!("pid:{pid}");
    let top = ask("65534", &["top", "-f", "json", &name]);
    let leaf = Some([100_000, 100_000]);
    assert_eq!(row_of(&top.out, "leaf"), leaf, "{} {}", top.out, top.err);
    let by_name = ask("65534", &["top", "-f", "json", "pid:program"]);
    let found = row_of(&by_name.out, "leaf");
    assert_eq!(found, leaf, "{} {}", by_name.out, by_name.err);
    let list = ask("65534", &["ps"]);
    assert!(
        list.out.contains(&pid) && list.out.contains("exact"),
        "{} {}",
        list.out,
        list.err
    );
    let other = ask("65533", &["top", &name]);
    assert_eq!(
        (other.code, other.err.lines().count()),
        (2, 1),
        "{}",
        other.err
    );
    assert!(
        other.err.contains("cannot be read by this user"),
        "{}",
        other.err
    );
    // Root reads the process without an answer of `record`.
    let of_root = ask("0", &["top", "-f", "json", &name]).out;
    assert_eq!(row_of(&of_root, "leaf"), leaf, "{of_root}");
    end.now();
    assert_eq!(ask("65534", &["top", &name]).code, 2);
    let sockets = std::fs::read_dir("/tmp/heapprof-run-65534").unwrap();
    assert!(
        sockets
            .flatten()
            .all(|entry| entry.file_name() != own.as_str())
    );
}

/// A `record` and its program, which is ended at the end of the test.
struct Ends(Child, String);

impl Ends {
    fn now(&mut self) {
        let pid = std::mem::take(&mut self.1);
        if !pid.is_empty() {
            let _ = Command::new("kill").arg(&pid).status();
            let _ = self.0.wait();
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.now();
    }
}

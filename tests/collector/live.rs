//! `record --live` in a tmux terminal: the screen, and what remains when the view, the program or
//! `record` ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use regex::Regex;
use tempfile::TempDir;

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{command, heapprof};
use heapprof_tests::waits::{try_for, wait_until};

/// Allocates ten blocks of a mebibyte, prints that, and waits for a file `go`. The argument is a
/// number of children that wait for the file, too.
const KEEPER: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    #include <sys/wait.h>
    static char *volatile kept[10];
    static char *volatile passing;
    __attribute__((noinline)) void keep(int i) {
        kept[i] = malloc(1 << 20);
        memset(kept[i], 1, 1 << 20);
    }
    static void wait_for_go(void) {
        while (access("go", F_OK) != 0) { passing = malloc(100000); free(passing); usleep(100000); }
    }
    int main(int argc, char **argv) {
        int children = argc > 1 ? atoi(argv[1]) : 0;
        for (int i = 0; i < 10; i++) keep(i);
        printf("kept ten\n");
        fflush(stdout);
        for (int i = 0; i < children; i++)
            if (fork() == 0) { wait_for_go(); _exit(0); }
        wait_for_go();
        while (wait(0) > 0) ;
        printf("done\n");
        return 5;
    }
"#;

/// A terminal in which `record --live` runs.
struct Terminal {
    folder: TempDir,
}

impl Terminal {
    fn new(columns: u32, rows: u32, program: &Path, words: &str) -> Self {
        let this = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let record = format!(
            "trap : INT; stty -g > before; {} record --exact --live -o p.pb.gz -- {} {words} 2> errors; \
             echo \"EXIT $?\"; stty -g > after; exec sleep 3600",
            heapprof().display(),
            program.display()
        );
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let size = ["-x", &columns, "-y", &rows];
        let shell = ["sh", "-c", &record];
        this.tmux(&[&["new-session", "-d", "-s", "live"], &size[..], &shell].concat());
        this
    }

    fn tmux(&self, words: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.folder.path().join("socket"));
        tmux.args(["-f", "/dev/null"]).args(words);
        tmux.env_remove("NO_COLOR").env("LC_ALL", "C.UTF-8");
        tmux.env("TMPDIR", self.folder.path());
        tmux.current_dir(self.folder.path()).output().unwrap()
    }

    fn screen(&self) -> String {
        let screen = self.tmux(&["capture-pane", "-p", "-t", "live"]).stdout;
        String::from_utf8(screen).unwrap()
    }

    /// Lets the program and its children run to their ends.
    fn go(&self) {
        std::fs::write(self.folder.path().join("go"), "").unwrap();
    }

    /// Waits until the screen has all these texts, and returns it.
    fn until(&self, texts: &[&str]) -> String {
        let mut screen = String::new();
        let found = try_for(|| {
            screen = self.screen();
            texts.iter().all(|text| screen.contains(text)).then_some(())
        });
        assert!(found.is_some(), "{texts:?} did not appear:\n{screen}");
        screen
    }

    /// Returns the name of the process, or processes, whose numbers the screen shows.
    fn shown(&self) -> Option<String> {
        let names = Regex::new(r"pid \d+|all \d+ processes").unwrap();
        let screen = self.screen();
        names.find(&screen).map(|found| found.as_str().to_string())
    }

    /// Waits until a file exists and is not empty.
    fn until_file(&self, name: &str) {
        let path = self.folder.path().join(name);
        wait_until(name, || {
            std::fs::metadata(&path).is_ok_and(|found| found.len() > 0)
        });
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", "-t", "live", key]);
    }

    /// Returns the first process of the terminal with this name.
    fn process(&self, name: &str) -> String {
        let root = self
            .tmux(&["display-message", "-p", "-t", "live", "#{pane_pid}"])
            .stdout;
        let mut all = vec![String::from_utf8(root).unwrap().trim().to_string()];
        let mut at = 0;
        while at < all.len() {
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", all[at]));
            if comm.is_ok_and(|comm| comm.trim() == name) {
                return all[at].clone();
            }
            let path = format!("/proc/{0}/task/{0}/children", all[at]);
            let children = std::fs::read_to_string(path).unwrap_or_default();
            all.extend(children.split_whitespace().map(str::to_string));
            at += 1;
        }
        panic!("no process {name} among {all:?}");
    }

    fn kill(&self, signal: &str, name: &str) {
        let process = self.process(name);
        assert!(
            Command::new("kill")
                .args([signal, &process])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for the end, and checks that the terminal is as before, and that no files are left
    /// behind.
    fn ends(self, code: i32) -> String {
        let screen = self.until(&[&format!("EXIT {code}")]);
        let read = |name: &str| std::fs::read_to_string(self.folder.path().join(name)).unwrap();
        self.until_file("after");
        assert_eq!(read("before"), read("after"), "{screen}");
        let flags = ["#{alternate_on} #{cursor_flag} #{wrap_flag}"];
        let flags = self.tmux(&[&["display-message", "-p", "-t", "live"], &flags[..]].concat());
        assert_eq!(String::from_utf8(flags.stdout).unwrap().trim(), "0 1 1");
        let names = std::fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let expected = [
            "go",
            "before",
            "after",
            "socket",
            "errors",
            "p.pb.gz",
            "p.children",
        ];
        for name in names {
            let is_known = expected.contains(&name.as_str()) || name.starts_with("heapprof.live");
            assert!(is_known, "{name} was left behind");
        }
        screen + &read("errors")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn can_run() -> bool {
    have(&["gcc", "stty", "tmux"])
}

fn keeper() -> heapprof_tests::built::Built {
    build(KEEPER, "gcc -O1 -g")
}

/// The last screen stays until `q`, and then the program's output appears.
#[test]
fn a_program_that_ends_leaves_its_last_screen() {
    if !can_run() {
        return;
    }
    let built = keeper();
    let terminal = Terminal::new(80, 24, &built.program, "");
    let screen = terminal.until(&["In use 10", "callers of keep", "exact"]);
    assert!(!screen.contains("kept ten"), "{screen}");
    terminal.go();
    let screen = terminal.until(&["ended with exit code 5"]);
    assert!(screen.contains("peak 10"), "{screen}");
    terminal.press("q");
    let end = terminal.ends(5);
    for text in ["kept ten", "done", "heapprof: p.pb.gz: "] {
        assert!(end.contains(text), "{text}: {end}");
    }
}

#[test]
fn a_program_that_is_killed_leaves_the_terminal_clean() {
    if !can_run() {
        return;
    }
    let built = keeper();
    let name = built.program.file_name().unwrap().to_str().unwrap();
    let terminal = Terminal::new(80, 24, &built.program, "");
    terminal.until(&["In use 10"]);
    terminal.kill("-KILL", name);
    terminal.until(&["killed by signal 9"]);
    terminal.press("q");
    let end = terminal.ends(137);
    assert!(end.contains("the program was killed by SIGKILL"), "{end}");
}

/// SIGTERM to `record` is passed to the program. It also ends the view, without a key.
#[test]
fn signals_that_end_record_end_the_view() {
    if !can_run() {
        return;
    }
    let built = keeper();
    for (signal, code) in [("-TERM", 143), ("-HUP", 129), ("-QUIT", 131)] {
        let terminal = Terminal::new(80, 24, &built.program, "");
        terminal.until(&["In use 10"]);
        terminal.kill(signal, "heapprof");
        terminal.ends(code);
    }
}

/// If `record` itself is killed, the terminal is not restored, but the program goes on.
#[test]
fn the_program_survives_a_kill_of_record() {
    if !can_run() {
        return;
    }
    let built = keeper();
    let name = built.program.file_name().unwrap().to_str().unwrap();
    let terminal = Terminal::new(80, 24, &built.program, "");
    terminal.until(&["In use 10"]);
    let program = terminal.process(name);
    terminal.kill("-KILL", "heapprof");
    // The shell's output is somewhere on the screen of the view.
    terminal.until_file("after");
    let is_there = || Path::new(&format!("/proc/{program}")).exists();
    assert!(is_there(), "the program ended with record");
    // The program prints, writes its profile, and ends by itself.
    terminal.go();
    wait_until("the program's end", || !is_there());
    assert!(terminal.folder.path().join("p.pb.gz").exists());
}

/// The first `q` asks for confirmation, and a second one ends the view while the program goes on.
/// Before that, the view is frozen, saved and resized.
#[test]
fn the_view_can_be_left_while_the_program_runs() {
    if !can_run() {
        return;
    }
    let built = keeper();
    let terminal = Terminal::new(80, 24, &built.program, "");
    terminal.until(&["In use 10"]);
    terminal.press("w");
    terminal.until(&["was written"]);
    terminal.press("Space");
    terminal.until(&["FROZEN"]);
    terminal.press("Space");
    terminal.tmux(&["resize-window", "-t", "live", "-x", "200", "-y", "50"]);
    terminal.until(&["TREND", "space freeze"]);
    terminal.tmux(&["resize-window", "-t", "live", "-x", "60", "-y", "10"]);
    terminal.until(&["too small"]);
    terminal.tmux(&["resize-window", "-t", "live", "-x", "80", "-y", "24"]);
    terminal.until(&["FLAT"]);
    terminal.press("q");
    terminal.until(&["the program keeps running"]);
    terminal.press("q");
    terminal.until(&["kept ten"]);
    let saved = std::fs::read_dir(terminal.folder.path()).unwrap();
    let saved = saved
        .map(|entry| entry.unwrap())
        .find(|entry| {
            entry
                .file_name()
                .to_str()
                .unwrap()
                .starts_with("heapprof.live")
        })
        .unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&saved.metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
    terminal.go();
    let end = terminal.ends(5);
    assert!(end.contains("done"), "{end}");
}

/// Ctrl-C interrupts the program, once.
#[test]
fn a_key_interrupts_the_program() {
    if !can_run() {
        return;
    }
    let built = keeper();
    let terminal = Terminal::new(80, 24, &built.program, "");
    terminal.until(&["In use 10"]);
    terminal.press("C-c");
    terminal.until(&["killed by signal 2"]);
    terminal.press("q");
    // `record` ends by the signal, too, so that a loop in a shell ends.
    terminal.ends(130);
}

/// Each process of a fork server has its own numbers, and there is a sum of all.
#[test]
fn children_answer_each_for_itself() {
    if !can_run() {
        return;
    }
    let built = keeper();
    let terminal = Terminal::new(100, 30, &built.program, "3");
    terminal.until(&["(of 4 processes)"]);
    let first = terminal.process(built.program.file_name().unwrap().to_str().unwrap());
    terminal.until(&[&format!("pid {first}")]);
    // The key `p` shows one process after the other, and then the sum of all.
    for _ in 0..4 {
        let before = terminal.shown();
        terminal.press("p");
        wait_until("the next process", || {
            let now = terminal.shown();
            now.is_some() && now != before
        });
    }
    terminal.until(&["all 4 processes", "In use 40"]);
    terminal.press("C-c");
    terminal.until(&["killed by signal 2"]);
    terminal.press("q");
    terminal.ends(130);
}

/// Without a terminal, the view prints plain blocks, and the program prints as usual.
#[test]
fn a_log_gets_plain_blocks() {
    if !have(&["gcc"]) {
        return;
    }
    let built = keeper();
    let folder = tempfile::tempdir().unwrap();
    let mut record = command(folder.path());
    record.args(["record", "--exact", "--live", "-o", "p.pb.gz", "--"]);
    let mut record = record
        .arg(&built.program)
        .env("TERM", "dumb")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(record.stderr.take().unwrap());
    let mut err = String::new();
    while !err.contains("  keep\n") {
        assert_ne!(lines.read_line(&mut err).unwrap(), 0, "{err}");
    }
    std::fs::write(folder.path().join("go"), "").unwrap();
    lines.read_to_string(&mut err).unwrap();
    let done = record.wait_with_output().unwrap();
    let out = String::from_utf8(done.stdout).unwrap();
    assert_eq!(
        (done.status.code(), out.as_str()),
        (Some(5), "kept ten\ndone\n"),
        "{err}"
    );
    assert!(
        err.contains("exact   In use 10") && err.contains("  keep\n"),
        "{err}"
    );
    assert!(err.contains("ended with exit code 5"), "{err}");
    assert!(!err.contains('\u{1b}'), "{err:?}");
    std::fs::remove_file(folder.path().join("go")).unwrap();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

/// If the terminal is closed, reads from it return end of file forever, but `record` neither spins
/// nor outlives the program.
#[test]
fn a_terminal_that_goes_away_leaves_nothing_behind() {
    if !can_run() {
        return;
    }
    let built = keeper();
    let terminal = Terminal::new(80, 24, &built.path("program"), "");
    terminal.until(&["keep"]);
    let [record, program] = ["heapprof", "program"].map(|name| terminal.process(name));
    let ticks = |process: &str| -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?)
    };
    terminal.tmux(&["kill-server"]);
    let (before, began) = (ticks(&record), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    if let (Some(before), Some(now)) = (before, ticks(&record)) {
        // A processor has a hundred ticks per second.
        let most = began.elapsed().as_millis() as u64 / 10 / 2;
        assert!(now - before < most, "{} ticks of {most}", now - before);
    }
    terminal.go();
    let is_there = |process: &str| Path::new(&format!("/proc/{process}/stat")).exists();
    wait_until("the end of record and of its program", || {
        !is_there(&record) && !is_there(&program)
    });
}

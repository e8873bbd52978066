//! The terminal view in a pseudo-terminal: windows of absurd sizes, and the state in which it
//! leaves the terminal.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heapprof_tests::built::have;
use heapprof_tests::executables::{copy_program, write_program};
use heapprof_tests::fixtures::in_use;
use heapprof_tests::harness::{heapprof, sample_profiles, valid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use unicode_width::UnicodeWidthStr;

/// Largest columns and rows on which the view draws, however large the window is.
const MAX_DRAWN: [u16; 2] = [1_000, 500];

/// Time limit that only a hang reaches.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A terminal, and a program that runs in it.
struct Pty {
    terminal: OwnedFd,
    /// The program's side. It stays open, so that the settings can be read after the program has
    /// ended.
    program_side: OwnedFd,
    child: Child,
    shown: Vec<u8>,
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Pty {
    fn start(folder: &Path, args: &[&str], columns: u16, rows: u16) -> Self {
        Self::start_with_pager(folder, args, columns, rows, "cat")
    }

    fn start_with_pager(
        folder: &Path,
        args: &[&str],
        columns: u16,
        rows: u16,
        pager: &str,
    ) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let program_side = rustix::fs::open(&*name, flags, Mode::empty()).unwrap();
        tcsetwinsize(&terminal, size(columns, rows)).unwrap();
        let stream = || Stdio::from(File::from(program_side.try_clone().unwrap()));
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(heapprof())
            .args(args)
            .current_dir(folder)
            .env("TERM", "xterm")
            .env("HEAPPROF_PAGER", pager)
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap();
        Self {
            terminal,
            program_side,
            child,
            shown: Vec::new(),
        }
    }

    /// Reads the drawn output until a text appears in it after the earlier output.
    fn wait_for(&mut self, text: &str) {
        let from = self.shown.len();
        let began = Instant::now();
        loop {
            let new = String::from_utf8_lossy(&self.shown[from..]).into_owned();
            if new.contains(text) {
                return;
            }
            assert!(
                began.elapsed() < TIMEOUT,
                "no {text:?} in {} bytes",
                new.len()
            );
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended: {ended:?}: {new}");
            self.read();
        }
    }

    /// Reads the output that comes within 0.1 seconds.
    fn read(&mut self) {
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let mut polled = [PollFd::new(&self.terminal, PollFlags::IN)];
        if poll(&mut polled, Some(&moment)).unwrap() > 0 {
            let mut some = [0; 65_536];
            let read = rustix::io::read(&self.terminal, &mut some).unwrap_or(0);
            self.shown.extend(&some[..read]);
        }
    }

    /// Returns all output of a program that ends by itself, without colours.
    fn read_to_end(mut self) -> String {
        let began = Instant::now();
        loop {
            let ended = self.child.try_wait().unwrap();
            let before = self.shown.len();
            self.read();
            if ended.is_some() && self.shown.len() == before {
                break;
            }
            assert!(began.elapsed() < TIMEOUT, "the program does not end");
        }
        let colour = regex::Regex::new("\u{1b}\\[[0-9;]*m").unwrap();
        let shown = String::from_utf8_lossy(&self.shown).replace("\r\n", "\n");
        colour.replace_all(&shown, "").into_owned()
    }

    /// Returns the last column at which a text begins, and the last row, of the output since the
    /// screen was last cleared.
    fn drawn(&self) -> [u16; 2] {
        let cleared = self.shown.windows(4).rposition(|text| text == b"\x1b[2J");
        let since = &self.shown[cleared.unwrap_or(0)..];
        let mut last = [0; 2];
        for text in String::from_utf8_lossy(since).split("\x1b[").skip(1) {
            let place = text.split_once('H').and_then(|(place, _)| {
                let (row, column) = place.split_once(';')?;
                Some([column.parse::<u16>().ok()?, row.parse::<u16>().ok()?])
            });
            if let Some([column, row]) = place {
                last = [last[0].max(column), last[1].max(row)];
            }
        }
        last
    }

    /// Changes the size of the window, and waits until the view is drawn in it.
    fn resize(&mut self, columns: u16, rows: u16) {
        tcsetwinsize(&self.terminal, size(columns, rows)).unwrap();
        let [most_columns, most_rows] = MAX_DRAWN;
        let (columns, rows) = (columns.min(most_columns), rows.min(most_rows));
        let began = Instant::now();
        loop {
            let [column, row] = self.drawn();
            if column <= columns && row == rows {
                return;
            }
            assert!(
                began.elapsed() < TIMEOUT,
                "drawn to column {column} and row {row} of {columns} and {rows}"
            );
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended: {ended:?}");
            self.read();
        }
    }

    fn press(&self, key: &str) {
        rustix::io::write(&self.terminal, key.as_bytes()).unwrap();
    }

    /// Leaves the view, and checks that the terminal is as before.
    fn leave(self) {
        self.leave_by("q", 0);
    }

    /// Ends the program by a key or a line, and checks that the terminal is as before.
    fn leave_by(mut self, typed: &str, code: i32) {
        self.press(typed);
        let began = Instant::now();
        let ended = loop {
            if let Some(ended) = self.child.try_wait().unwrap() {
                break ended;
            }
            assert!(
                began.elapsed() < TIMEOUT,
                "{typed:?} does not end the program"
            );
            self.read();
        };
        assert_eq!(ended.code(), Some(code), "{ended:?}");
        let modes = tcgetattr(&self.program_side).unwrap().local_modes;
        let usual = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        assert!(modes.contains(usual), "the terminal is raw: {modes:?}");
    }
}

#[test]
fn windows_of_absurd_sizes() {
    if !have(&["setsid"]) {
        return;
    }
    for (columns, rows) in [
        (65_535, 65_535),
        (5_000, 5_000),
        (1, 65_535),
        (65_535, 1),
        (1, 1),
    ] {
        let args = ["tui", "valid/go.leaky.after.pb.gz"];
        let mut pty = Pty::start(&sample_profiles(), &args, columns, rows);
        // The view is ready once it uses the alternate screen.
        pty.wait_for("\x1b[?1049h");
        pty.leave();
    }
}

/// The sizes of the window, one after the other.
const RESIZED: [(u16, u16); 4] = [(80, 24), (5_000, 5_000), (65_535, 65_535), (80, 24)];

#[test]
fn a_view_of_a_file_follows_its_window() {
    if !have(&["setsid"]) {
        return;
    }
    let args = ["tui", "valid/go.leaky.after.pb.gz"];
    let mut pty = Pty::start(&sample_profiles(), &args, 80, 24);
    for (columns, rows) in RESIZED {
        pty.resize(columns, rows);
    }
    pty.leave();
}

/// The program goes on meanwhile, and its profile is written as usual.
#[test]
fn a_view_of_a_program_follows_its_window() {
    if !have(&["setsid", "sh"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = "until test -e go; do sleep 0.05; done";
    let args = [
        "record", "--live", "-o", "p.pb.gz", "--", "sh", "-c", program,
    ];
    let mut pty = Pty::start(folder.path(), &args, 80, 24);
    for (columns, rows) in RESIZED {
        pty.resize(columns, rows);
    }
    std::fs::write(folder.path().join("go"), "").unwrap();
    // Blanks that were already drawn are not drawn again.
    pty.wait_for("ended");
    pty.leave();
    assert!(folder.path().join("p.pb.gz").is_file());
}

/// On a screen of 80 columns, no report is wider, whatever names and numbers a profile has.
#[test]
fn reports_fit_eighty_columns() {
    if !have(&["setsid"]) {
        return;
    }
    const COLUMNS: u16 = 80;
    let all = valid();
    let name = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_str().unwrap();
        format!("valid/{file}")
    };
    let mut questions: Vec<Vec<String>> = Vec::new();
    let mut ask = |words: &[&str]| questions.push(words.iter().map(|w| w.to_string()).collect());
    for path in all.iter().map(name) {
        ask(&["top", &path]);
        ask(&["top", "-g", "lines", "--all-code", &path]);
        ask(&["tree", &path]);
        ask(&["stats", &path]);
        ask(&["diff", &path, &path]);
        ask(&["peek", ".", "-n", "5", &path]);
        ask(&["leaks", &path]);
        ask(&["why", &path]);
    }
    let [before, after] = ["before", "after"].map(|when| format!("valid/go.leaky.{when}.pb.gz"));
    ask(&["diff", &before, &after]);
    let own = std::process::id().to_string();
    ask(&["proc", &own]);
    ask(&["why", &own]);
    // A pseudo-terminal costs little, a start of the program more.
    let mut wide = Vec::new();
    for words in questions {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let pty = Pty::start(&sample_profiles(), &words, COLUMNS, 24);
        let shown = pty.read_to_end();
        assert!(!shown.is_empty(), "{words:?}");
        for line in shown.lines() {
            // A word that is wider than the screen, such as a path, has a line of its own.
            let is_one_word = !line.trim().contains(' ');
            if line.width() > usize::from(COLUMNS) && !is_one_word {
                wide.push(format!("{}: {line}", words.join(" ")));
            }
        }
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

/// Of several processes of one name, the user chooses one at the terminal.
#[test]
fn a_process_is_chosen_at_the_terminal() {
    if !have(&["setsid", "sh"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("choice-test");
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    copy_program(&shell, &program);
    let waiting = || {
        let mut command = Command::new(&program);
        command.args(["-c", "read line"]);
        command.stdin(Stdio::piped()).spawn().unwrap()
    };
    let mut children = [waiting(), waiting()];
    let elsewhere = tempfile::tempdir().unwrap();
    let mut pty = Pty::start(elsewhere.path(), &["proc", "choice-test"], 80, 24);
    pty.wait_for("Which one?");
    let listed = String::from_utf8_lossy(&pty.shown).into_owned();
    let chosen = children[1].id().to_string();
    pty.press(&format!("{chosen}\n"));
    let shown = pty.read_to_end();
    for child in &mut children {
        assert!(listed.contains(&child.id().to_string()), "{listed}");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    assert!(shown.contains(&format!("\n{chosen} ")), "{shown}");
}

/// What a profile calls a function comes to no terminal while a name is completed.
#[test]
fn completed_names_do_not_control_the_terminal() {
    if !have(&["setsid"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let evil = "evil\u{1b}]0:PWNED\u{7}";
    let turned = "evil\u{202e}turned";
    let stacks = [
        (evil, &[1][..]),
        (turned, &[1]),
        ("evok", &[1]),
        ("evoke", &[1]),
    ];
    in_use(folder.path(), "p.pb.gz", &stacks);
    for (shell, prompt) in [("shell", "(heapprof) "), ("pprof", "(pprof) ")] {
        let mut pty = Pty::start(folder.path(), &[shell, "p.pb.gz"], 80, 24);
        pty.wait_for(prompt);
        // The common beginning is completed by the first Tab, and the second one lists both names.
        pty.press("list ev\t");
        pty.wait_for("evok");
        pty.press("\t");
        pty.wait_for("evoke");
        // Ctrl-U empties the line.
        pty.press("\u{15}quit\r");
        let shown = pty.read_to_end();
        for refused in ["PWNED", "\u{202e}"] {
            assert!(!shown.contains(refused), "{shell}: {shown:?}");
        }
    }
}

/// Ctrl-C is for the pager while it shows a report, and the shell waits for the pager.
#[test]
fn ctrl_c_does_not_end_a_report_in_a_pager() {
    if !have(&["setsid", "sh"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A shell that waits in a read runs no trap for a signal that came just before.
    let pager = "#!/bin/sh\ncat > /dev/null\ntrap 'echo pager-goes-on' INT\necho pager-waits\n\
                 until [ -e go ]; do sleep 0.1; done\necho pager-ends\n";
    write_program(&folder.path().join("pager"), pager.as_bytes());
    let profile = sample_profiles().join("valid/go.leaky.after.pb.gz");
    let args = ["shell", profile.to_str().unwrap()];
    let mut pty = Pty::start_with_pager(folder.path(), &args, 80, 5, "./pager");
    pty.wait_for("(heapprof) ");
    pty.press("top\r");
    pty.wait_for("pager-waits");
    let from = pty.shown.len();
    pty.press("\u{3}");
    pty.wait_for("pager-goes-on");
    std::fs::write(folder.path().join("go"), "").unwrap();
    pty.wait_for("pager-ends");
    let shown = String::from_utf8_lossy(&pty.shown[from..]).into_owned();
    let before = shown.split("pager-ends").next().unwrap();
    assert!(!before.contains("(heapprof)"), "{shown:?}");
    pty.press("quit\r");
    pty.read_to_end();
}

/// Returns the child of a process, once it has one.
fn child_of(process: u32) -> u32 {
    let began = Instant::now();
    let list = format!("/proc/{process}/task/{process}/children");
    loop {
        let children = std::fs::read_to_string(&list).unwrap();
        if let Some(child) = children.split_whitespace().next() {
            return child.parse().unwrap();
        }
        assert!(began.elapsed() < TIMEOUT, "{process} has no child");
        std::thread::yield_now();
    }
}

fn kill(process: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(process.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// A view that is killed can't give the terminal back, so its shell does.
#[test]
fn a_killed_view_leaves_a_usable_terminal() {
    if !have(&["setsid"]) {
        return;
    }
    let args = ["shell", "valid/go.leaky.after.pb.gz"];
    let mut pty = Pty::start(&sample_profiles(), &args, 80, 24);
    pty.wait_for("(heapprof) ");
    pty.press("tui\r");
    pty.wait_for("\u{1b}[?1049h");
    let modes = || tcgetattr(&pty.program_side).unwrap().local_modes;
    let began = Instant::now();
    while modes().contains(LocalModes::ICANON) {
        assert!(began.elapsed() < TIMEOUT, "the view takes no terminal");
    }
    kill(child_of(pty.child.id()), rustix::process::Signal::KILL);
    pty.wait_for("signal 9");
    let shown = String::from_utf8_lossy(&pty.shown).into_owned();
    assert!(shown.contains("\u{1b}[?1049l"), "{shown:?}");
    pty.leave_by("quit\r", 2);
}

/// Ctrl-C never ends the shell, also while it reads its source again, and the functions of the new
/// source are completed.
#[test]
fn a_reload_survives_ctrl_c_and_renews_the_functions() {
    if !have(&["setsid"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("p.folded");
    std::fs::write(&pipe, "main;earlier 1\n").unwrap();
    let mut pty = Pty::start(folder.path(), &["shell", "p.folded"], 80, 24);
    pty.wait_for("(heapprof) ");
    // The reload waits until something is written into the pipe.
    std::fs::remove_file(&pipe).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, Mode::RWXU, 0).unwrap();
    pty.press("reload\r");
    let writer = File::options().write(true).open(&pipe).unwrap();
    pty.press("\u{3}");
    pty.wait_for("^C");
    std::io::Write::write_all(&mut &writer, b"main;later 1\n").unwrap();
    drop(writer);
    pty.wait_for("(heapprof) ");
    pty.press("list lat\t");
    pty.wait_for("later");
    // Ctrl-U empties the line.
    pty.leave_by("\u{15}quit\r", 0);
}

//! The terminal view in a terminal of the test's own: windows of absurd sizes, and how the terminal
//! is left.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heapprof_tests::built::have;
use heapprof_tests::harness::{heapprof, sample_profiles};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Only a hang takes so long.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A terminal, and a program that runs in it.
struct Pty {
    terminal: OwnedFd,
    /// The program's side. It stays open, so that the settings can be read after the program.
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
    fn start(args: &[&str], columns: u16, rows: u16) -> Self {
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
            .current_dir(sample_profiles())
            .env("TERM", "xterm")
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

    /// Reads what is drawn until a text is there, behind what was seen before.
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

    /// Reads what comes within a moment.
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

    fn press(&self, key: &str) {
        rustix::io::write(&self.terminal, key.as_bytes()).unwrap();
    }

    /// Leaves the view. The terminal must be as it was.
    fn leave(mut self) {
        self.press("q");
        let began = Instant::now();
        let ended = loop {
            if let Some(ended) = self.child.try_wait().unwrap() {
                break ended;
            }
            assert!(began.elapsed() < TIMEOUT, "q does not end the view");
            self.read();
        };
        assert!(ended.success(), "{ended:?}");
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
        let mut pty = Pty::start(&["tui", "valid/go.leaky.after.pb.gz"], columns, rows);
        // The view is up once it has the other screen.
        pty.wait_for("\x1b[?1049h");
        pty.leave();
    }
}

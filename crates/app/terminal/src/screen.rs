//! Takes the terminal for the view, and restores the terminal's earlier settings however the view
//! ends, except by a kill (SIGKILL).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::queue;
use crossterm::terminal::{
    DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::RawPid;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};

use heapprof_process::job_control::{foreground_group, group_of, session_of, terminal_session};

/// The terminal, and its settings before the view took it.
struct TakenTerminal {
    tty: File,
    before: Termios,
    /// Whether the view has the terminal now.
    is_up: bool,
    /// Called with true when the view takes the terminal, so that messages wait, and with false
    /// when the view gives it back.
    defer_messages: fn(bool),
}

/// The terminal that the view took. It is a static, because a panic in any thread gives the
/// terminal back.
static TAKEN_TERMINAL: Mutex<Option<TakenTerminal>> = Mutex::new(None);

fn lock_terminal() -> MutexGuard<'static, Option<TakenTerminal>> {
    TAKEN_TERMINAL
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// The terminal while the view has it. Dropping this value gives the terminal back.
pub struct TerminalScreen(());

/// Opens the process's terminal. Returns `None` if there is no terminal that can show the view, or
/// if another job has it.
pub fn tty() -> Option<File> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let tty = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    (!is_dumb && is_ours(&tty)).then_some(tty)
}

fn is_ours(tty: &File) -> bool {
    same(foreground_group(tty), group_of(None))
}

/// Whether a stream of this process is the terminal of its session.
pub fn is_tty(stream: impl std::os::fd::AsFd) -> bool {
    isatty(&stream) && same(terminal_session(&stream), session_of(None))
}

fn same(one: io::Result<RawPid>, other: io::Result<RawPid>) -> bool {
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

impl TerminalScreen {
    /// Takes the terminal. `defer_messages` is called with true at once, so that messages wait, and
    /// with false when the terminal is given back.
    pub fn take(tty: File, defer_messages: fn(bool)) -> io::Result<Self> {
        static PANIC_HOOK: Once = Once::new();
        PANIC_HOOK.call_once(|| {
            let earlier = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                earlier(panic);
            }));
        });
        let before = tcgetattr(&tty)?;
        *lock_terminal() = Some(TakenTerminal {
            tty,
            before,
            is_up: false,
            defer_messages,
        });
        enter();
        Ok(Self(()))
    }

    /// Returns a second handle of the terminal, to draw on.
    pub fn writer(&self) -> io::Result<File> {
        match &*lock_terminal() {
            Some(taken) => taken.tty.try_clone(),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        leave();
        lock_terminal().take();
    }
}

/// Whether the view has the terminal now.
pub fn is_up() -> bool {
    lock_terminal().as_ref().is_some_and(|taken| taken.is_up)
}

/// The result of a wait for the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalWait {
    /// A key, or a part of a key, can be read.
    Readable,
    /// The time has passed, or a signal arrived.
    Nothing,
    /// The terminal was closed.
    Gone,
}

/// Waits for a key for at most `time`. crossterm must not read from a closed terminal: it takes the
/// end of the input for an incomplete key, and would read for ever.
pub fn wait(time: Duration) -> io::Result<TerminalWait> {
    let tty = match &*lock_terminal() {
        Some(taken) => taken.tty.try_clone()?,
        None => return Ok(TerminalWait::Gone),
    };
    let mut polled = [PollFd::new(&tty, PollFlags::IN)];
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    let events = polled[0].revents();
    Ok(match events.intersects(gone) {
        true => TerminalWait::Gone,
        false if events.contains(PollFlags::IN) => TerminalWait::Readable,
        false => TerminalWait::Nothing,
    })
}

/// Makes the terminal report waiting input once more. crossterm notices input only when it arrives,
/// and forgets it if the size changes at the same time. The key would then be read only after the
/// next key. The kernel reports input again when settings are made, even unchanged settings
/// (`n_tty.c`).
pub fn tell_again() {
    if let Some(taken) = lock_terminal().as_ref().filter(|taken| is_ours(&taken.tty))
        && let Ok(settings) = tcgetattr(&taken.tty)
    {
        let _ = tcsetattr(&taken.tty, OptionalActions::Now, &settings);
    }
}

/// Takes the terminal again after [`leave`]. Does nothing while another job has the terminal.
pub fn enter() {
    let mut taken = lock_terminal();
    let Some(taken) = taken.as_mut().filter(|taken| !taken.is_up) else {
        return;
    };
    if !is_ours(&taken.tty) {
        return;
    }
    let mut raw = taken.before.clone();
    raw.make_raw();
    let _ = tcsetattr(&taken.tty, OptionalActions::Flush, &raw);
    let _ = queue!(taken.tty, EnterAlternateScreen, Hide, DisableLineWrap);
    let _ = taken.tty.flush();
    taken.is_up = true;
    (taken.defer_messages)(true);
}

/// Gives the terminal back, if the view has it.
pub fn leave() {
    let mut taken = lock_terminal();
    if let Some(taken) = taken.as_mut().filter(|taken| taken.is_up) {
        let _ = queue!(taken.tty, EnableLineWrap, Show, LeaveAlternateScreen);
        let _ = taken.tty.flush();
        let _ = tcsetattr(&taken.tty, OptionalActions::Flush, &taken.before);
        taken.is_up = false;
    }
    let defer_messages = taken.as_ref().map(|taken| taken.defer_messages);
    drop(taken);
    if let Some(defer_messages) = defer_messages {
        defer_messages(false);
    }
}

/// Makes the settings of the terminal raw again, because a shell that stopped heapprof may have
/// changed them.
pub fn renew() {
    if let Some(taken) = lock_terminal().as_mut() {
        taken.is_up = false;
    }
    enter();
}

//! Makes the program begin with the signals and streams that heapprof itself was started with.
//! Before main, std changes them: it ignores SIGPIPE, and opens a closed standard stream as
//! /dev/null, where output is lost without an error. A child that std starts has SIGPIPE at its
//! default, and no blocked signals.
#![allow(unsafe_code)] // std has no function that reports or passes on this state.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals whose state std or heapprof changes. SIGCHLD must not be ignored, because then the end
/// of a child is not reported, and the child can't be waited for.
const CHANGED_SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGCHLD];
/// For each of the changed signals, whether it was ignored when this process began.
static IGNORED_AT_START: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
/// For each of the three standard streams, whether it was closed when this process began.
static CLOSED_AT_START: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

// SAFETY: the loader calls what stands in this section before main, and std is not needed for it.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_inherited_state;

extern "C" fn note_inherited_state() {
    for (signal, ignored) in CHANGED_SIGNALS.into_iter().zip(&IGNORED_AT_START) {
        ignored.store(is_ignored_now(signal), Ordering::Relaxed);
    }
    for (fd, closed) in (0..).zip(&CLOSED_AT_START) {
        // SAFETY: the call asks for flags, and changes nothing.
        let is_closed = unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1;
        closed.store(is_closed, Ordering::Relaxed);
    }
}

/// Makes a write beyond RLIMIT_FSIZE fail instead of ending heapprof. SIGXFSZ gets a handler and is
/// not ignored, because a started program inherits ignored signals, but no handlers.
pub fn survive_large_files() {
    extern "C" fn nothing(_: libc::c_int) {}
    if !is_ignored_now(libc::SIGXFSZ) {
        let handler = nothing as extern "C" fn(libc::c_int);
        // SAFETY: the handler does nothing, so it may run at any moment.
        unsafe { libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t) };
    }
}

/// Whether a signal was ignored when this process began. This must be called before heapprof
/// handles any signal.
pub fn is_ignored(signal: libc::c_int) -> bool {
    match CHANGED_SIGNALS
        .iter()
        .position(|&changed| changed == signal)
    {
        Some(i) => IGNORED_AT_START[i].load(Ordering::Relaxed),
        None => is_ignored_now(signal),
    }
}

fn is_ignored_now(signal: libc::c_int) -> bool {
    // SAFETY: the structure is the one that sigaction fills; nothing is changed.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Whether there was a standard output when this process began.
pub fn has_stdout() -> bool {
    !CLOSED_AT_START[1].load(Ordering::Relaxed)
}

/// Makes the program begin as this process did: with the same signals ignored or blocked, and the
/// same streams closed.
pub fn pass_on(command: &mut Command) {
    let ignored = CHANGED_SIGNALS.map(is_ignored);
    if ignored[1] {
        // SAFETY: the call sets the default action and installs no handler.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    // SAFETY: the sets are valid, and nothing is blocked or unblocked.
    let (mask, none_blocked) = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        (
            mask,
            (1..=64).all(|s| libc::sigismember(&raw const mask, s) != 1),
        )
    };
    // heapprof waits for the signal of a child's end, even if it is blocked for the program.
    // SAFETY: the set is valid, and this thread's mask is our own.
    unsafe {
        let mut child: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const child, std::ptr::null_mut());
    }
    let closed: [bool; 3] = std::array::from_fn(|fd| CLOSED_AT_START[fd].load(Ordering::Relaxed));
    if ignored == [false; 2] && none_blocked && closed == [false; 3] {
        // std starts the program in the same state, and in a quicker way.
        return;
    }
    // SAFETY: signal, close and pthread_sigmask are async-signal-safe, so they may be called
    // between fork and exec; `mask` is a copy of the closure's own. What is closed there is std's
    // /dev/null.
    unsafe {
        command.pre_exec(move || {
            for (signal, _) in CHANGED_SIGNALS
                .into_iter()
                .zip(ignored)
                .filter(|(_, is)| *is)
            {
                libc::signal(signal, libc::SIG_IGN);
            }
            for fd in (0..)
                .zip(closed)
                .filter_map(|(fd, closed)| closed.then_some(fd))
            {
                libc::close(fd);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            Ok(())
        });
    }
}

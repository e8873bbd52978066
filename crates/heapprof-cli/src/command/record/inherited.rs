//! What heapprof itself was started with and the program is to find unchanged, though std changes it on the way: before
//! main SIGPIPE is ignored, and a child gets it at its default, with no signal blocked.
#![allow(unsafe_code)] // Nothing of std tells or passes on either.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether SIGPIPE was ignored when this process began.
static IGNORED: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls what stands in this section before main, and std is not needed for it.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: the structure is the one that sigaction fills; nothing is changed.
    let ignored = unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    };
    IGNORED.store(ignored, Ordering::Relaxed);
}

/// Has the program begin as this process did.
pub(super) fn pass_on(command: &mut Command) {
    let ignored = IGNORED.load(Ordering::Relaxed);
    // SAFETY: the sets are valid, and nothing is blocked or unblocked.
    let (mask, none_blocked) = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        (
            mask,
            (1..=64).all(|s| libc::sigismember(&raw const mask, s) != 1),
        )
    };
    if !ignored && none_blocked {
        // std starts it as it was, and in a quicker way.
        return;
    }
    // SAFETY: signal and pthread_sigmask are async-signal-safe, so they may be called between fork and exec; `mask` is a
    // copy of the closure's own.
    unsafe {
        command.pre_exec(move || {
            if ignored {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            Ok(())
        });
    }
}

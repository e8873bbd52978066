//! Whose turn it is to dump: one thread's at a time. A thread that asks for a dump waits. A
//! signal's handler can't wait, and leaves a note.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::apart;
use crate::platform::lock::{Guard, Lock};
use crate::platform::sys;
use crate::reason::Reason;

/// Held while a dump is made.
pub(super) static DUMPING: Lock = Lock::new();
/// Whether a signal asked for a dump in the middle of another thread's.
static NOTED: AtomicBool = AtomicBool::new(false);
/// How long a program that asks waits for other threads' dumps, in nanoseconds. One that goes into
/// a pipe takes as long as its reader.
const LONGEST: i64 = 10_000_000_000;
/// How long it sleeps in between, in nanoseconds.
const MOMENT: u64 = 1_000_000;

/// The turn for a dump. A thread that ends the program waits for its turn. It waits for a thread
/// that forks for at most `patience` nanoseconds. Any other thread does not wait.
pub(super) fn take(reason: Reason, patience: i64) -> Option<Guard<'static>> {
    match reason.is_last() {
        true => DUMPING.lock_past_fork(patience),
        false => DUMPING.try_lock(),
    }
}

/// Tries until it is this thread's turn. `attempt` is told whether this has waited, and gives
/// `None` if it has to wait. The program's signals come through meanwhile. A thread in the middle
/// of an event, or of fork's handlers, does not wait.
pub(super) fn wait<R>(mut attempt: impl FnMut(bool) -> Option<R>) -> Option<R> {
    let now = || sys::nanoseconds(libc::CLOCK_MONOTONIC);
    let since = now();
    let mut has_waited = false;
    loop {
        let made = attempt(has_waited);
        if made.is_some()
            || apart::is_apart()
            || !super::is_own_process()
            || now() - since > LONGEST
        {
            return made;
        }
        sys::sleep(MOMENT);
        if sys::is_shut_in() {
            return None;
        }
        has_waited = true;
    }
}

/// Asks whoever dumps now for a signal's dump afterwards. The caller goes on with [`follow_up`].
pub(super) fn note() {
    NOTED.store(true, Ordering::Relaxed);
}

/// Makes the dump that was noted. It is called after a turn, and after a [`note`]. If it is another
/// thread's turn, that thread comes here afterwards. `make` tells whether it could.
pub(super) fn follow_up(make: impl Fn() -> bool) {
    loop {
        // A thread gives its turn back before it looks for a note, and writes a note before it
        // looks for a turn.
        fence(Ordering::SeqCst);
        if !NOTED.load(Ordering::Relaxed) {
            return;
        }
        let Some(_turn) = DUMPING.try_lock() else {
            return;
        };
        if NOTED.swap(false, Ordering::Relaxed) && !make() {
            return;
        }
    }
}

/// Forgets the parent's notes, in a forked child.
pub(super) fn forked() {
    NOTED.store(false, Ordering::Relaxed);
}

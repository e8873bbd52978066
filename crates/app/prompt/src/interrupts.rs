//! The handling of Ctrl-C in a shell, in its commands and beside a pager.

use std::sync::OnceLock;

/// The handling of Ctrl-C with which this process was started.
static STARTED_WITH: OnceLock<libc::sighandler_t> = OnceLock::new();

/// While this value lives, Ctrl-C does not end this process. The programs that it starts have the
/// usual handling, because a handler does not outlive `exec`.
#[must_use]
pub struct InterruptGuard {
    before: libc::sighandler_t,
}

impl InterruptGuard {
    /// Begins to survive Ctrl-C.
    #[allow(clippy::new_without_default, reason = "a guard is made on purpose")]
    pub fn new() -> Self {
        let handler: extern "C" fn(libc::c_int) = do_nothing;
        let before = handle(handler as libc::sighandler_t);
        STARTED_WITH.get_or_init(|| before);
        if before == libc::SIG_IGN {
            // A process in the background ignores it, and so do the programs that it starts.
            handle(before);
        }
        Self { before }
    }

    /// Runs `work` with the handling with which this process was started.
    pub(crate) fn suspended<T>(work: impl FnOnce() -> T) -> T {
        let Some(&started_with) = STARTED_WITH.get() else {
            return work();
        };
        let before = handle(started_with);
        let done = work();
        handle(before);
        done
    }
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        handle(self.before);
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

/// Sets the handling of Ctrl-C, and returns the earlier one. Calls that wait go on.
fn handle(handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: `handler` does nothing, or it is a setting that `signal` returned.
    unsafe { libc::signal(libc::SIGINT, handler) }
}

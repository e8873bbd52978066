//! The delay until the books of a child are kept in a file. Most children of a script hold so
//! little that they leave no profile, however they end; for them a file in memory, and somebody who
//! takes it, would be most of what being recorded costs.
//!
//! The books are in private memory meanwhile. The delay ends when the process has allocated
//! [`ENOUGH`], and before anything after which they could not be moved or handed over any more: a
//! second thread, fewer rights, another root.

use std::ffi::CString;

use crate::dump::output::Naming;
use crate::engine::Engine;
use crate::options::{Keep, Options, Triggers};
use crate::platform::{status, sys};
use crate::recording::kept;

/// Bytes that a process allocates before its books are kept in a file. Its thread may have more
/// that is not reported yet, so a child is left out only below twice as many.
const ENOUGH: u64 = 32 << 10;
/// Memory that is set aside for a copy of the options, and for what is said of a failure.
const ROOM: usize = 64 << 10;

/// Whether the books of this process may wait: it is a child which leaves no profile if it holds
/// little, nobody looks at it meanwhile, and it will be known later, too. Of another user's process
/// only those that it descends from say that it belongs to the recording, and they may be gone.
pub(super) fn may_begin(engine: &Engine, options: &Options) -> bool {
    let is_main = |naming: &mut Naming| naming.is_main();
    let (output, generation) = (&options.output, engine.threads.names.generation());
    let Keep::Socket(path) = &output.keep else {
        return false;
    };
    let is_owners = || {
        let path = CString::new(&**path).ok();
        let user = path.and_then(|path| sys::owner_of(&path));
        user == Some(sys::effective_user())
    };
    output.least_of_child >= 2 * ENOUGH
        && output.audit.is_empty()
        && !options.logs
        && options.triggers == Triggers::default()
        && (generation > 0 || !engine.dumping.naming.with(&engine.process, is_main))
        && is_owners()
}

/// Begins to wait, from what the process has allocated by now.
pub(super) fn begin(engine: &Engine) {
    let due = &engine.dumping.due;
    let enough = due.allocated().saturating_add(ENOUGH);
    engine.process.pages.kept.wait_for(enough);
    due.change_pace(false);
}

/// Moves the books into a file, and hands it over, if they wait for that. The thread is the
/// engine's own, with signals blocked.
pub(super) fn end(engine: &'static Engine) {
    let (process, kept) = (&engine.process, &engine.process.pages.kept);
    if !kept.is_waiting() || process.is_shut_in() {
        return;
    }
    if !process.is_own() || process.is_abandoned() || !engine.reserve(ROOM) {
        return;
    }
    let Some(options) = engine.dumping.options.with(process, |o| o.clone()) else {
        return;
    };
    if sys::is_short_of_files() {
        // The program may close some.
        kept.wait_for(engine.dumping.due.allocated().saturating_mul(2));
        return;
    }
    kept.stop_waiting();
    let Some(file) = kept::file(engine, &options) else {
        return;
    };
    if !status::has_one_thread() {
        kept::say(&options, 0, "a thread began that nobody was told of");
        return;
    }
    // SAFETY: the thread is in no event, and the only one.
    if !unsafe { kept.move_into(&file) } {
        kept::say(&options, 0, "there was no memory for all of them");
        return;
    }
    kept::show(engine, Some((&file, &options)));
}

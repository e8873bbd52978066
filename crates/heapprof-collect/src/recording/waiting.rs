//! Books that wait in private memory before they are kept in a file. Most children of a script hold
//! so little that they leave no profile, however they end; for them a file in memory, and somebody
//! who takes it, would be most of what being recorded costs.
//!
//! Books do not wait for longer than until the process has allocated [`ENOUGH`], or could not move
//! them any more: before its second thread, and before it gives up rights by which it finds whoever
//! takes the file.

use crate::dump::output::Naming;
use crate::engine::Engine;
use crate::options::{Keep, Options, Triggers};
use crate::platform::status;
use crate::recording::kept;

/// Bytes that a process allocates before its books are kept in a file. A thread may leave as much
/// again unreported, so a child that is left out may hold no less than twice of this.
const ENOUGH: u64 = 32 << 10;
/// Memory that is set aside for a copy of the options, and for what is said of a failure.
const ROOM: usize = 64 << 10;

/// Whether the books of this process may wait: it is a child which leaves no profile if it holds
/// little, and nobody looks at it meanwhile.
pub(super) fn may_wait(engine: &Engine, options: &Options) -> bool {
    let is_main = |naming: &mut Naming| naming.is_main();
    let (output, generation) = (&options.output, engine.threads.names.generation());
    matches!(output.keep, Keep::Socket(_))
        && output.least_of_child >= 2 * ENOUGH
        && output.audit.is_empty()
        && !options.logs
        && options.triggers == Triggers::default()
        && (generation > 0 || !engine.dumping.naming.with(&engine.process, is_main))
}

/// Begins to wait, from what the process has allocated by now.
pub(super) fn begin(engine: &Engine) {
    let due = &engine.dumping.due;
    engine
        .process
        .pages
        .kept
        .wait_for(due.allocated().saturating_add(ENOUGH));
    due.change_pace(false);
}

/// Moves the books into a file, and hands it over, if they wait for that. The thread is the
/// engine's own, with signals blocked.
pub(super) fn end(engine: &'static Engine) {
    let (process, kept) = (&engine.process, &engine.process.pages.kept);
    if !kept.is_waiting() || !process.is_own() || process.shares_tables() || process.is_shut_in() {
        return;
    }
    kept.stop_waiting();
    if !engine.reserve(ROOM) {
        return;
    }
    let options = engine.dumping.options.with(process, |o| o.clone());
    let Some(options) = options else {
        return;
    };
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

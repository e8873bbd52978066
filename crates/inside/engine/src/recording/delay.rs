//! Delays the move of a child's ledger into a file. Most children of a script have so little memory
//! in use that they leave no profile, however they end. For such a child, a file that is handed to
//! the ledger keeper would be most of the cost of a recording.
//!
//! The ledger is in private memory meanwhile. The delay ends when the process has allocated
//! [`MIN_ALLOCATED_BYTES`]. It also ends before a change that makes it impossible to move the
//! ledger or to hand it over: a second thread, fewer rights, another root.

use std::ffi::CString;

use heapprof_platform::lock::WaitPolicy;
use heapprof_platform::{status, sys};

use crate::dump::output::DumpNaming;
use crate::engine::Engine;
use crate::options::{DumpTriggers, LedgerRecipient, RecordingOptions};
use crate::recording::shared_ledger;

/// Number of bytes that a process allocates before its ledger moves into a file. The process's
/// thread may have allocated as many bytes again that it has not reported yet. So there is a delay
/// only if the recording leaves out all children with less than twice this number of bytes.
const MIN_ALLOCATED_BYTES: u64 = 32 << 10;
/// Number of bytes of memory that are reserved for a copy of the options, and for the report of a
/// failure.
const MAX_DELAY_MEMORY: usize = 64 << 10;

/// Whether the move of this process's ledger into a file may be delayed. The process must be a
/// child that leaves no profile if it has little memory in use, and no other process may need the
/// ledger earlier. The ledger keeper must still recognize the process later. This is not certain
/// for a process of another user: the keeper recognizes it only by its ancestors, which may have
/// ended by then.
pub(super) fn may_begin(engine: &Engine, options: &RecordingOptions) -> bool {
    let is_main = |naming: &mut DumpNaming| naming.is_main();
    let (output, generation) = (&options.output, engine.threads.names.generation());
    let LedgerRecipient::Socket(path) = &output.recipient else {
        return false;
    };
    let is_owners = || {
        let path = CString::new(&**path).ok();
        let user = path.and_then(|path| sys::file_owner(&path));
        user == Some(sys::effective_user())
    };
    output.min_child_bytes >= 2 * MIN_ALLOCATED_BYTES
        && output.audit.is_empty()
        && !options.logs
        && options.triggers == DumpTriggers::default()
        && (generation > 0 || !engine.dumping.naming.with(&engine.process, is_main))
        && is_owners()
}

/// Begins the delay. Bytes that the process has allocated before do not count.
pub(super) fn begin(engine: &Engine) {
    let due = &engine.dumping.due;
    let enough = due.allocated().saturating_add(MIN_ALLOCATED_BYTES);
    engine.process.pages.table_file.wait_for(enough);
    due.change_pace(false);
}

/// Ends the delay, if there is one: moves the ledger into a file, and hands the file over. The
/// thread has taken the reentrancy guard, with signals blocked.
pub(super) fn end(engine: &'static Engine) {
    let (process, kept) = (&engine.process, &engine.process.pages.table_file);
    if !kept.is_waiting() || process.is_sandboxed() {
        return;
    }
    if !process.is_own() || process.is_abandoned() || !engine.reserve(MAX_DELAY_MEMORY) {
        return;
    }
    let Some(options) = engine.dumping.options.with(process, |o| o.clone()) else {
        return;
    };
    if sys::is_short_of_files() {
        // The program may close some files.
        kept.wait_for(engine.dumping.due.allocated().saturating_mul(2));
        return;
    }
    kept.stop_waiting();
    let Some(file) = shared_ledger::make_file_if_asked(engine, &options) else {
        return;
    };
    if !status::has_one_thread() {
        shared_ledger::report_failure(&options, 0, "a thread was started without being noticed");
        return;
    }
    // SAFETY: the thread is in no event, and the only one.
    if !unsafe { kept.move_into(&file) } {
        shared_ledger::report_failure(&options, 0, "there was not enough memory to move it");
        return;
    }
    shared_ledger::publish(engine, Some((&file, &options)));
}

//! The wait before a process's last dump, until `record` has read how its memory is divided
//! (`why -- CMD`). A program may end before `record` has read this by itself.

use std::ffi::CString;

use heapprof_platform::sys;

use crate::engine::Engine;
use crate::options::LedgerRecipient;
use crate::recording::audit::LastAnswer;

/// The message of a process that waits.
const END_MESSAGE: &[u8] = b"heapprof's last memory 1\n";
/// Longest time that a process tries to send the message, in milliseconds.
const SEND_TIMEOUT: u32 = 20;
/// Longest time that a process waits for the answer, in seconds. If the ledger keeper has ended, no
/// process waits.
const ANSWER_TIMEOUT: i64 = 2;

/// Waits until the ledger keeper has read the memory of this process, if the options ask for that.
/// After a process has waited in vain, no process waits for some minutes.
pub(super) fn wait(engine: &Engine) {
    let process = &engine.process;
    let options = engine.dumping.options.with(process, |o| o.clone());
    let Some(options) = options.filter(|options| options.output.waits_at_end) else {
        return;
    };
    let LedgerRecipient::Socket(path) = &options.output.recipient else {
        return;
    };
    let last = LastAnswer::new(process);
    if last.is_in_vain() || process.is_sandboxed() || process.is_filtered() {
        return;
    }
    let Ok(path) = CString::new(&**path) else {
        return;
    };
    // Without an answer, `record` knows the memory of an earlier moment. An error means that nobody
    // listens, which takes no time.
    let sent = sys::send_request(&path, END_MESSAGE, SEND_TIMEOUT, ANSWER_TIMEOUT, || false);
    if let Ok(is_answered) = sent {
        last.note(is_answered);
    }
}

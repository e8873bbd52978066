//! The wait before a process's last dump, until `record` has read how its memory is divided
//! (`why -- CMD`). A program may end before `record` has read this by itself.

use std::ffi::CString;

use heapprof_platform::sys;

use crate::engine::Engine;
use crate::options::{LedgerRecipient, RecordingOptions};

/// The message of a process that waits.
const END_MESSAGE: &[u8] = b"heapprof's last memory 1\n";
/// Longest time that a process tries to send the message, in milliseconds.
const SEND_TIMEOUT: u32 = 20;
/// Longest time that a process waits for the answer, in seconds. If the ledger keeper has ended, no
/// process waits.
const ANSWER_TIMEOUT: i64 = 2;

/// Waits until the ledger keeper has read the memory of this process, if the options ask for that.
pub(super) fn wait(engine: &Engine, options: &RecordingOptions) {
    let process = &engine.process;
    let LedgerRecipient::Socket(path) = &options.output.recipient else {
        return;
    };
    if !options.output.waits_at_end || process.is_sandboxed() || process.is_filtered() {
        return;
    }
    let Ok(path) = CString::new(&**path) else {
        return;
    };
    // Without an answer, `record` knows the memory of an earlier moment.
    let _ = sys::send_request(&path, END_MESSAGE, SEND_TIMEOUT, ANSWER_TIMEOUT, || false);
}

//! Sends the message of a process that is about to lower its rights. From then on, the ledger
//! keeper does for the process only what the process itself has the right to do. This holds even if
//! the process ends before the keeper has read the message.

use std::ffi::CString;

use heapprof_platform::sys;

use crate::engine::Engine;
use crate::options::{LedgerRecipient, RecordingOptions};

/// The words with which the message of a process that lowers its rights begins.
const LOWER_RIGHTS_MESSAGE: &str = "heapprof's lower rights 1";
/// Maximum number of attempts to send the message, with one attempt each millisecond.
const MAX_SEND_ATTEMPTS: u32 = 20;

/// The rights that a process still has after it has lowered its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightsLeft {
    /// The rights of one user. The process may be able to get other rights again later.
    User {
        /// The user's number.
        user: u32,
        /// Whether the process has only the rights of this user for good.
        is_for_good: bool,
    },
    /// The rights are not known here. The kernel may report them later.
    Unknown,
}

/// Reports to the ledger keeper or the auditor that the process is about to have only the rights
/// `left`. Only processes of root report this, because only the `record` of root has rights that
/// its processes may lack.
pub(super) fn report_lower_rights(engine: &Engine, left: RightsLeft) {
    let process = &engine.process;
    let is_root_still = matches!(left, RightsLeft::User { user, .. } if user == 0);
    // A program in a sandbox makes no system call for us, so this comes first.
    if is_root_still
        || process.is_sandboxed()
        || process.is_filtered()
        || sys::effective_user() != 0
        || !process.is_own()
    {
        return;
    }
    engine.with_guard_and_signals_blocked(|| {
        let options = engine.dumping.options.with(process, |o| o.clone());
        let Some(path) = options.as_ref().and_then(listener) else {
            return;
        };
        let text = match left {
            RightsLeft::Unknown => format!("{LOWER_RIGHTS_MESSAGE}\n"),
            RightsLeft::User { user, is_for_good } => {
                let group = sys::effective_group();
                let ending = if is_for_good { "" } else { " now" };
                format!("{LOWER_RIGHTS_MESSAGE} {user} {group}{ending}\n")
            }
        };
        // If this message is not received, the keeper may ask the kernel later.
        let _ = sys::send_message(&path, text.as_bytes(), MAX_SEND_ATTEMPTS);
    });
}

/// Returns the path of the socket of the ledger keeper, or of the auditor.
fn listener(options: &RecordingOptions) -> Option<CString> {
    let path = match &options.output.recipient {
        LedgerRecipient::Socket(path) => path,
        _ if !options.output.audit.is_empty() => &options.output.audit,
        _ => return None,
    };
    CString::new(&**path).ok()
}

//! What a process says before it lowers its rights. Whoever keeps its books then does nothing for
//! it that it could not do itself afterwards, even if it ends before anybody has looked.

use std::ffi::CString;

use crate::engine::Engine;
use crate::options::{LedgerRecipient, RecordingOptions};
use crate::platform::sys;

/// What is said first.
const LOWER_RIGHTS_MESSAGE: &str = "heapprof's lower rights 1";
/// For so many milliseconds somebody is waited for who is to hear it.
const MAX_SEND_ATTEMPTS: u32 = 20;

/// What is left to a process that lowers its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightsLeft {
    /// Those of a user, which it can exchange for those of others later, or cannot.
    User {
        /// The user's number.
        user: u32,
        /// Whether they are the only rights that it has from now on.
        is_for_good: bool,
    },
    /// The kernel may say it later.
    Unknown,
}

/// Says that the process is about to have no more rights than these, to whoever keeps its books or
/// audits it. Only root's are of interest, because only root's `record` has rights that its
/// processes may lack.
pub(super) fn report_lower_rights(engine: &Engine, left: RightsLeft) {
    let process = &engine.process;
    let is_root_still = matches!(left, RightsLeft::User { user, .. } if user == 0);
    // A program that is shut in makes no system call for us, so this comes first.
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
        // If nobody hears it, the kernel may be asked later.
        let _ = sys::send_message(&path, text.as_bytes(), MAX_SEND_ATTEMPTS);
    });
}

/// Where somebody listens who keeps the books of this process, or audits it.
fn listener(options: &RecordingOptions) -> Option<CString> {
    let path = match &options.output.recipient {
        LedgerRecipient::Socket(path) => path,
        _ if !options.output.audit.is_empty() => &options.output.audit,
        _ => return None,
    };
    CString::new(&**path).ok()
}

//! The messages of a process to the auditor of a program's forked children (`record --fork-audit`),
//! and the wait for its answers.
//!
//! The auditor inspects a child when it begins, while it has only inherited pages, and before it
//! ends. The child waits for both inspections, but not for long, because the auditor may have
//! ended. The child also reports which files it loads, without waiting.

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_platform::sys;
use heapprof_profile::fork::LoadAttempt;

use crate::engine::Engine;
use crate::options::RecordingOptions;
use crate::process::EngineProcess;

/// The message of a forked child that begins. The id of its parent follows.
const FORKED_MESSAGE: &str = "heapprof's child 1";
/// The message of a process before its last profile.
const END_MESSAGE: &str = "heapprof's end 1";
/// The message of a process before an exec.
const EXEC_MESSAGE: &str = "heapprof's exec 1";
/// The message of a process that requests an inspection.
const AUDIT_MESSAGE: &str = "heapprof's look 1";
/// The message of a child that has tried to load a file. The next line describes the attempt.
const LOAD_MESSAGE: &str = "heapprof's load 1";
/// Longest time, in seconds, for which a process waits while the auditor answers no process at all.
/// The auditor answers one process after the other. If the auditor has ended, no process waits.
const AUDIT_TIMEOUT: i64 = 30;
/// Time in nanoseconds for which no process waits for the auditor, after a process has waited in
/// vain.
const AUDIT_RETRY_INTERVAL: u64 = 300_000_000_000;
/// Longest time that a forked child tries to send its first message, in milliseconds. It is long
/// because without this message the auditor does not know of the child.
const LONG_SEND_TIMEOUT: u32 = 5000;
/// Longest time that a process tries to send a message, in milliseconds. The first message of a
/// forked child has [`LONG_SEND_TIMEOUT`] instead.
const SHORT_SEND_TIMEOUT: u32 = 20;

/// Prepares for forked children: maps the time of the last answer of the auditor, or of the ledger
/// keeper that reads the memory of ending processes. All processes of the recording share it.
pub(super) fn begin(engine: &Engine, options: &RecordingOptions) {
    let may_wait = options.output.waits_at_end || !options.output.audit.is_empty();
    if may_wait && engine.process.last_answer.get().is_none() {
        // Without the shared word, each process waits by itself.
        let word = sys::shared_word();
        let _ = word.map(|word| engine.process.last_answer.set(word));
    }
}

/// Reports that this is a forked child of the process `parent`.
pub(super) fn report_fork(engine: &Engine, options: &RecordingOptions, parent: i32) {
    report(
        engine,
        options,
        FORKED_MESSAGE,
        &format!(" {parent}"),
        AUDIT_TIMEOUT,
    );
}

/// Reports that the process ends or calls exec.
pub(super) fn report_end(engine: &Engine, options: &RecordingOptions, is_exec: bool) {
    report(
        engine,
        options,
        if is_exec { EXEC_MESSAGE } else { END_MESSAGE },
        "",
        AUDIT_TIMEOUT,
    );
}

impl Engine {
    /// Waits until the auditor has inspected the process's pages, if the options name an auditor
    /// ([`DumpOutput::audit`](crate::options::DumpOutput::audit)). `ends` says that the program is
    /// about to end. Returns whether the pages were inspected.
    pub fn wait_for_audit(&self, ends: bool) -> bool {
        let options = self.dumping.options.with(&self.process, |o| o.clone());
        let text = if ends { END_MESSAGE } else { AUDIT_MESSAGE };
        options.is_some_and(|options| report(self, &options, text, "", AUDIT_TIMEOUT))
    }

    /// Reports to the auditor that this child has tried to load a file. Returns whether the auditor
    /// received the report.
    pub fn report_load(&self, load: &LoadAttempt) -> bool {
        let options = self.dumping.options.with(&self.process, |o| o.clone());
        let text = format!("\n{}", load.comment());
        options.is_some_and(|options| report(self, &options, LOAD_MESSAGE, &text, 0))
    }
}

/// Sends a message to the auditor, and waits `seconds` seconds for the answer. The time restarts
/// whenever the auditor answers another process. Returns whether the auditor has answered. If
/// `seconds` is 0, returns whether it has received the message.
fn report(
    engine: &Engine,
    options: &RecordingOptions,
    what: &str,
    rest: &str,
    seconds: i64,
) -> bool {
    let process = &engine.process;
    let generation = engine.threads.names.generation();
    let is_audited = generation > 0 && !options.output.audit.is_empty();
    if !is_audited || process.is_sandboxed() || process.is_filtered() {
        return false;
    }
    let last = LastAnswer::new(process);
    // An auditor that kept a process waiting in vain may do so again.
    let is_unheard = last.is_in_vain();
    let seconds = if is_unheard { 0 } else { seconds };
    let unreported = process.unreported_audits.load(Ordering::Relaxed);
    let text = format!("{what} {generation} {unreported}{rest}\n");
    let Ok(path) = CString::new(&*options.output.audit) else {
        return false;
    };
    let tries = match what == FORKED_MESSAGE && !is_unheard {
        true => LONG_SEND_TIMEOUT,
        false => SHORT_SEND_TIMEOUT,
    };
    // As long as others are answered, this one's turn comes.
    let mut before = last.get();
    let goes_on = || {
        let now = last.get();
        seconds > 0 && !last.is_in_vain() && std::mem::replace(&mut before, now) != now
    };
    match sys::send_request(&path, text.as_bytes(), tries, seconds, goes_on) {
        Ok(is_answered) => {
            if seconds > 0 {
                last.note(is_answered);
            }
            is_answered || seconds == 0
        }
        Err(_) => {
            process.unreported_audits.fetch_add(1, Ordering::Relaxed);
            false
        }
    }
}

/// The time of the last answer to any process that waits for `record`, in nanoseconds of the
/// monotonic clock. A time in the future means that a process has waited in vain, and that no
/// process waits until then.
pub(super) struct LastAnswer(Option<&'static AtomicU64>);

impl LastAnswer {
    pub(super) fn new(process: &EngineProcess) -> Self {
        Self(process.last_answer.get().copied())
    }

    fn get(&self) -> u64 {
        self.0.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    pub(super) fn is_in_vain(&self) -> bool {
        self.get() > now()
    }

    pub(super) fn note(&self, is_answered: bool) {
        let moment = if is_answered {
            now()
        } else {
            now() + AUDIT_RETRY_INTERVAL
        };
        if let Some(word) = self.0 {
            word.store(moment, Ordering::Relaxed);
        }
    }
}

fn now() -> u64 {
    sys::nanoseconds(libc::CLOCK_MONOTONIC) as u64
}

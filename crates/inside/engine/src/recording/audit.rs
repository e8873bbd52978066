//! What a process says to whoever audits the forked children of a program, and waits for.
//!
//! A child is looked at when it begins, so that its pages are those that it has inherited, and
//! before it ends. It waits for both, but not for long: whoever audits may be gone by then. What it
//! loads it only says.

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_profile::fork::LoadAttempt;

use crate::engine::Engine;
use crate::options::RecordingOptions;
use crate::platform::sys;

/// What a forked child says first. The process that it was forked from follows.
const FORKED_MESSAGE: &str = "heapprof's child 1";
/// What a process says before its last profile, and before it becomes another program.
const END_MESSAGE: &str = "heapprof's end 1";
const EXEC_MESSAGE: &str = "heapprof's exec 1";
/// What a process says that wants to be looked at now.
const AUDIT_MESSAGE: &str = "heapprof's look 1";
/// What a child says that has tried to load something. What it was follows on the next line.
const LOAD_MESSAGE: &str = "heapprof's load 1";
/// So many seconds a process waits to be looked at, from the last time that any was. Whoever audits
/// looks at one after the other; if they are gone, nobody waits.
const AUDIT_TIMEOUT: i64 = 30;
/// After somebody has waited in vain, nobody waits for so many nanoseconds.
const AUDIT_RETRY_INTERVAL: u64 = 300_000_000_000;
/// For so many milliseconds a process tries to be heard: a child that nobody knows of would be
/// lost.
const LONG_SEND_TIMEOUT: u32 = 5000;
const SHORT_SEND_TIMEOUT: u32 = 20;

/// Makes ready for forked children.
pub(super) fn begin(engine: &Engine, options: &RecordingOptions) {
    if !options.output.audit.is_empty() && engine.process.last_audit.get().is_none() {
        // Without it, each process waits for itself.
        let word = sys::shared_word();
        let _ = word.map(|word| engine.process.last_audit.set(word));
    }
}

/// Says that this is a forked child of a process.
pub(super) fn report_fork(engine: &Engine, options: &RecordingOptions, parent: i32) {
    report(
        engine,
        options,
        FORKED_MESSAGE,
        &format!(" {parent}"),
        AUDIT_TIMEOUT,
    );
}

/// Says that the process ends, or that it becomes another program.
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
    /// Waits until somebody has looked at the process's pages, if that was asked for
    /// ([`DumpOutput::audit`](crate::options::DumpOutput::audit)). The program may be about to end.
    /// Returns whether somebody looked.
    pub fn wait_for_audit(&self, ends: bool) -> bool {
        let options = self.dumping.options.with(&self.process, |o| o.clone());
        let text = if ends { END_MESSAGE } else { AUDIT_MESSAGE };
        options.is_some_and(|options| report(self, &options, text, "", AUDIT_TIMEOUT))
    }

    /// Tells whoever audits the children of a program that this child has tried to load something.
    /// Returns whether somebody was told.
    pub fn report_load(&self, load: &LoadAttempt) -> bool {
        let options = self.dumping.options.with(&self.process, |o| o.clone());
        let text = format!("\n{}", load.comment());
        options.is_some_and(|options| report(self, &options, LOAD_MESSAGE, &text, 0))
    }
}

/// Tells somebody who audits, and waits for them for so many seconds. Returns whether they have
/// answered, or have heard it, if nobody waits.
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
    let last = LastAudit(process.last_audit.get().copied());
    // Whoever kept a process waiting may do so again.
    let is_unheard = last.is_in_vain();
    let seconds = if is_unheard { 0 } else { seconds };
    let untold = process.unreported_audits.load(Ordering::Relaxed);
    let text = format!("{what} {generation} {untold}{rest}\n");
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

/// When one of the audited processes was answered last; or, if that is yet to come, until when none
/// waits, because one has waited in vain. In nanoseconds of the clock that nobody sets.
struct LastAudit(Option<&'static AtomicU64>);

impl LastAudit {
    fn get(&self) -> u64 {
        self.0.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn is_in_vain(&self) -> bool {
        self.get() > now()
    }

    fn note(&self, is_answered: bool) {
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

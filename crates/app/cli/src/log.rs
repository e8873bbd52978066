//! The log of a recording (`--log`): opens its file, and describes its content.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, bail};
use heapprof_recorder::log::{EventLogEnd, EventLogSummary, EventLogWriter};

use crate::args::{FileMode, LogArgs};
use crate::output;

/// Makes the log's file and starts the writer, if options name a log. `output` is the profile.
pub(crate) fn open(
    args: &LogArgs,
    mode: FileMode,
    output: Option<&Path>,
) -> Result<Option<EventLogWriter>> {
    let opened = open_file(args, mode, output)?;
    let log = opened.map(|(file, limit)| EventLogWriter::new(file, limit));
    log.transpose()
}

/// Makes the log's file, if the options name one. Returns the file with its size limit.
pub(crate) fn open_file(
    args: &LogArgs,
    mode: FileMode,
    output: Option<&Path>,
) -> Result<Option<(File, u64)>> {
    let Some(path) = &args.log else {
        return Ok(None);
    };
    if path == Path::new("-") {
        bail!("--log -: give a file; /dev/stdout is standard output");
    }
    if output == Some(path) {
        bail!("--log and -o both name {}", path.display());
    }
    Ok(Some((output::open(mode, path)?, args.log_limit)))
}

/// Describes the content of the log at `path`.
pub(crate) fn describe(end: &EventLogEnd, path: &str) -> String {
    match end {
        EventLogEnd::Complete(summary) => describe_summary(summary, path),
        EventLogEnd::Abandoned => {
            format!("{path}: the log could not be completed: nothing reads from it")
        }
    }
}

/// Describes the content of a log, and what is missing in it.
fn describe_summary(summary: &EventLogSummary, path: &str) -> String {
    let mut text = format!("{path}: {} events", summary.written);
    if summary.is_empty {
        text += "; the program was not recorded, or never handed its events over";
    }
    if let Some(failed) = &summary.failed {
        text += &format!("; then writing failed: {failed}");
    }
    if summary.missed > 0 {
        text += &format!(
            "; {} are missing, because they came faster than they could be read",
            summary.missed
        );
    }
    if summary.beyond > 0 && summary.failed.is_none() {
        text += &format!("; {} are missing: --log-limit was reached", summary.beyond);
    }
    if summary.is_cut {
        text += "; the program ended before the last events could be read";
    }
    // A pipe has been read by then, so only a file can be read again.
    if summary.written > 0 && Path::new(path).is_file() {
        text += &format!("; next: heapprof leaks --log {path}");
    }
    text
}

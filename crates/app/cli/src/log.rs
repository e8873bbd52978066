//! The log of a recording (`--log`): opens its file, and prints what was written into it.

use std::path::Path;

use anyhow::{Result, bail};
use heapprof_recorder::log::{EventLogEnd, EventLogSummary, EventLogWriter};

use crate::args::{FileMode, LogArgs};
use crate::{messages, output};

/// Makes the file that the options name, if they name one, and starts to write a log into it. The
/// profile goes to `output`.
pub(crate) fn open(
    args: &LogArgs,
    mode: FileMode,
    output: Option<&Path>,
) -> Result<Option<EventLogWriter>> {
    let Some(path) = &args.log else {
        return Ok(None);
    };
    if path == Path::new("-") {
        bail!("--log -: name a file; /dev/stdout is standard output");
    }
    if output == Some(path) {
        bail!("--log and -o both name {}", path.display());
    }
    let file = output::open(mode, path)?;
    EventLogWriter::new(file, args.log_limit).map(Some)
}

/// Prints what was written into the log that the options name.
pub(crate) fn report(args: &LogArgs, end: &EventLogEnd) {
    let Some(path) = &args.log else {
        return;
    };
    let path = path.display().to_string();
    match end {
        EventLogEnd::Complete(summary) => messages::note(&describe(summary, &path)),
        EventLogEnd::Abandoned => messages::note(&format!(
            "{path}: the log could not be written to its end: nobody takes what is written"
        )),
    }
}

/// Describes what is in a log, and what is missing in it.
fn describe(summary: &EventLogSummary, path: &str) -> String {
    let mut text = format!("{path}: {} events", summary.written);
    if summary.is_empty {
        text += ": the program was not recorded, or could keep no file that they are read from";
    }
    if let Some(failed) = &summary.failed {
        text += &format!("; it could not be written further: {failed}");
    }
    if summary.missed > 0 {
        text += &format!(
            "; {} are missing, because they came faster than they could be read",
            summary.missed
        );
    }
    if summary.beyond > 0 && summary.failed.is_none() {
        text += &format!("; {} are missing beyond --log-limit", summary.beyond);
    }
    if summary.is_cut {
        text += "; the program ended before its last ones could be read";
    }
    // A pipe has been read by then, so only a file can be read again.
    if summary.written > 0 && Path::new(path).is_file() {
        text += &format!("; next: heapprof leaks --log {path}");
    }
    text
}

//! Prints the events of a recording.

use std::io::{self, Write};

use heapprof_recorder::{ProgramStream, RecordingEvent, RecordingObserver};
use heapprof_report::LineGrowth;

use super::notes;
use super::outcome::{describe_failure, describe_refused};
use super::program::report_preloading;
use crate::args::RecordArgs;
use crate::args::record::LineFormat;
use crate::{log, messages};

/// The printer of the events of a recording.
pub(super) struct RecordPrinter {
    line_format: LineFormat,
    /// The path of the log, if there is one.
    log: Option<String>,
}

impl RecordPrinter {
    /// Makes the printer of a recording with the options `args`.
    pub(super) fn new(args: &RecordArgs) -> Self {
        let log = args.log.log.as_ref();
        Self {
            line_format: args.follow_format,
            log: log.map(|path| path.display().to_string()),
        }
    }
}

impl RecordingObserver for RecordPrinter {
    fn event(&self, event: RecordingEvent<'_>) {
        match event {
            RecordingEvent::ShellNeeded(check) => report_preloading(check),
            RecordingEvent::DamagedLines => messages::note(
                "some reports of the program about its lines are damaged, because a process was \
                 killed or could not write; --follow-lines continues after them",
            ),
            RecordingEvent::SkippedLines => messages::note(
                "some lines that grew are not reported, because the program reported more than \
                 could be read or written; a larger MIN of --follow-lines makes it report fewer",
            ),
            RecordingEvent::LineOutputFailed(path, error) => messages::note(&format!(
                "{}: cannot be written: {error}; no more lines are reported",
                path.display()
            )),
            RecordingEvent::ViewFailed(error) => messages::note(&format!(
                "--live: {error:#}; the recording continues without the view"
            )),
            RecordingEvent::LogEnded(end) => {
                if let Some(path) = &self.log {
                    messages::note(&log::describe(end, path));
                }
            }
            RecordingEvent::Note(note) => messages::note(&notes::describe(note)),
            RecordingEvent::ListRemoved(list) => messages::note(&format!(
                "{}: was removed while the program ran: there may be more profiles, which are not \
                 listed here and have no names",
                list.display()
            )),
            RecordingEvent::WriteFailed(failure) => messages::note(&describe_failure(failure)),
            RecordingEvent::ProfilesRefused(refused) => {
                if let Some(text) = describe_refused(refused) {
                    messages::note(&text);
                }
            }
        }
    }

    fn growth_text(&self, growth: &LineGrowth<'_>) -> String {
        match self.line_format {
            LineFormat::Text => growth.text(),
            LineFormat::Json => growth.json(),
        }
    }

    fn line(&self, text: &str) {
        match self.line_format {
            LineFormat::Text => messages::note(text),
            LineFormat::Json => messages::plain(text),
        }
    }

    fn view_line(&self, line: &str) {
        messages::plain(line);
    }

    fn program_output(&self, stream: ProgramStream, text: &[u8]) -> io::Result<()> {
        match stream {
            ProgramStream::Stdout => {
                let mut stdout = io::stdout();
                stdout.write_all(text)?;
                stdout.flush()
            }
            ProgramStream::Stderr => io::stderr().write_all(text),
        }
    }
}

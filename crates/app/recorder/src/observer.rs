//! The events of a recording, for a front end that shows them to people.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heapprof_report::LineGrowth;

use crate::log::EventLogEnd;
use crate::note::RecordingNote;
use crate::profile_entries::WriteFailure;
use crate::program::PreloadCheck;

/// A front end of a recording, which receives the recording's events and shows them to people. Its
/// methods are called from several threads.
pub trait RecordingObserver: Send + Sync {
    /// Receives an event.
    fn event(&self, event: RecordingEvent<'_>);

    /// Returns the text that reports a line of code whose memory has grown.
    fn growth_text(&self, growth: &LineGrowth<'_>) -> String;

    /// Prints a text that [`growth_text`](Self::growth_text) returned.
    fn line(&self, text: &str);

    /// Prints a line of the view, for a recording without a terminal.
    fn view_line(&self, line: &str);

    /// Prints what the program printed while the view had the terminal.
    ///
    /// # Errors
    /// The text can't be printed. The caller then does not try to print the rest.
    fn program_output(&self, stream: ProgramStream, text: &[u8]) -> io::Result<()>;
}

/// A stream that a program prints to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An event of a recording.
#[derive(Debug)]
pub enum RecordingEvent<'a> {
    /// The program is a script that does not name its interpreter, so the shell runs it.
    ShellNeeded(&'a PreloadCheck),
    /// Some messages of processes about growing lines are damaged.
    DamagedLines,
    /// Some growing lines of code are not reported, because there were too many.
    SkippedLines,
    /// The file or pipe for reports of growing lines could not be written, so no more reports are
    /// written.
    LineOutputFailed(&'a Path, &'a LineOutputError),
    /// The view ended early, or did not begin. The recording goes on.
    ViewFailed(&'a anyhow::Error),
    /// The log of events ended.
    LogEnded(&'a EventLogEnd),
    /// A part of the recording could not be done.
    Note(&'a RecordingNote),
    /// The list of profiles at this path was removed while the program ran.
    ListRemoved(&'a Path),
    /// Profiles could not be written.
    WriteFailed(&'a WriteFailure),
    /// Profiles that heapprof must not touch, so that their addresses get no names. The list is not
    /// empty.
    ProfilesRefused(&'a [(PathBuf, io::Error)]),
}

/// The reason why no more reports of growing lines can be written.
#[derive(Debug, thiserror::Error)]
pub enum LineOutputError {
    /// The reader of the pipe did not read the last lines in time.
    #[error("its reader was too slow")]
    SlowReader,
    /// No process read from the pipe for this long.
    #[error("nothing read from it for {} seconds", .0.as_secs())]
    NoReader(Duration),
    /// The file can't be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

//! Why a recording can't start.

use std::io;

/// Why a recording can't start.
#[derive(Debug, thiserror::Error)]
pub enum RecordingStartError {
    /// No folder can be made in which the processes of the recording would report.
    #[error("cannot create a temporary folder; set TMPDIR to one that only this user can write to")]
    NoFolder(#[source] io::Error),
    /// No file can be made in the folder of the recording.
    #[error("cannot create a temporary file")]
    NoFile(#[source] io::Error),
    /// The thread that reports growing lines of code can't be made.
    #[error("cannot start the thread that follows lines")]
    NoLineThread(#[source] io::Error),
}

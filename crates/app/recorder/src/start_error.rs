//! Why a recording can't start.

use std::io;

/// Why a recording can't start.
#[derive(Debug, thiserror::Error)]
pub enum RecordingStartError {
    /// No folder can be made in which the processes of the recording would report.
    #[error(
        "no temporary folder can be made; TMPDIR may name one that only this user may write to"
    )]
    NoFolder(#[source] io::Error),
    /// No file can be made in the folder of the recording.
    #[error("no temporary file can be made")]
    NoFile(#[source] io::Error),
    /// The thread that reports growing lines of code can't be made.
    #[error("no thread can be made that follows lines")]
    NoLineThread(#[source] io::Error),
}

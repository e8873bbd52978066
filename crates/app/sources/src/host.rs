//! What a front end does for the sources of profiles.

use std::io::{self, Read};

use anyhow::Result;
use heapprof_analysis::QuestionSource;
use heapprof_formats::FormatError;

/// An error whose advice depends on the front end.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file can't be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Profiles that are to be added up are two moments of one process.
    #[error(
        "{earlier} and {later} are two moments of one process ({process}); adding them up counts \
         the same memory twice"
    )]
    SameProcess {
        /// The name of one profile.
        earlier: String,
        /// The name of the other profile.
        later: String,
        /// The process, as a user knows it.
        process: String,
    },
}

/// The front end that asks for profiles.
pub trait SourceHost: Send + Sync {
    /// Shows a note to the user. The work goes on.
    fn note(&self, text: &str);

    /// Returns a function that shows how much of a source was read, in bytes. It has `length` bytes
    /// in all, if that is known.
    fn progress(&self, length: Option<u64>) -> Box<dyn FnMut(u64)>;

    /// Puts an error into words, with advice on what to do about it.
    fn explain(&self, error: SourceError) -> anyhow::Error;

    /// Whether an argument names a process or a core file.
    fn is_outside(&self, argument: &str) -> bool;

    /// Reads the process or the core file that an argument names; `None` if it names neither.
    fn read_outside(&self, argument: &str) -> Result<Option<QuestionSource>>;
}

/// A reader that passes a stream through and says how much was read.
pub(crate) struct ProgressReader<R> {
    inner: R,
    read: u64,
    progress: Box<dyn FnMut(u64)>,
}

impl<R: Read> ProgressReader<R> {
    pub(crate) fn new(inner: R, progress: Box<dyn FnMut(u64)>) -> Self {
        Self {
            inner,
            read: 0,
            progress,
        }
    }
}

impl<R: Read> Read for ProgressReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.read += n as u64;
        (self.progress)(self.read);
        Ok(n)
    }
}

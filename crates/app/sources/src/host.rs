//! The services that the sources of profiles get from a front end.

use std::io::{self, Read};

use anyhow::Result;
use heapprof_analysis::QuestionSource;
use heapprof_formats::FormatError;
use heapprof_profile::Profile;

/// An error whose advice depends on the front end.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file has an invalid format, or exceeds a limit.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Two profiles that would be added up are moments of one process.
    #[error(
        "{earlier} and {later} are two moments of one process ({process}); adding them up counts \
         the same memory twice"
    )]
    SameProcess {
        /// The name of the earlier profile.
        earlier: String,
        /// The name of the later profile.
        later: String,
        /// The process, in words for the user.
        process: String,
    },
}

/// The front end that reads profiles through [`ProfileSources`](crate::ProfileSources).
pub trait SourceHost: Send + Sync {
    /// Shows a note to the user about something that does not stop the work.
    fn note(&self, text: &str);

    /// Returns a function that shows how many bytes of a source were read. `length` is the size of
    /// the source in bytes, if it is known.
    fn progress(&self, length: Option<u64>) -> Box<dyn FnMut(u64)>;

    /// Puts an error into words, with advice on what to do about it.
    fn explain(&self, error: SourceError) -> anyhow::Error;

    /// Whether an argument names a process or a core file.
    fn is_outside(&self, argument: &str) -> bool;

    /// Gives names to the code of a recording that was read from a file of this user. All of its
    /// code without names is in files with build ids.
    fn name_own_code(&self, profile: &mut Profile);

    /// Reads the process or the core file that an argument names; `None` if it names neither.
    fn read_outside(&self, argument: &str) -> Result<Option<QuestionSource>>;
}

/// A reader that passes a stream through and reports how much was read.
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

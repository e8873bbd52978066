//! Writes the reports of growing lines of code to the front end's messages, or to a separate file
//! or pipe.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::observer::{LineOutputError, RecordingEvent, RecordingObserver};

/// Longest time for which the reader of a pipe may read nothing.
const PIPE_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of bytes that one write puts into a pipe. A pipe that is ready for writing accepts this
/// number of bytes without a wait.
const PIPE_CHUNK_BYTES: usize = 4096;

/// The destination of the reports of growing lines of code.
pub(crate) enum LineOutput {
    /// The messages of the front end.
    Messages(Arc<dyn RecordingObserver>),
    /// A file or a pipe.
    File(LinePipe, Arc<dyn RecordingObserver>),
    /// No destination any more, because the file could not be written.
    Nowhere,
}

/// A file or pipe, and the text that still has to be written to it.
pub(crate) struct LinePipe {
    file: File,
    path: PathBuf,
    /// The text that is to be written, from the index `done` on.
    text: Vec<u8>,
    done: usize,
    /// When the file last accepted some text.
    took: Instant,
}

impl LineOutput {
    /// Whether lines can still be written.
    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(self, Self::Nowhere)
    }

    /// Adds a line, which [`write`](Self::write) writes later. A line that goes to the front end's
    /// messages is printed at once.
    pub(crate) fn say(&mut self, text: &str) {
        match self {
            Self::Messages(observer) => observer.line(text),
            Self::File(pipe, _) => {
                if pipe.done == pipe.text.len() {
                    pipe.took = Instant::now();
                }
                pipe.text.extend_from_slice(text.as_bytes());
                pipe.text.push(b'\n');
            }
            Self::Nowhere => {}
        }
    }

    /// Writes the added lines. Waits until `deadline` for the reader of a pipe; without a deadline,
    /// does not wait. Returns false if some lines still have to be written.
    pub(crate) fn write(&mut self, deadline: Option<Instant>) -> bool {
        let Self::File(pipe, observer) = self else {
            return true;
        };
        let error = match pipe.write(deadline) {
            Ok(true) => return true,
            Ok(false) if deadline.is_some() => LineOutputError::SlowReader,
            Ok(false) if pipe.took.elapsed() > PIPE_TIMEOUT => {
                LineOutputError::NoReader(PIPE_TIMEOUT)
            }
            Ok(false) => return false,
            Err(error) => error.into(),
        };
        observer.event(RecordingEvent::LineOutputFailed(&pipe.path, &error));
        *self = Self::Nowhere;
        true
    }
}

impl LinePipe {
    /// Makes the output into a file or pipe that is already open.
    pub(crate) fn new(file: File, path: PathBuf) -> Self {
        Self {
            file,
            path,
            text: Vec::new(),
            done: 0,
            took: Instant::now(),
        }
    }

    fn write(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        while self.done < self.text.len() {
            let now = Instant::now();
            let left = deadline.map_or(Duration::ZERO, |end| end.saturating_duration_since(now));
            let left = Timespec::try_from(left).unwrap_or_default();
            let mut ready = [PollFd::new(&self.file, PollFlags::OUT)];
            match poll(&mut ready, Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let text = &self.text[self.done..];
            match self.file.write(&text[..text.len().min(PIPE_CHUNK_BYTES)]) {
                Ok(n) => self.done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.took = now;
        }
        self.text.clear();
        self.done = 0;
        Ok(true)
    }
}

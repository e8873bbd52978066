//! Writes the lines of `--follow-lines`: among the messages, or to a file or pipe of their own.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::args::RecordArgs;
use crate::{messages, output};

/// Longest time that a pipe's reader may read nothing.
const PIPE_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of bytes that go into a pipe at once without a wait, once there is any room.
const PIPE_CHUNK_BYTES: usize = 4096;

/// The destination of the lines.
pub(super) enum LineOutput {
    /// The messages of heapprof.
    Messages,
    /// A file or a pipe.
    File(LinePipe),
    /// No destination any more, because the file could not be written.
    Nowhere,
}

/// A file or pipe, and the text that it has not taken yet.
pub(super) struct LinePipe {
    file: File,
    path: PathBuf,
    /// The text that is to be written, from the index `done` on.
    text: Vec<u8>,
    done: usize,
    /// When the file last took some text.
    took: Instant,
}

/// Opens what `--follow-output` names, before the program starts.
pub(super) fn open(args: &RecordArgs) -> Result<LineOutput> {
    match &args.follow_output {
        None => Ok(LineOutput::Messages),
        Some(path) => {
            let writer = reader_of(path);
            let file = output::open(args.file_mode.mode()?, path)?;
            drop(writer);
            Ok(LineOutput::File(LinePipe {
                file,
                path: path.clone(),
                text: Vec::new(),
                done: 0,
                took: Instant::now(),
            }))
        }
    }
}

/// Prints a note if `path` is a pipe that no process reads from yet. Returns a writer of a pipe
/// that has a reader: the reader would see an end if this writer was closed before there is another
/// one.
fn reader_of(path: &Path) -> Option<OwnedFd> {
    use std::os::unix::fs::FileTypeExt;
    let is_pipe = path
        .metadata()
        .is_ok_and(|found| found.file_type().is_fifo());
    if !is_pipe {
        return None;
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NXIO) => {
            let path = path.display();
            messages::note(&format!("{path}: waiting for a reader of this pipe"));
            None
        }
        opened => opened.ok(),
    }
}

impl LineOutput {
    /// Whether lines can still be written.
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(self, Self::Nowhere)
    }

    /// Adds a line, which [`write`](Self::write) writes. Among the messages, it is printed at once.
    pub(super) fn say(&mut self, text: &str, is_message: bool) {
        match self {
            Self::Messages if is_message => messages::note(text),
            Self::Messages => messages::plain(text),
            Self::File(pipe) => {
                if pipe.done == pipe.text.len() {
                    pipe.took = Instant::now();
                }
                pipe.text.extend_from_slice(text.as_bytes());
                pipe.text.push(b'\n');
            }
            Self::Nowhere => {}
        }
    }

    /// Writes the added lines, as far as the reader of a pipe takes them by `deadline`. Without a
    /// deadline it does not wait. Returns whether nothing is left to write.
    pub(super) fn write(&mut self, deadline: Option<Instant>) -> bool {
        let Self::File(pipe) = self else {
            return true;
        };
        let error = match pipe.write(deadline) {
            Ok(true) => return true,
            Ok(false) if deadline.is_some() => "its reader was too slow".to_string(),
            Ok(false) if pipe.took.elapsed() > PIPE_TIMEOUT => {
                format!("nobody read from it for {} seconds", PIPE_TIMEOUT.as_secs())
            }
            Ok(false) => return false,
            Err(error) => error.to_string(),
        };
        let path = pipe.path.display();
        messages::note(&format!(
            "{path}: cannot be written: {error}; no more lines are said"
        ));
        *self = Self::Nowhere;
        true
    }
}

impl LinePipe {
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

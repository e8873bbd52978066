//! Keeps what the program prints while the view has the terminal. The text goes into a file without
//! a name, and from there to the terminal once the view is closed.
//!
//! A pipe would not do, because the program must neither wait for heapprof nor end if heapprof is
//! killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_setfl};

use crate::observer::{ProgramStream, RecordingObserver};

/// Number of bytes that are kept at the end of the file when older output is removed. That happens
/// when the file has grown to twice this size.
const MIN_KEPT_BYTES: u64 = 8 << 20;
/// Number of bytes that are read to find the last lines.
const LAST_LINES_READ_LIMIT: u64 = 4096;
/// Maximum number of lines that the view has room for.
const MAX_LINES: usize = 8;

/// The file of the program's output, and how much of the output was printed.
pub(super) struct ProgramOutput {
    file: File,
    /// Whether stdout and stderr go into the file.
    streams: [bool; 2],
    from: Mutex<u64>,
    observer: Arc<dyn RecordingObserver>,
}

impl ProgramOutput {
    /// Makes the file for the program's output, if the program would print on the terminal.
    /// `streams` says whether stdout and stderr lead to the terminal.
    pub(super) fn new(
        streams: [bool; 2],
        observer: Arc<dyn RecordingObserver>,
    ) -> io::Result<Option<Self>> {
        if streams == [false; 2] {
            return Ok(None);
        }
        let file = tempfile::tempfile()?;
        fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(Some(Self {
            file,
            streams,
            from: Mutex::new(0),
            observer,
        }))
    }

    /// Redirects the program's stdout and stderr into the file, if they lead to the terminal.
    pub(super) fn redirect(&self, command: &mut Command) -> io::Result<()> {
        if self.streams[0] {
            command.stdout(Stdio::from(self.file.try_clone()?));
        }
        if self.streams[1] {
            command.stderr(Stdio::from(self.file.try_clone()?));
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    /// Returns the last lines that the program printed.
    pub(super) fn last_lines(&self) -> Vec<String> {
        let len = self.len();
        let mut text = vec![0; len.min(LAST_LINES_READ_LIMIT) as usize];
        let from = len - text.len() as u64;
        let read = self.file.read_at(&mut text, from);
        text.truncate(read.unwrap_or(0));
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let lines = lines[lines.len().saturating_sub(MAX_LINES)..].iter();
        lines.map(|line| (*line).to_string()).collect()
    }

    /// Frees older output in the file if the file has become too large.
    pub(super) fn limit(&self) {
        let Ok(mut from) = self.from.lock() else {
            return;
        };
        let len = self.len();
        if len.saturating_sub(*from) > 2 * MIN_KEPT_BYTES {
            *from = len - MIN_KEPT_BYTES;
            self.give_back(*from);
        }
    }

    fn give_back(&self, until: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&self.file, flags, 0, until);
    }

    /// Prints the program's new output on the terminal.
    pub(super) fn pass_on(&self) {
        let Ok(mut from) = self.from.lock() else {
            return;
        };
        let mut piece = vec![0; 64 << 10];
        while let Ok(read @ 1..) = self.file.read_at(&mut piece, *from) {
            let stream = match self.streams[0] {
                true => ProgramStream::Stdout,
                false => ProgramStream::Stderr,
            };
            let done = self.observer.program_output(stream, &piece[..read]);
            *from += read as u64;
            if done.is_err() {
                break;
            }
        }
        if *from > 2 * MIN_KEPT_BYTES {
            self.give_back(*from);
        }
    }
}

//! A progress bar on stderr for reading that takes over half a second, on a terminal only.

use std::io::{self, IsTerminal, Read};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Passes a stream through and shows how far it is.
pub(crate) struct Progress<R> {
    inner: R,
    read: u64,
    length: Option<u64>,
    started: Instant,
    bar: Option<ProgressBar>,
    wanted: bool,
}

impl<R: Read> Progress<R> {
    pub(crate) fn new(inner: R, length: Option<u64>) -> Self {
        Self {
            inner,
            read: 0,
            length,
            started: Instant::now(),
            bar: None,
            wanted: io::stderr().is_terminal(),
        }
    }

    fn show(&mut self) {
        if self.bar.is_none() && self.started.elapsed() > Duration::from_millis(500) {
            let bar = match self.length {
                Some(length) => ProgressBar::new(length),
                None => ProgressBar::no_length(),
            };
            let template = match self.length {
                Some(_) => "reading {bar:30} {bytes} of {total_bytes}, {eta} left",
                None => "reading {spinner} {bytes}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.read);
        }
    }
}

impl<R: Read> Read for Progress<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.read += n as u64;
        if self.wanted {
            self.show();
        }
        Ok(n)
    }
}

impl<R> Drop for Progress<R> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

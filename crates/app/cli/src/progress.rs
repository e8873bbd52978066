//! A progress bar on stderr for work that takes over half a second. It appears only on a terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar, which appears once the work has taken a while.
pub(crate) struct WorkBar {
    started: Instant,
    bar: Option<ProgressBar>,
    wanted: bool,
    template: &'static str,
}

impl WorkBar {
    fn new(template: &'static str) -> Self {
        Self {
            started: Instant::now(),
            bar: None,
            wanted: io::stderr().is_terminal(),
            template,
        }
    }

    /// Makes a bar for a profile that is read, of `length` bytes if that is known.
    pub(crate) fn reading(length: Option<u64>) -> Self {
        Self::new(match length {
            Some(_) => "reading {bar:30} {bytes} of {total_bytes}, {eta} left",
            None => "reading {spinner} {bytes}",
        })
    }

    /// Makes a bar for a profile that goes into the database.
    pub(crate) fn storing() -> Self {
        Self::new("storing {bar:30} {percent}%, {eta} left")
    }

    /// Makes a bar for programs that are run.
    pub(crate) fn running() -> Self {
        Self::new("run {pos} of {len} {bar:30} {eta} left")
    }

    /// Shows the progress: the amount that is done, and the whole amount if it is known.
    pub(crate) fn at(&mut self, done: u64, all: Option<u64>) {
        if !self.wanted {
            return;
        }
        if self.bar.is_none() && self.started.elapsed() > Duration::from_millis(500) {
            let bar = match all {
                Some(all) => ProgressBar::new(all),
                None => ProgressBar::no_length(),
            };
            // The work before the bar appeared took time, too.
            let bar = bar.with_elapsed(self.started.elapsed());
            if let Ok(style) = ProgressStyle::with_template(self.template) {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for WorkBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

//! Tracks the writing of a log, so that heapprof does not wait for a pipe that is not read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// The number of beginnings and ends of writes so far. The number is odd during a write.
///
/// Only a write can last forever, because the reader of a pipe may stop reading. All other work
/// ends by itself if no file system hangs. It may take up to a minute, if the functions of a large
/// program are named.
#[derive(Debug, Default)]
pub(super) struct WriteProgress(AtomicU64);

impl WriteProgress {
    /// Runs a write, and counts its beginning and end.
    pub(super) fn writing<R>(&self, write: impl FnOnce() -> R) -> R {
        self.0.fetch_add(1, Ordering::Relaxed);
        let result = write();
        self.0.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Waits for the result of writing a log. Returns `None` if one write takes longer than
    /// `patience`.
    pub(super) fn wait<T>(&self, outcome: &Receiver<T>, patience: Duration) -> Option<T> {
        let mut before = self.0.load(Ordering::Relaxed);
        loop {
            match outcome.recv_timeout(patience) {
                Err(RecvTimeoutError::Timeout) => {}
                found => return found.ok(),
            }
            let now = self.0.load(Ordering::Relaxed);
            if std::mem::replace(&mut before, now) == now && now % 2 == 1 {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    /// Tests that a write is given up if it takes longer than the patience, and that other work is
    /// not.
    #[test]
    fn only_a_write_is_given_up() {
        const WRITE_TIMEOUT: Duration = Duration::from_millis(5);
        let (progress, (done, outcome)) = (Arc::new(WriteProgress::default()), channel());
        let (work, is_slow) = (progress.clone(), Duration::from_millis(100));
        let thread = std::thread::spawn(move || {
            std::thread::sleep(is_slow);
            work.writing(|| ());
            done.send(7).unwrap();
            std::thread::sleep(is_slow);
            drop(done);
        });
        assert_eq!(progress.wait(&outcome, WRITE_TIMEOUT), Some(7));
        assert_eq!(progress.wait(&outcome, WRITE_TIMEOUT), None);
        thread.join().unwrap();
        let (_done, outcome) = channel::<()>();
        let given_up = progress.writing(|| progress.wait(&outcome, WRITE_TIMEOUT));
        assert_eq!(given_up, None);
    }
}

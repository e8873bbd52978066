//! Watches the memory of processes from outside, whether they are recorded or not.
//!
//! A [`ProcessWatcher`] scans processes and their children, and returns the results as batches for
//! the database. A [`WatchRule`] is a condition on a number of a process, for which a watch can
//! wait. A [`WatchMark`] is a moment to which a program gives a name, by a datagram.
#![forbid(unsafe_code)]

mod mark;
mod receive;
mod rule;
mod watcher;

pub use mark::{ACCEPTED_ANSWER, MarkScope, WatchMark, make_mark};
pub use receive::receive_marks;
pub use rule::{ProcessReading, WatchRule};
pub use watcher::ProcessWatcher;

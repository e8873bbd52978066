//! Watches the memory of processes from outside, whether they are recorded or not.
//!
//! A [`ProcessWatcher`] scans processes and their children, and gives what it has seen as batches
//! for the database. A [`WatchRule`] says which number of a process is awaited. A [`WatchMark`] is
//! a moment that a program names by a datagram.
#![forbid(unsafe_code)]

mod mark;
mod receive;
mod rule;
mod watcher;

pub use mark::{ACCEPTED_ANSWER, MarkScope, WatchMark, make_mark};
pub use receive::receive_marks;
pub use rule::{ProcessReading, WatchRule};
pub use watcher::ProcessWatcher;

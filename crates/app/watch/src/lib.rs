//! Watches the memory of processes from outside, whether they are recorded or not.
//!
//! A [`ProcessWatcher`] scans processes and their children, and returns the results as batches for
//! the database. A [`WatchRule`] is a condition for which a watch can wait: a limit for a value of
//! a process, such as its resident set. A [`WatchMark`] is a named moment, which a program sends in
//! a datagram. [`read_snapshot`] reads one process at one moment.
#![forbid(unsafe_code)]

mod mark;
mod receive;
mod rule;
mod snapshot;
mod started_commands;
mod watcher;

pub use mark::{ACCEPTED_ANSWER, MarkScope, WatchMark, make_mark};
pub use receive::receive_marks;
pub use rule::{ProcessReading, WatchRule};
pub use snapshot::{list_processes, read_snapshot};
pub use started_commands::StartedCommands;
pub use watcher::ProcessWatcher;

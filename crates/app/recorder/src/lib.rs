//! Records a program: what every front end needs besides options and words.
//!
//! `rights` says with whose rights a file is opened that a recorded process named, `outside` reads
//! the ledger of a process, `log` writes the events of one, and `sockets` is where other commands
//! of the same user reach a recording.
//!
//! This crate must never know options, clap or the words of a message. It prints nothing: what
//! people are to read is a value.
#![deny(unsafe_code)]

pub mod inherited;
pub mod log;
pub mod outside;
pub mod records;
pub mod rights;
pub mod sockets;

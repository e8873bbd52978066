//! Brings `libheapprof.so` into a program that runs, and takes it out of the way again.
//!
//! One thread of the program is stopped by ptrace, at a place where it holds nothing that is
//! needed. A region is mapped by it, and it is let go. Code and library are written into the
//! region, and the thread is sent there: it loads the library, which leads the program's slots of
//! malloc to itself, and goes back to what it did. No instruction of the program is changed, and no
//! other thread is stopped. docs/dev/attach.md says what each step keeps from breaking.
//!
//! What the program says is data. It must never know reports, SQLite or the command line.

mod apart;
mod choice;
mod error;
mod filter;
mod memory;
mod process;
mod region;
mod stub;
mod taken;
mod target;
mod thread;
mod unwind;

pub use error::Error;
pub use target::{Attached, Target, Wish};

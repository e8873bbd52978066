//! Tools for the tests: running heapprof, building programs, making profiles.
#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
#![allow(clippy::print_stderr)]
#![allow(missing_docs, reason = "only tests read this")]

pub mod built;
pub mod elf_file;
pub mod executables;
pub mod exercise;
pub mod expectations;
pub mod fixtures;
pub mod fleet;
pub mod harness;
pub mod listener;
pub mod needs;
pub mod samples;
pub mod surroundings;
pub mod waits;
pub mod watched;
pub mod wire;

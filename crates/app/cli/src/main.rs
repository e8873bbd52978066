//! The program `heapprof`, which reads heap profiles and shows where the memory is.
//!
//! Only `main` decides the exit code: 0 means done, 1 means that a rule of `--fail-if` broke, and 2
//! means that the command could not be carried out.
#![deny(unsafe_code)]

mod advice;
mod args;
mod command;
mod command_line;
mod context;
mod drop_in;
mod log;
mod messages;
mod name;
mod output;
mod outside;
#[cfg(feature = "parquet")]
mod panics;
mod perl_offer;
mod process_choice;
mod progress;
mod sources;
mod suggestion;

use std::process::ExitCode;

use heapprof_carried::{perl_module, preload};
use heapprof_recorder::inherited_state;

/// The allocator of a static heapprof, also of SQLite's C: musl's own takes three times as long as
/// glibc's.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A closed pipe and a file that is too large are errors to writers and no silent death, because
    // output files must not be left half-written.
    inherited_state::survive_large_files();
    match command_line::run_words(std::env::args_os().collect(), command::run) {
        Ok(code) => code,
        Err(error) => exit_code(&error),
    }
}

/// Reports an error, and returns the exit code. A reader who stops before the end is no error.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    if output::is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    messages::error(error);
    ExitCode::from(2)
}

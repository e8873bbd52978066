//! The program `heapprof`, which reads heap profiles and shows where the memory is.
//!
//! Only `main` decides the exit code: 0 means done, 1 means that a rule of `--fail-if` broke, and 2
//! means that the command could not be carried out.
#![deny(unsafe_code)]

mod addresses;
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

use clap::error::ErrorKind;
use heapprof_carried::{perl_module, preload};
use heapprof_inspect::named_process;
use heapprof_recorder::inherited_state;

use crate::command_line::parse;

fn main() -> ExitCode {
    // A closed pipe and a file that is too large are errors to writers and no silent death, because
    // output files must not be left half-written.
    inherited_state::survive_large_files();
    let mut typed = command_line::words();
    if typed.len() > 2 && typed[1] == "help" && typed[2] == "options" {
        return exit_code(output::text(None, &args::shared_options()));
    }
    let mut parsed = parse(&typed);
    // The name of one of the user's processes is looked for last, because that takes time.
    if let Err(error) = &parsed
        && error.kind() == ErrorKind::InvalidSubcommand
        && typed.len() == 2
        && named_process::own(&typed[1].to_string_lossy()).is_ok_and(|found| !found.is_empty())
    {
        typed.insert(1, "why".into());
        parsed = parse(&typed);
    }
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            messages::usage(&error, &typed);
            return ExitCode::from(2);
        }
        Err(help) => {
            return exit_code(output::help(&help));
        }
    };
    match command::run(cli) {
        Ok(code) => code,
        Err(error) => exit_code(Err(error)),
    }
}

/// Reports an error, and returns the exit code. A reader who stops before the end is no error.
fn exit_code(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Err(error) if !output::is_broken_pipe(&error) => {
            messages::error(&error);
            ExitCode::from(2)
        }
        _ => ExitCode::SUCCESS,
    }
}

//! heapprof: where is the memory? Reads heap profiles and says.
//!
//! `main` decides the exit code, once: 0 done, 1 a rule of `--fail-if` broke, 2 it could not be
//! done.
#![deny(unsafe_code)]

mod args;
mod command;
mod default_profile;
mod drop_in;
mod fetch;
mod inherited;
mod messages;
mod name;
mod output;
mod place;
mod preload;
mod progress;
mod source;
mod suggestion;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

/// What was typed; a program that is called `pprof` is `heapprof pprof`.
fn command_line() -> Vec<OsString> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let name = args.first().and_then(|arg| Path::new(arg).file_name());
    if let Some(name) = name
        && ["pprof", "jeprof"].iter().any(|tool| name == *tool)
    {
        let name = name.to_os_string();
        args.insert(1, name);
    }
    args
}

/// Reads the command line. `-#12` is a part of what comes on stdin, but for `record`, whose
/// arguments are the program's.
fn parse(typed: &[OsString]) -> Result<Cli, clap::Error> {
    let mut args = typed.to_vec();
    for arg in args.iter_mut().skip(1).take_while(|arg| *arg != "--") {
        if let Some(part) = arg.to_str().and_then(source::part_of_stdin) {
            *arg = format!("{}#{part}", source::STDIN).into();
        }
    }
    let cli = Cli::try_parse_from(&args)?;
    match cli.command {
        Command::Record(_) if args != typed => Cli::try_parse_from(typed),
        _ => Ok(cli),
    }
}

fn main() -> ExitCode {
    // A closed pipe is an error to writers, not a silent death: output files must not be left
    // half-written.
    let typed = command_line();
    let cli = match parse(&typed) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            messages::usage(&error, &typed);
            return ExitCode::from(2);
        }
        Err(help) => {
            // Help that nobody reads to its end is no failure.
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    match command::run(cli) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            messages::error(&error);
            ExitCode::from(2)
        }
    }
}

//! The words of a command line, and what they mean.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;
use heapprof_inspect::named_process;

use crate::args::{Cli, CliCommand};
use crate::{args, messages, output};

/// Runs the command that a command line means, by `run`, and returns its exit code. Help that the
/// user asked for is printed, and so are errors of usage.
pub(crate) fn run_words(
    typed: Vec<OsString>,
    run: impl FnOnce(Cli) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let mut typed = with_command(typed);
    if typed.len() > 2 && typed[1] == "help" && typed[2] == "options" {
        return output::text(None, &args::shared_options()).map(|()| ExitCode::SUCCESS);
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
    match parsed {
        Ok(cli) => run(cli),
        Err(error) if error.use_stderr() => {
            messages::usage(&error, &typed);
            Ok(ExitCode::from(2))
        }
        Err(help) => output::help(&help).map(|()| ExitCode::SUCCESS),
    }
}

/// Returns the words of a command line with its command. If the program is called `pprof`, `jeprof`
/// or `google-pprof`, that name becomes the command. If the first word is a file instead of a
/// command, the command is `top`. If it is the number of a process, or a core file by `core:`, the
/// command is `why`.
fn with_command(mut args: Vec<OsString>) -> Vec<OsString> {
    let name = args.first().and_then(|arg| Path::new(arg).file_name());
    if let Some(name) = name
        && ["pprof", "jeprof", "google-pprof"]
            .iter()
            .any(|tool| name == *tool)
    {
        let name = name.to_os_string();
        args.insert(1, name);
    }
    if let Some(word) = args.get(1)
        && word != "help"
        && let Some(command) = command_for(&word.to_string_lossy())
        && !args::is_command(&word.to_string_lossy())
    {
        args.insert(1, command.into());
    }
    args
}

/// Returns the command that a first word means that is no command.
fn command_for(word: &str) -> Option<&'static str> {
    let is_outside = ["pid:", "core:"]
        .iter()
        .any(|start| word.starts_with(start));
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    match () {
        () if is_outside && !Path::new(word).exists() => Some("why"),
        () if names_profile(word) => Some("top"),
        () if is_number && !word.is_empty() => Some("why"),
        () => None,
    }
}

/// Whether a word can only be meant as a profile: a path, perhaps with the number of a part, or an
/// address.
fn names_profile(word: &str) -> bool {
    let is_there = |path: &str| !path.is_empty() && Path::new(path).exists();
    let starts = ["http://", "https://"];
    let path = word.rsplit_once('#').map_or(word, |(path, _)| path);
    let is_address = starts.iter().any(|start| word.starts_with(start));
    !word.starts_with('-') && (is_address || is_there(path))
}

/// Parses the command line. Secrets are removed from addresses, and `-#12` is replaced by the path
/// of part 12 of standard input. Some words stay as they are: the program and the arguments of
/// `record`, the commands that other commands run, and the texts of `mark`.
fn parse(typed: &[OsString]) -> Result<Cli, clap::Error> {
    let args = prepare_own_words(typed, typed.len());
    let cli = args::parse(&args)?;
    let own = match &cli.command {
        CliCommand::Record(_) | CliCommand::WatchPart(_) => 0,
        // These commands run the words behind `--`.
        CliCommand::ForkAudit(_)
        | CliCommand::Watch(_)
        | CliCommand::Why(_)
        | CliCommand::BenchPart(_) => typed.iter().take_while(|arg| *arg != "--").count(),
        _ => return Ok(cli),
    };
    match prepare_own_words(typed, own) {
        own if own == args => Ok(cli),
        own => args::parse(&own),
    }
}

/// Prepares the first `own` words of a command line, which are for heapprof: secrets are removed,
/// and parts of standard input get their paths.
fn prepare_own_words(typed: &[OsString], own: usize) -> Vec<OsString> {
    let mut args = typed.to_vec();
    // pprof takes HOST:PORT for an address.
    let needs_scheme = !args.iter().skip(1).any(|arg| arg == "pprof");
    for arg in args.iter_mut().take(own).skip(1) {
        if let Some(part) = arg.to_str().and_then(heapprof_sources::part_of_stdin) {
            *arg = format!("{}#{part}", heapprof_sources::STDIN_PATH).into();
        } else if let Some(shown) =
            heapprof_sources::argument_without_secrets(&arg.to_string_lossy(), needs_scheme)
        {
            *arg = shown.into();
        }
    }
    args
}

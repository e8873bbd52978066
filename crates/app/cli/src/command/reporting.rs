//! The commands that answer a question about profiles and change nothing. `heapprof web` answers
//! them as well.

use std::process::ExitCode;

use anyhow::Result;

use super::{diff, info, leaks, list, peek, schema, stats, tags, timeline, top, traces, tree};
use crate::args::CliCommand;
use crate::context::CommandContext;

/// Runs a command that answers a question about profiles and changes nothing; `web` answers these
/// questions as well. Returns `None` for other commands.
pub(super) fn run_reporting_command(
    context: &CommandContext,
    command: &CliCommand,
) -> Result<Option<ExitCode>> {
    match command {
        CliCommand::Top(args) => return top::run(context, args).map(Some),
        CliCommand::Info(args) => return info::run(context, args).map(Some),
        CliCommand::Leaks(args) => return leaks::run(context, args).map(Some),
        CliCommand::Diff(args) => return diff::run(context, args).map(Some),
        CliCommand::Tree(args) => tree::run(context, args)?,
        CliCommand::Peek(args) => peek::run(context, args)?,
        CliCommand::List(args) => list::run(context, args)?,
        CliCommand::Traces(args) => traces::run(context, args)?,
        CliCommand::Tags(args) => tags::run(context, args)?,
        CliCommand::Stats(args) => stats::run(context, args)?,
        CliCommand::Timeline(args) => timeline::run(context, args)?,
        CliCommand::Schema(args) => schema::run(context, args)?,
        _ => return Ok(None),
    }
    Ok(Some(ExitCode::SUCCESS))
}

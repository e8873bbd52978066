//! `pprof` and `jeprof`: their flags are theirs, so what follows is passed on as it is.

use clap::Args;

use super::cli_command;
use crate::name;

/// Words that another tool's command line is made of.
#[derive(Debug, Args)]
pub(crate) struct DropInArgs {
    /// The tool's flags, an executable, files and URLs
    #[arg(
        value_name = "FLAG|BINARY|SOURCE",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_parser = name::parser()
    )]
    pub(crate) words: Vec<String>,
}

/// The help of a command, as text.
pub(crate) fn help_of(command: &str) -> String {
    let mut cli = cli_command();
    cli.build();
    match cli.find_subcommand_mut(command) {
        Some(command) => command.render_long_help().to_string(),
        None => String::new(),
    }
}

//! The command line of `shell`.

use clap::Args;

use crate::name;

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// What the commands are about: profiles, pid:PROCESS, core:FILE or a database; without it, the
    /// newest recording in the current folder
    #[arg(value_name = "PROFILE|DB", value_parser = name::parser())]
    pub(crate) sources: Vec<String>,
}

//! The command line of `why`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::ProcessReportArgs;
use super::record::time;
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// A process by its id or name, a PROFILE, or core:FILE; without one, the newest recording in
    /// this folder
    #[arg(value_name = "TARGET", value_parser = name::parser(), conflicts_with = "command")]
    pub(crate) target: Option<String>,
    /// Show all parts and everything that holds them, instead of one screenful
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Take two readings this far apart, e.g. 10s, and show what has grown in between
    #[arg(long = "for", value_name = "TIME", value_parser = time, conflicts_with = "command")]
    pub(crate) time: Option<Duration>,
    /// The program of the core file, if it is not at its old path any more
    #[arg(long, value_name = "FILE")]
    pub(crate) exe: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ProcessReportArgs,
    /// The command to record, with its arguments; the answer is about its peak
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

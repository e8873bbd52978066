//! The command lines of what looks at a process as the kernel sees it: `proc`, `watch`, `mark`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use heapprof_report::ReportFormat;

use super::record::time;
use super::{FileModeArgs, LimitArg, OutputArgs, format};
use crate::name;

/// How a report about processes is written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ProcessReportArgs {
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: ReportFormat,
    /// Unit of sizes: auto, B, KiB, MiB, GiB, TiB, PiB
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ProcArgs {
    /// The process, by its id or name: NUMBER, NAME, pid:NUMBER or pid:NAME
    #[arg(value_name = "PROCESS", value_parser = name::parser())]
    pub(crate) process: Option<String>,
    /// List the recorded processes, with the memory that they have in use
    #[arg(long, conflicts_with_all = ["process", "limit", "maps", "brief", "diff"])]
    pub(crate) recorded: bool,
    /// Show what has changed since this file was written by proc --format json -o FILE
    #[arg(
        long,
        value_name = "FILE",
        requires = "process",
        conflicts_with = "maps"
    )]
    pub(crate) diff: Option<PathBuf>,
    /// Show a row for each mapping instead of one for each kind
    #[arg(long, requires = "process")]
    pub(crate) maps: bool,
    /// Leave out the explanations of words
    #[arg(short, long, requires = "process", conflicts_with = "diff")]
    pub(crate) brief: bool,
    #[command(flatten)]
    pub(crate) limit: LimitArg,
    #[command(flatten)]
    pub(crate) report: ProcessReportArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The process, by its id or name: NUMBER, NAME, pid:NUMBER or pid:NAME
    #[arg(value_name = "PROCESS", value_parser = name::parser(), conflicts_with = "command")]
    #[arg(required_unless_present_any = ["command", "show"])]
    pub(crate) process: Option<String>,
    /// The time between two readings, e.g. 100ms or 10s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) interval: Duration,
    /// End after this time, e.g. 30s or 2h. Without it, watch ends when the last process ends, or
    /// at Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = time, conflicts_with = "command")]
    pub(crate) time: Option<Duration>,
    /// Watch this process only, without its descendants
    #[arg(long)]
    pub(crate) no_children: bool,
    /// Run the command of --then when this rule is true for the first time, e.g. 'rss > 2GiB'
    #[arg(long, value_name = "RULE", requires = "then")]
    pub(crate) until: Option<String>,
    /// The command that --until runs; it is split into words, without a shell. {pid} is the process
    /// id
    #[arg(long, value_name = "COMMAND", requires = "until")]
    pub(crate) then: Option<String>,
    /// The name of the watch in the database
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    /// Show a stored watch again; without NAME, the last one
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    #[arg(conflicts_with_all = ["process", "command"])]
    pub(crate) show: Option<String>,
    /// Show nothing at the end except errors
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) report: ProcessReportArgs,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
    /// Run this program, and watch it until it ends
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct MarkArgs {
    /// The text of the mark: what begins here
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    /// The process to which the mark belongs, by its id; its watch gets the mark. Without it, the
    /// watch that runs this program gets the mark, or the only watch of this user
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}
